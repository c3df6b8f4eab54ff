"""Models from tokens to text embeddings, for `predict_on_batch`.

Axes: B batch, T length, D model width.
"""

import keras
from keras import ops

from keras_tta.layers import VisibilityMask
from keras_tta.models.inputs import visible_keys


def embedding_model(backbone, layers, fuse_tokens, use_maximum):
    """A model from a backbone's inputs and `pooling_weights` to embeddings.

    Args:
        backbone: of `keras_tta.models`.
        layers: the layers whose mean is pooled, 0 for the embeddings.
        fuse_tokens: the share, from 0 to 1, of each token's own vector in it.
        use_maximum: whether to take the maximum where the weights are not 0, in place
            of the mean under them.

    Returns:
        A model to (B, D), float32. Rows whose weights are all 0 are zeros.
    """
    inputs = backbone.input
    weights = keras.Input((None,), dtype="float32", name="pooling_weights")
    states = [ops.cast(_states(backbone, inputs, layer), "float32") for layer in layers]
    hidden = sum(states) / len(states)
    if fuse_tokens:
        tokens = backbone.embeddings.norm(backbone.token_embedding(inputs["token_ids"]))
        tokens = _project(backbone, tokens)
        hidden = (1 - fuse_tokens) * hidden + fuse_tokens * ops.cast(tokens, "float32")
    pool = _maximum if use_maximum else _mean
    return keras.Model(
        {**inputs, "pooling_weights": weights},
        pool(hidden, ops.expand_dims(weights, -1)),
    )


def _states(backbone, inputs, layer):
    """What a layer says of every token, (B, T, D).

    The 0th is the sum of token and position, which in T-TA is the memory that is read.
    """
    if layer == backbone.num_layers:
        return backbone.output
    optional = {"position_ids": inputs.get("position_ids")}
    if getattr(backbone, "num_segments", 0):
        optional["segment_ids"] = inputs["segment_ids"]
    streams = backbone.embeddings(inputs["token_ids"], **optional)
    streams = streams if backbone.static_key_value else (_project(backbone, streams),)
    if layer == 0:
        return streams[-1]
    visible = visible_keys(VisibilityMask(backbone.visibility), inputs)
    outputs = _LayerOutput(backbone.encoder, layer, dtype=backbone.dtype_policy)
    return outputs(*streams, visible)


def _project(backbone, vectors):
    """Embeddings in the width of the layers, where the tables have another."""
    projection = getattr(backbone, "embedding_projection", None)
    return vectors if projection is None else projection(vectors)


def _mean(hidden, weights):
    total = ops.maximum(ops.sum(weights, axis=1), 1e-9)
    return ops.sum(weights * hidden, axis=1) / total


def _maximum(hidden, weights):
    counts = weights > 0
    greatest = ops.max(ops.where(counts, hidden, -1e9), axis=1)
    return ops.where(ops.any(counts, axis=1), greatest, 0.0)


class _LayerOutput(keras.layers.Layer):
    """The output of one of an encoder's layers, counted from 1."""

    def __init__(self, encoder, layer, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.layer = layer

    def call(self, *streams):
        return self.encoder.layer_outputs(*streams)[self.layer - 1]

    def compute_output_spec(self, *streams):
        return self.encoder.compute_output_spec(*streams)
