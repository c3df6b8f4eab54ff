"""Encoders: stacks of attention and feed-forward blocks.

Axes: B batch, T target (query) length, S source (key) length, D model width.
"""

import keras
from keras import ops

from keras_tta.checks import check_fraction, check_positive_integers
from keras_tta.layers.attention import ProjectedAttention, TTAAttention
from keras_tta.layers.feed_forward import FeedForwardBlock
from keras_tta.layers.sublayers import bert_initializer, dense


class _Encoder(keras.layers.Layer):
    """What encoders have in common: layers of an attention and a feed-forward block."""

    def __init__(
        self,
        num_layers,
        num_heads,
        intermediate_dim,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        kernel_initializer="lecun_normal",
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

    def _build_layers(self, attention_class, query_shape, memory_shape):
        width = query_shape[-1]
        if width % self.num_heads:
            raise ValueError(
                f"The width of {type(self).__name__}'s input must be a multiple of "
                f"num_heads={self.num_heads}. Received an input of shape "
                f"{tuple(query_shape)}"
            )
        self.attentions, self.blocks = [], []
        for index in range(self.num_layers):
            attention = attention_class(
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


@keras.saving.register_keras_serializable(package="keras_tta")
class SharedKVEncoder(_Encoder):
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
        kernel_initializer: defaults to `"lecun_normal"`; `"bert"` is a truncated
            normal of standard deviation 0.02.

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

    def build(self, query_shape, key_value_shape, visible_shape=None):
        width = query_shape[-1]
        self.key_value_dense = dense(self, 2 * self.num_layers * width, "key_value")
        self.key_value_dense.build(key_value_shape)
        memory_shape = (*key_value_shape[:-1], width)
        self._build_layers(ProjectedAttention, query_shape, memory_shape)

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


@keras.saving.register_keras_serializable(package="keras_tta")
class TransformerEncoder(_Encoder):
    """BERT's encoder: every layer reads what the layer before has made of the text.

    Keys and values are contextual, so a rule that hides self does not hide it: after
    the first layer a token comes back by way of its neighbours, and the residual
    carries it along in any case. For predictions corrupt the input or hide the
    future (`Causal()`); to hide self at any depth use `SharedKVEncoder`.

    Follows Devlin et al. (2019) and Hugging Face's code: post-norm blocks, exact GELU.

    Args:
        num_layers: number of layers.
        num_heads: number of attention heads; must divide D.
        intermediate_dim: width of the feed-forward layers.
        dropout: share dropped in training of attention weights and of the outputs of
            both sub-layers. Defaults to 0.0.
        layer_norm_epsilon: defaults to 1e-12.
        kernel_initializer: defaults to `"lecun_normal"`; `"bert"` is a truncated
            normal of standard deviation 0.02.

    Call arguments:
        hidden: (B, T, D).
        visible: boolean, broadcastable to (B, T, T).

    Returns:
        (B, T, D), the output of the last layer.

    Raises:
        ValueError: if a size is not a positive integer, `dropout` not in [0, 1), or D
            not a multiple of `num_heads`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import TransformerEncoder

    hidden, visible = np.ones((2, 5, 8), "float32"), np.ones((1, 5, 5), bool)
    encoder = TransformerEncoder(num_layers=3, num_heads=2, intermediate_dim=16)
    assert tuple(encoder(hidden, visible).shape) == (2, 5, 8)
    ```
    """

    def build(self, hidden_shape, visible_shape=None):
        self._build_layers(TTAAttention, hidden_shape, hidden_shape)

    def call(self, hidden, visible, training=None):
        return self.layer_outputs(hidden, visible, training)[-1]

    def layer_outputs(self, hidden, visible, training=None):
        """The output of every layer, a list of (B, T, D)."""
        outputs = []
        for attention, block in zip(self.attentions, self.blocks, strict=True):
            attended = attention(hidden, hidden, visible, training=training)
            hidden = block(hidden, attended, training=training)
            outputs.append(hidden)
        return outputs

    def compute_output_spec(self, hidden, visible, training=None):
        return keras.KerasTensor(hidden.shape, dtype=self.compute_dtype)
