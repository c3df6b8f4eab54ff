"""Heads: from hidden states to predictions and losses.

Axes: B batch, T length, D model width, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from keras_tta.layers.sublayers import bert_initializer, dense, layer_norm

POSITIONS_IN_A_CHUNK = 2048


class _TokenHead(keras.layers.Layer):
    """What token heads share: logits by an embedding layer's table, and their loss."""

    def __init__(self, token_embedding, **kwargs):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.vocabulary_size = token_embedding.input_dim

    def call(self, hidden):
        return self._logits(self.transform(hidden), self._table(), self.bias)

    def compute_output_spec(self, hidden):
        return keras.KerasTensor(
            (*hidden.shape[:-1], self.vocabulary_size), dtype="float32"
        )

    def loss(self, hidden, labels, weights, training=None, excluded_token_ids=()):
        """Weighted negative log-likelihood of the labels, in nats, without the logits.

        Works through the positions in chunks of about 2048, so that the largest tensor
        is (2048, V). In training the gradients with respect to the hidden states,
        the table and the bias are computed in the same sweep and attached to the
        loss.

        Args:
            hidden: (B, T, D), what `call` would be given.
            labels: (B, T) integers.
            weights: (B, T) floats; positions of weight 0 cost nothing in the loss.
            training: whether gradients will be asked for. Defaults to no.
            excluded_token_ids: tokens that have no share of the softmax, and are no
                labels where weights are not 0. Defaults to none.

        Returns:
            `(total, nats, correct)`: the weighted sum of nats, differentiable in
            training; the nats of each position, float32 (B, T); and whether the label
            was the most probable token, bool (B, T).
        """
        bias = self.bias
        if excluded_token_ids:
            excluded = np.zeros(self.vocabulary_size, bool)
            excluded[list(excluded_token_ids)] = True
            bias = ops.where(excluded, -1e30, ops.convert_to_tensor(bias))
        return self._loss(hidden, labels, weights, training, bias)[:3]

    def _loss(self, hidden, labels, weights, training, bias, given=()):
        """As `loss`, and what `_judge` makes of the softmax's nats, for `given`."""
        states = self.transform(hidden)
        table = self._table()
        weights = ops.cast(weights, "float32")
        nats, correct, slope, gradients = self._sweep(
            *map(ops.stop_gradient, (states, table, bias)),
            (labels, weights, *given),
            gradients=bool(training),
        )
        total = ops.sum(nats * weights)
        if training:
            # Zero in value, and its derivatives are those of the loss: linear in each
            # variable with the sweep's gradients of log sum exp as coefficients, less
            # the label's own logit.
            states = ops.cast(states, "float32")
            label_logits = ops.sum(states * ops.take(table, labels, axis=0), axis=-1)
            label_logits = label_logits + ops.take(bias, labels, axis=0)
            carrier = -ops.sum(weights * slope * label_logits)
            for x, gradient in zip((states, table, bias), gradients, strict=True):
                carrier = carrier + ops.sum(x * ops.stop_gradient(gradient))
            total = total + carrier - ops.stop_gradient(carrier)
        return total, nats, correct, slope

    def _judge(self, logits, highest, normalizer, labels):
        """Nats and hits at the positions of a chunk, and the derivative of these nats
        with respect to those of the softmax."""
        chosen = at_token(logits, labels)
        return normalizer - chosen, chosen >= highest, ops.ones_like(chosen)

    def get_config(self):
        embedding = keras.saving.serialize_keras_object(self.token_embedding)
        return {**super().get_config(), "token_embedding": embedding}

    @classmethod
    def from_config(cls, config):
        embedding = keras.saving.deserialize_keras_object(config["token_embedding"])
        return cls(**{**config, "token_embedding": embedding})

    def _table(self):
        if not self.token_embedding.tie_weights:
            return ops.transpose(self.token_embedding.reverse_embeddings)
        table = ops.convert_to_tensor(self.token_embedding.embeddings)
        mode = getattr(self.token_embedding, "quantization_mode", None)
        if mode is None:
            return table
        if mode != "int8":
            raise ValueError(
                f"{type(self).__name__} reads the token table in float or int8. "
                f'Quantize the backbone to "int8". Received: {mode!r}'
            )
        scale = ops.expand_dims(self.token_embedding.embeddings_scale, -1)
        return ops.cast(table, scale.dtype) / scale

    def _logits(self, states, table, bias):
        table = ops.cast(table, states.dtype)
        logits = ops.matmul(states, ops.transpose(table))
        return ops.cast(logits, "float32") + bias

    def _sweep(self, states, table, bias, columns, gradients):
        """What `_judge` says and, if asked for, gradients of the weighted log sum exp.

        Chunks are cut along T, so that a batch split over devices stays where it is.
        """
        batch, length, _ = states.shape
        size = max(1, min(length or 16, POSITIONS_IN_A_CHUNK // (batch or 64)))
        length = ops.shape(states)[1]
        # One more chunk of zeros, so that the last slice is always whole.
        inputs = [_pad_time(x, size) for x in (states, *columns)]

        def step(index, sums):
            start = index * size
            cut = [_slice_time(x, start, size) for x in inputs]
            judged, changes = self._chunk(table, bias, cut, gradients)
            done = [
                ops.slice_update(old, (0, start), new)
                for old, new in zip(sums[:3], judged, strict=True)
            ]
            if gradients:
                done.append(ops.slice_update(sums[3], (0, start, 0), changes[0]))
                done += [sums[4] + changes[1], sums[5] + changes[2]]
            return tuple(done)

        sums = tuple(
            ops.zeros_like(inputs[1], dtype=dtype)
            for dtype in ("float32", "bool", "float32")
        )
        if gradients:
            sums += tuple(
                ops.zeros_like(x, dtype="float32") for x in (inputs[0], table, bias)
            )
        chunks = (length + size - 1) // size
        sums = ops.fori_loop(0, chunks, step, sums)
        # What is summed over positions has no time axis.
        by_position, summed = sums[:4], sums[4:]
        nats, correct, slope, *changes = [x[:, :length] for x in by_position]
        return nats, correct, slope, (*changes, *summed)

    def _chunk(self, table, bias, columns, gradients):
        states, labels, weights, *given = columns
        logits = self._logits(states, table, bias)
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        normalizer = highest + ops.log(total)
        highest, normalizer = (ops.squeeze(x, -1) for x in (highest, normalizer))
        judged = self._judge(logits, highest, normalizer, labels, *given)
        if not gradients:
            return judged, ()
        weights = ops.expand_dims(weights * judged[2], -1)
        weighted = exponentials * (weights / total)
        for_bias = ops.sum(weighted, axis=(0, 1))
        weighted = ops.cast(weighted, states.dtype)
        for_states = ops.matmul(weighted, ops.cast(table, states.dtype))
        for_table = ops.matmul(
            ops.transpose(ops.reshape(weighted, (-1, self.vocabulary_size))),
            ops.reshape(states, (-1, ops.shape(states)[-1])),
        )
        changes = (
            ops.cast(for_states, "float32"),
            ops.cast(for_table, "float32"),
            for_bias,
        )
        return judged, changes


@keras.saving.register_keras_serializable(package="keras_tta")
class TokenPredictionHead(_TokenHead):
    """Predicts a token at every position: transform, then the tied embedding table.

    `logits = LN(gelu(W h + b)) E^T + c`, as the heads of BERT, ELECTRA's generator and
    T-TA. Logits are float32 under every dtype policy.

    Training does not need the logits of all positions at once: `loss` works through
    them in chunks, and computes the gradients along with the loss, so that the
    vocabulary product is done once forward and twice backward, as without chunks.

    Args:
        token_embedding: the layer that owns the table E; a
            `keras.layers.ReversibleEmbedding`, such as `backbone.token_embedding`.
        layer_norm_epsilon: defaults to 1e-12.
        kernel_initializer: defaults to `"lecun_normal"`; `"bert"` is a truncated
            normal of standard deviation 0.02.

    Call arguments:
        hidden: (B, T, D).

    Returns:
        Logits, float32 (B, T, V).

    Example:
    ```python
    import keras
    import numpy as np
    from keras_tta.layers import TokenPredictionHead

    embedding = keras.layers.ReversibleEmbedding(input_dim=11, output_dim=8)
    embedding.build((None, None))
    head = TokenPredictionHead(embedding)
    assert tuple(head(np.ones((2, 3, 8), "float32")).shape) == (2, 3, 11)
    ```
    """

    def __init__(
        self,
        token_embedding,
        layer_norm_epsilon=1e-12,
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        super().__init__(token_embedding, **kwargs)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = bert_initializer(kernel_initializer)
        self.transform_dense = dense(self, token_embedding.output_dim, "transform")
        self.transform_norm = layer_norm(self, "transform_norm")

    def build(self, hidden_shape):
        self.transform_dense.build(hidden_shape)
        self.transform_norm.build((*hidden_shape[:-1], self.transform_dense.units))
        self.bias = self.add_weight(
            name="bias",
            shape=(self.vocabulary_size,),
            initializer="zeros",
            autocast=False,
        )
        self.built = True

    def transform(self, hidden):
        """What is multiplied with the table, (B, T, D)."""
        hidden = ops.gelu(self.transform_dense(hidden), approximate=False)
        return self.transform_norm(hidden)

    def get_config(self):
        return {
            **super().get_config(),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable(package="keras_tta")
class EmbeddingHead(_TokenHead):
    """Predicts a token at every position with the embedding layer alone.

    `logits = scale h E^T`, without a transform or a bias, as in T5 and BART; E is the
    table that `token_embedding` reads with, or, with `tie_weights=False`, its own one
    for the output. Logits are float32 under every dtype policy. The head has no weights
    but these; its loss is in chunks, as that of `TokenPredictionHead`.

    Args:
        token_embedding: a `keras.layers.ReversibleEmbedding`, such as
            `backbone.token_embedding`.
        scale: defaults to 1. T5 multiplies by D ** -0.5 where the table is tied.

    Call arguments:
        hidden: (B, T, D).

    Returns:
        Logits, float32 (B, T, V).

    Example:
    ```python
    import keras
    import numpy as np
    from keras_tta.layers import EmbeddingHead

    embedding = keras.layers.ReversibleEmbedding(input_dim=11, output_dim=4)
    embedding.build((None, None))
    head = EmbeddingHead(embedding, scale=4**-0.5)
    assert tuple(head(np.ones((2, 3, 4), "float32")).shape) == (2, 3, 11)
    ```
    """

    def __init__(self, token_embedding, scale=1.0, **kwargs):
        super().__init__(token_embedding, **kwargs)
        self.scale = float(scale)

    def build(self, hidden_shape=None):
        self.built = True

    @property
    def bias(self):
        # The sweep is the same for all heads; adding zeros costs next to nothing.
        return ops.zeros((self.vocabulary_size,), "float32")

    def transform(self, hidden):
        """What is multiplied with the table, (B, T, D)."""
        hidden = ops.cast(hidden, self.compute_dtype)
        return hidden * ops.cast(self.scale, hidden.dtype)

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


def at_token(logits, token_ids):
    """The logits (B, T) of the tokens (B, T) among those (B, T, V) of all."""
    chosen = ops.take_along_axis(logits, ops.expand_dims(token_ids, -1), axis=-1)
    return ops.squeeze(chosen, -1)


def _pad_time(x, size):
    """Append `size` zero positions on axis 1."""
    zeros = ops.zeros_like(x[:, :1])
    return ops.concatenate([x, ops.repeat(zeros, size, axis=1)], axis=1)


def _slice_time(x, start, size):
    shape = list(ops.shape(x))
    shape[1] = size
    return ops.slice(x, [0, start] + [0] * (len(shape) - 2), shape)
