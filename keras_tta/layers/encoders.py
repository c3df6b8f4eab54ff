"""Encoders: stacks of attention and feed-forward blocks.

Axes: B batch, T target (query) length, S source (key) length, D model width.
"""

import keras
from keras import ops

from keras_tta.layers.attention import ProjectedAttention
from keras_tta.layers.checks import check_fraction, check_positive_integers
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
        kernel_initializer: defaults to BERT's truncated normal.

    Call arguments:
        residual, attended: (B, T, D).

    Returns:
        (B, T, D).

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
        kernel_initializer="bert",
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


@keras.saving.register_keras_serializable(package="keras_tta")
class SharedKVEncoder(keras.layers.Layer):
    """T-TA's encoder: a query stream that reads the same static memory in each layer.

    Keys and values of every layer are projections of one stream, `key_value`, which no
    layer changes. Two things follow. A rule that hides self leaks nothing at any
    depth, since what a query reads never contains another query's reading. And the
    keys and values of all layers are one product, done before the first layer,
    with a kernel of shape (D', 2 * num_layers * D).

    Follows Shin et al. (ACL 2020), section 3, and its code: post-norm blocks, the
    residual on the query stream alone.

    Args:
        num_layers: number of layers.
        num_heads: number of attention heads; must divide D, the query's width.
        intermediate_dim: width of the feed-forward layers.
        dropout: share dropped in training of attention weights and of the outputs of
            both sub-layers. Defaults to 0.0.
        layer_norm_epsilon: defaults to 1e-12.
        kernel_initializer: defaults to BERT's truncated normal.

    Call arguments:
        query: (B, T, D), where the query stream starts.
        key_value: (B, S, D'), the static memory.
        visible: boolean, broadcastable to (B, T, S).

    Returns:
        (B, T, D), the query stream after the last layer.

    Raises:
        ValueError: if a size is not a positive integer, `dropout` not in [0, 1), or D
            not a multiple of `num_heads`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import SharedKVEncoder

    query = key_value = np.ones((2, 5, 8), "float32")
    hide_self = ~np.eye(5, dtype=bool)[None]
    encoder = SharedKVEncoder(num_layers=3, num_heads=2, intermediate_dim=16)
    assert tuple(encoder(query, key_value, hide_self).shape) == (2, 5, 8)
    ```
    """

    def __init__(
        self,
        num_layers,
        num_heads,
        intermediate_dim,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        kernel_initializer="bert",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(
            self,
            num_layers=num_layers,
            num_heads=num_heads,
            intermediate_dim=intermediate_dim,
        )
        check_fraction(self, dropout=dropout)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = bert_initializer(kernel_initializer)

    def build(self, query_shape, key_value_shape, visible_shape=None):
        width = query_shape[-1]
        if width % self.num_heads:
            raise ValueError(
                f"The width of `query` must be a multiple of num_heads="
                f"{self.num_heads}. Received: query of shape {tuple(query_shape)}"
            )
        self.key_value_dense = dense(self, 2 * self.num_layers * width, "key_value")
        self.key_value_dense.build(key_value_shape)
        memory_shape = (*key_value_shape[:-1], width)
        self.attentions, self.blocks = [], []
        for index in range(self.num_layers):
            attention = ProjectedAttention(
                self.num_heads,
                width // self.num_heads,
                dropout=self.dropout,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"attention_{index}",
            )
            attention.build(query_shape, memory_shape)
            self.attentions.append(attention)
            block = FeedForwardBlock(
                self.intermediate_dim,
                dropout=self.dropout,
                layer_norm_epsilon=self.layer_norm_epsilon,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"block_{index}",
            )
            block.build(query_shape)
            self.blocks.append(block)
        self.built = True

    def call(self, query, key_value, visible, training=None):
        return self.layer_outputs(query, key_value, visible, training)[-1]

    def layer_outputs(self, query, key_value, visible, training=None):
        """The query stream after every layer, a list of (B, T, D)."""
        memory = ops.split(self.key_value_dense(key_value), 2 * self.num_layers, -1)
        outputs = []
        layers = zip(
            self.attentions, self.blocks, memory[::2], memory[1::2], strict=True
        )
        for attention, block, key, value in layers:
            attended = attention(query, key, value, visible, training=training)
            query = block(query, attended, training=training)
            outputs.append(query)
        return outputs

    def compute_output_spec(self, query, key_value, visible, training=None):
        return keras.KerasTensor(query.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
