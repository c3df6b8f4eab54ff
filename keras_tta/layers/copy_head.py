"""The copy mechanism: a token is taken over as it is read, or predicted anew.

Axes: B batch, T length, D model width, V vocabulary.
"""

import keras
from keras import ops

from keras_tta.layers.heads import TokenPredictionHead, at_token


@keras.saving.register_keras_serializable(package="keras_tta")
class CopyHead(TokenPredictionHead):
    """Predicts a token at every position: the one that is read, or one of the softmax.

    `p(x) = g 1[x = read] + (1 - g) softmax(x)` with `g = sigmoid(w . h + b)`, as in
    ELECTRA's All-Tokens MLM (Clark et al., ICLR 2020, section 3.4); the softmax is that
    of `TokenPredictionHead`, whose arguments it takes. All is computed from logarithms,
    in float32 under every dtype policy. `loss` works in chunks, as that head's.

    Args:
        token_embedding, layer_norm_epsilon, kernel_initializer: as for
            `TokenPredictionHead`.

    Call arguments:
        hidden: (B, T, D).
        token_ids: (B, T) integers, the tokens that are read.

    Returns:
        Log-probabilities, float32 (B, T, V).

    Raises:
        ValueError: if the table is quantized to something else than `"int8"`.

    Example:
    ```python
    import keras
    import numpy as np
    from keras_tta.layers import CopyHead

    embedding = keras.layers.ReversibleEmbedding(input_dim=11, output_dim=8)
    embedding.build((None, None))
    read = np.array([[3, 4]])
    log_probabilities = CopyHead(embedding)(np.ones((1, 2, 8), "float32"), read)
    likeliest = keras.ops.argmax(log_probabilities, axis=-1)
    assert np.array_equal(keras.ops.convert_to_numpy(likeliest), read)
    ```
    """

    def build(self, hidden_shape, token_ids_shape=None):
        self.copy_dense = keras.layers.Dense(
            1, kernel_initializer="zeros", dtype=self.dtype_policy, name="copy"
        )
        self.copy_dense.build(hidden_shape)
        super().build(hidden_shape)

    def call(self, hidden, token_ids):
        gate = ops.expand_dims(self._gate(hidden), -1)
        predicted = ops.log_softmax(super().call(hidden), axis=-1)
        read = ops.cast(ops.one_hot(token_ids, self.vocabulary_size), "bool")
        mixed = ops.where(read, ops.logaddexp(predicted, gate), predicted)
        return mixed - ops.softplus(gate)

    def compute_output_spec(self, hidden, token_ids):
        return super().compute_output_spec(hidden)

    def loss(self, hidden, labels, weights, token_ids, training=None):
        """As `TokenPredictionHead.loss`, for the tokens (B, T) that are read."""
        gate = self._gate(hidden)
        given = (ops.cast(token_ids, labels.dtype), ops.stop_gradient(gate))
        total, nats, correct, slope = self._loss(
            hidden, labels, weights, training, self.bias, given
        )
        if training:
            # The share of the copy in the label's probability is 1 - slope.
            change = ops.sigmoid(given[1]) - (1 - slope)
            carrier = ops.sum(ops.cast(weights, "float32") * change * gate)
            total = total + carrier - ops.stop_gradient(carrier)
        return total, nats, correct

    def _gate(self, hidden):
        """The log odds (B, T) that a token is taken over."""
        return ops.cast(ops.squeeze(self.copy_dense(hidden), -1), "float32")

    def _judge(self, logits, highest, normalizer, labels, token_ids, gate):
        # Probabilities in units of 1 - g, which is exp(-softplus(gate)).
        predicted = at_token(logits, labels) - normalizer
        copied = ops.logaddexp(at_token(logits, token_ids) - normalizer, gate)
        label = ops.where(labels == token_ids, copied, predicted)
        best = ops.maximum(copied, highest - normalizer)
        slope = ops.exp(predicted - label)
        return ops.softplus(gate) - label, label >= best, slope
