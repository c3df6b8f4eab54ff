"""ELECTRA's head: which tokens are not those that the text had.

Axes: B batch, T length, D model width.
"""

import keras
from keras import ops

from keras_tta.layers.sublayers import bert_initializer, dense


@keras.saving.register_keras_serializable(package="keras_tta")
class ReplacedTokenHead(keras.layers.Layer):
    """Says of every token whether it is a replacement: a logit, above 0 for yes.

    `logit = w . gelu(W h + b) + c`, as in ELECTRA's code (Clark et al., ICLR 2020,
    section 2), with the exact GELU. `w` starts small, as in Hugging Face's code, so
    that the first loss is ln 2 at any width. Logits are float32 under every dtype
    policy.

    Args:
        kernel_initializer: of W; defaults to `"lecun_normal"`; `"bert"` is a truncated
            normal of standard deviation 0.02, which is always that of `w`.

    Call arguments:
        hidden: (B, T, D).

    Returns:
        Logits, float32 (B, T).

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import ReplacedTokenHead

    hidden = np.ones((2, 3, 8), "float32")
    assert tuple(ReplacedTokenHead()(hidden).shape) == (2, 3)
    ```
    """

    def __init__(self, kernel_initializer="lecun_normal", **kwargs):
        super().__init__(**kwargs)
        self.kernel_initializer = bert_initializer(kernel_initializer)
        self.output_dense = keras.layers.Dense(
            1,
            kernel_initializer=bert_initializer("bert"),
            dtype=self.dtype_policy,
            name="output",
        )

    def build(self, hidden_shape):
        self.transform_dense = dense(self, hidden_shape[-1], "transform")
        self.transform_dense.build(hidden_shape)
        self.output_dense.build(hidden_shape)
        self.built = True

    def call(self, hidden):
        hidden = ops.gelu(self.transform_dense(hidden), approximate=False)
        return ops.cast(ops.squeeze(self.output_dense(hidden), -1), "float32")

    def compute_output_spec(self, hidden):
        return keras.KerasTensor(hidden.shape[:-1], dtype="float32")

    def loss(self, hidden, labels, weights, training=None):
        """Weighted binary cross-entropy, in nats.

        Args:
            hidden: (B, T, D), what `call` would be given.
            labels: (B, T), true or 1 where the token is a replacement.
            weights: (B, T) floats; positions of weight 0 cost nothing.
            training: has no effect; heads take it alike.

        Returns:
            `(total, nats, correct)`: the weighted sum of nats; the nats of each
            position, float32 (B, T); and whether the sign of the logit is right, bool
            (B, T).
        """
        return self.loss_of(self(hidden), labels, weights)

    def loss_of(self, logits, labels, weights):
        """As `loss`, from logits (B, T) that are there already."""
        signs = 1.0 - 2.0 * ops.cast(labels, "float32")
        nats = ops.softplus(signs * logits)
        correct = (logits > 0) == ops.cast(labels, "bool")
        return ops.sum(nats * ops.cast(weights, "float32")), nats, correct

    def get_config(self):
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
