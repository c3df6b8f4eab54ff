"""Models from tokens to what is known of them, for `predict_on_batch`.

Keras compiles each once for a shape, where the backend compiles, keeps no gradients,
and brings back NumPy arrays. None returns logits (B, T, V).

Axes: B batch, T length, P positions asked for, K candidates.
"""

import keras
from keras import ops

from keras_tta.layers import VisibilityMask
from keras_tta.models.inputs import visible_keys


def token_nats(backbone, head):
    """A model from a backbone's inputs to the nats of every token, (B, T)."""
    inputs = backbone.input
    nats = _Nats(head, dtype=head.dtype_policy)(backbone.output, inputs["token_ids"])
    return keras.Model(inputs, nats)


def chosen_token_nats(backbone, head):
    """A model to the nats of the tokens at some positions, (B, P).

    The inputs are the backbone's, and `positions` (B, P).
    """
    inputs, hidden = _read_at_positions(backbone)
    labels = ops.take_along_axis(inputs["token_ids"], inputs["positions"], axis=1)
    return keras.Model(inputs, _Nats(head, dtype=head.dtype_policy)(hidden, labels))


def masked_token_nats(backbone, head):
    """A model to the nats of `labels` at `positions`, both (B, P).

    For tokens that the backbone's inputs hide.
    """
    labels = keras.Input((None,), dtype="int32", name="labels")
    inputs, hidden = _read_at_positions(backbone)
    nats = _Nats(head, dtype=head.dtype_policy)(hidden, labels)
    return keras.Model({**inputs, "labels": labels}, nats)


def next_token_nats(backbone, head):
    """A model to the nats of every token, (B, T), read from the one before it.

    The first token, which has none before it, has 0.
    """
    inputs = backbone.input
    nats = _Nats(head, dtype=head.dtype_policy)(
        backbone.output[:, :-1], inputs["token_ids"][:, 1:]
    )
    return keras.Model(inputs, ops.pad(nats, [[0, 0], [1, 0]]))


def token_candidates(backbone, head, count, excluded_token_ids):
    """A model to the likeliest tokens at some positions and their log-probabilities.

    The inputs are the backbone's, and `positions` (B, P).

    Returns:
        A model whose output is a pair: log-probabilities and token ids, (B, P, K).
    """
    inputs, hidden = _read_at_positions(backbone)
    best = _Candidates(head, count, excluded_token_ids, dtype=head.dtype_policy)
    return keras.Model(inputs, best(hidden))


def _read_at_positions(backbone):
    """Inputs with `positions` (B, P) among them, and hidden states (B, P, D).

    Over static keys and values a query depends on no other query, so that some
    positions cost their share of all.
    """
    positions = keras.Input((None,), dtype="int32", name="positions")
    inputs = {**backbone.input, "positions": positions}
    if not backbone.static_key_value:
        at = ops.expand_dims(positions, -1)
        return inputs, ops.take_along_axis(backbone.output, at, axis=1)
    query, key_value = backbone.embeddings(
        inputs["token_ids"], position_ids=inputs.get("position_ids")
    )
    visible = visible_keys(VisibilityMask(backbone.visibility), inputs)
    at = ops.expand_dims(positions, -1)
    query, visible = (ops.take_along_axis(x, at, axis=1) for x in (query, visible))
    return inputs, backbone.encoder(query, key_value, visible)


class _Nats(keras.layers.Layer):
    """A head's loss as a layer: hidden states and labels to nats, without logits."""

    def __init__(self, head, **kwargs):
        super().__init__(**kwargs)
        self.head = head

    def call(self, hidden, labels):
        weights = ops.ones_like(labels, dtype="float32")
        _, nats, _ = self.head.loss(hidden, labels, weights, training=False)
        return nats

    def compute_output_spec(self, hidden, labels):
        return keras.KerasTensor(labels.shape, dtype="float32")


class _Candidates(keras.layers.Layer):
    """A head's likeliest tokens, out of those that are not excluded."""

    def __init__(self, head, count, excluded_token_ids, **kwargs):
        super().__init__(**kwargs)
        self.head = head
        self.count = count
        self.excluded_token_ids = excluded_token_ids

    def call(self, hidden):
        log_probabilities = ops.log_softmax(self.head(hidden), axis=-1)
        excluded = ops.one_hot(self.excluded_token_ids, self.head.vocabulary_size)
        excluded = ops.any(ops.cast(excluded, "bool"), axis=0)
        return ops.top_k(ops.where(excluded, -1e9, log_probabilities), self.count)

    def compute_output_spec(self, hidden):
        shape = (*hidden.shape[:-1], self.count)
        log_probabilities = keras.KerasTensor(shape, dtype="float32")
        return log_probabilities, keras.KerasTensor(shape, dtype="int32")
