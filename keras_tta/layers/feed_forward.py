"""The feed-forward half of a Transformer block.

Axes: B batch, T length, D model width.
"""

import keras
from keras import ops

from keras_tta.checks import check_fraction, check_positive_integers
from keras_tta.layers.sublayers import (
    bert_initializer,
    dense,
    dropout_layer,
    layer_norm,
)


@keras.saving.register_keras_serializable(package="keras_tta")
class FeedForwardBlock(keras.layers.Layer):
    """The rest of a post-norm Transformer block, after its attention.

    Computes `h = LN(x + dropout(a))` for a residual stream `x` and what attention read,
    `a`, and then `LN(h + dropout(W2 gelu(W1 h)))`. GELU is exact (erf) and the
    normalisation's epsilon 1e-12, as in BERT's and T-TA's code.

    Args:
        intermediate_dim: width of the hidden layer.
        dropout: share of units dropped in training. Defaults to 0.0.
        layer_norm_epsilon: defaults to 1e-12.
        kernel_initializer: defaults to `"lecun_normal"`; `"bert"` is a truncated
            normal of standard deviation 0.02.

    Call arguments:
        residual, attended: (B, T, D).

    Returns:
        (B, T, D).

    Raises:
        ValueError: if a size is not a positive integer or `dropout` not in [0, 1).

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import FeedForwardBlock

    x = np.ones((2, 3, 4), "float32")
    assert tuple(FeedForwardBlock(intermediate_dim=8)(x, x).shape) == (2, 3, 4)
    ```
    """

    def __init__(
        self,
        intermediate_dim,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(self, intermediate_dim=intermediate_dim)
        check_fraction(self, dropout=dropout)
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = bert_initializer(kernel_initializer)
        self.attention_dropout = dropout_layer(self, "attention_dropout")
        self.output_dropout = dropout_layer(self, "output_dropout")
        self.attention_norm = layer_norm(self, "attention_norm")
        self.output_norm = layer_norm(self, "output_norm")

    def build(self, residual_shape, attended_shape=None):
        width = residual_shape[-1]
        self.intermediate_dense = dense(self, self.intermediate_dim, "intermediate")
        self.intermediate_dense.build(residual_shape)
        self.output_dense = dense(self, width, "output")
        self.output_dense.build((*residual_shape[:-1], self.intermediate_dim))
        self.attention_norm.build(residual_shape)
        self.output_norm.build(residual_shape)
        self.built = True

    def call(self, residual, attended, training=None):
        attended = self.attention_dropout(attended, training=training)
        hidden = self.attention_norm(residual + attended)
        change = ops.gelu(self.intermediate_dense(hidden), approximate=False)
        change = self.output_dropout(self.output_dense(change), training=training)
        return self.output_norm(hidden + change)

    def compute_output_spec(self, residual, attended, training=None):
        return keras.KerasTensor(residual.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
