"""Attention under a visibility mask.

Axes: B batch, T target (query) length, S source (key) length, N heads, H head width,
D model width. A mask `visible` is boolean, (B, T, S) or broadcastable to it: `True`
where the query may see the key.
"""

import keras
from keras import ops

from keras_tta.checks import check_fraction, check_positive_integers
from keras_tta.layers.sublayers import bert_initializer, dense, dropout_layer
from keras_tta.visibility import Side, Visibility


@keras.saving.register_keras_serializable(package="keras_tta")
class VisibilityMask(keras.layers.Layer):
    """Turns a visibility rule into the boolean mask an attention layer takes.

    A model asks a rule nowhere else. Padding keys are hidden last, outside whatever
    the rule composes.

    Args:
        rule: a `keras_tta.visibility.Visibility`.

    Call arguments:
        padding_mask: (B, T), true or 1 at real tokens.
        segment_ids: (B, T) integers, if the rule needs them.
        word_ids: (B, T) integers, if the rule needs them.

    Returns:
        Boolean (B, T, S) with S = T.

    Raises:
        ValueError: if an input the rule needs is missing.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import VisibilityMask
    from keras_tta.visibility import NotSelf

    visible = VisibilityMask(NotSelf())(np.array([[1, 1, 0]]))
    assert np.array(visible)[0].tolist() == [
        [False, True, False],
        [True, False, False],
        [True, True, False],
    ]
    ```
    """

    def __init__(self, rule, **kwargs):
        super().__init__(**kwargs)
        if isinstance(rule, dict):
            rule = keras.saving.deserialize_keras_object(rule)
        if not isinstance(rule, Visibility):
            raise ValueError(
                "`rule` of VisibilityMask must be a visibility rule, such as "
                f"`keras_tta.visibility.NotSelf()`. Received: rule={rule!r}"
            )
        self.rule = rule

    def call(self, padding_mask, segment_ids=None, word_ids=None):
        for name, ids in (("segment_ids", segment_ids), ("word_ids", word_ids)):
            if name in self.rule.needs and ids is None:
                raise ValueError(f"The rule {self.rule!r} needs `{name}`; none came.")
        is_real = ops.cast(padding_mask, "bool")
        position = ops.arange(ops.shape(is_real)[1], dtype="int32")
        query = Side(
            position[None, :, None],
            None if segment_ids is None else ops.expand_dims(segment_ids, 2),
            None if word_ids is None else ops.expand_dims(word_ids, 2),
        )
        key = Side(
            position[None, None, :],
            None if segment_ids is None else ops.expand_dims(segment_ids, 1),
            None if word_ids is None else ops.expand_dims(word_ids, 1),
        )
        seen = self.rule.visible(query, key)
        return ops.logical_and(seen, ops.expand_dims(is_real, 1))

    def compute_output_spec(self, padding_mask, segment_ids=None, word_ids=None):
        batch, length = padding_mask.shape
        return keras.KerasTensor((batch, length, length), dtype="bool")

    def get_config(self):
        rule = keras.saving.serialize_keras_object(self.rule)
        return {**super().get_config(), "rule": rule}


@keras.saving.register_keras_serializable(package="keras_tta")
class ProjectedAttention(keras.layers.Layer):
    """Multi-head attention over keys and values that are already projected.

    The part of attention that belongs to the query: its projection, the read, and the
    output projection. `TTAAttention` puts a key and value projection before it;
    `SharedKVEncoder` projects the keys and values of all its layers at once.

    A query that sees no key reads exactly zero, in every backend: a large negative
    score alone would let it read the average of all values, its own among them.

    Args:
        num_heads: number of heads N.
        head_dim: width H of a head.
        dropout: share of attention weights dropped in training. Defaults to 0.0.
        kernel_initializer: for the projections. Defaults to `"lecun_normal"`;
            `"bert"` is a truncated normal of standard deviation 0.02.

    Call arguments:
        query: (B, T, D).
        key, value: (B, S, N * H).
        visible: boolean, broadcastable to (B, T, S).

    Returns:
        (B, T, D), in the layer's compute dtype.

    Raises:
        ValueError: if a size is not a positive integer or `dropout` not in [0, 1).

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import ProjectedAttention

    attention = ProjectedAttention(num_heads=2, head_dim=4)
    key = value = np.ones((1, 3, 8), "float32")
    read = attention(
        np.ones((1, 2, 6), "float32"), key, value, np.ones((1, 2, 3), bool)
    )
    assert tuple(read.shape) == (1, 2, 6)
    ```
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        dropout=0.0,
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(self, num_heads=num_heads, head_dim=head_dim)
        check_fraction(self, dropout=dropout)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout = dropout
        self.kernel_initializer = bert_initializer(kernel_initializer)
        self.weights_dropout = dropout_layer(self, "weights_dropout")

    def build(self, query_shape, key_shape, value_shape=None, visible_shape=None):
        self.query_dense = dense(self, self.num_heads * self.head_dim, "query")
        self.query_dense.build(query_shape)
        self.output_dense = dense(self, query_shape[-1], "attention_output")
        self.output_dense.build((*query_shape[:-1], self.num_heads * self.head_dim))
        self.built = True

    def call(self, query, key, value, visible, training=None):
        return self.read(query, key, value, visible, training)

    def read(self, query, key, value, visible, training=None):
        query = self._split_heads(self.query_dense(query))
        key = self._split_heads(key)
        value = self._split_heads(value)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32") * self.head_dim**-0.5
        visible = ops.cast(visible, "bool")
        while len(visible.shape) < 3:
            # (T, S) and (S,) broadcast from the right; the heads come in between.
            visible = ops.expand_dims(visible, 0)
        visible = ops.expand_dims(visible, 1)
        weights = ops.softmax(ops.where(visible, scores, -1e9), axis=-1)
        sees_any = ops.any(visible, axis=-1, keepdims=True)
        weights = weights * ops.cast(sees_any, "float32")
        weights = self.weights_dropout(
            ops.cast(weights, self.compute_dtype), training=training
        )
        read = ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
        shape = ops.shape(read)
        read = ops.reshape(read, (*shape[:2], self.num_heads * self.head_dim))
        return self.output_dense(read)

    def compute_output_spec(self, query, *_, **__):
        return keras.KerasTensor(query.shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    def _split_heads(self, x):
        """(B, T, N * H) to (B, N, T, H)."""
        shape = ops.shape(x)
        x = ops.reshape(x, (*shape[:2], self.num_heads, self.head_dim))
        return ops.transpose(x, (0, 2, 1, 3))


@keras.saving.register_keras_serializable(package="keras_tta")
class TTAAttention(ProjectedAttention):
    """Multi-head attention under a visibility mask: one stream reads another.

    In T-TA (Shin et al., ACL 2020, section 3) the query stream starts from positions
    alone, keys and values are the raw token and position embeddings in every
    layer, and the mask hides the diagonal. With `query` also as `key_value` it is
    ordinary self-attention. Kernels are 2-D; queries that see nothing read exactly
    zero before the output projection.

    Args:
        num_heads: number of heads N.
        head_dim: width H of a head.
        dropout: share of attention weights dropped in training. Defaults to 0.0.
        kernel_initializer: for the projections. Defaults to `"lecun_normal"`;
            `"bert"` is a truncated normal of standard deviation 0.02.

    Call arguments:
        query: (B, T, D).
        key_value: (B, S, D'), the stream that is read.
        visible: boolean, broadcastable to (B, T, S), as `VisibilityMask` gives it.

    Returns:
        (B, T, D), in the layer's compute dtype.

    Raises:
        ValueError: if a size is not a positive integer or `dropout` not in [0, 1).

    Example: one T-TA layer out of stock parts, trained by `keras.Model.fit`.
    ```python
    import keras
    import numpy as np
    from keras_tta.layers import TTAAttention, VisibilityMask
    from keras_tta.visibility import NotSelf

    vocabulary_size, length, width = 20, 8, 16
    token_ids = keras.Input((length,), dtype="int32")
    positions = keras.layers.Embedding(length, width)(
        keras.ops.cumsum(keras.ops.ones_like(token_ids), axis=1) - 1
    )
    memory = keras.layers.Embedding(vocabulary_size, width)(token_ids) + positions
    visible = VisibilityMask(NotSelf())(keras.ops.ones_like(token_ids))
    x = TTAAttention(num_heads=2, head_dim=8)(positions, memory, visible)
    x = keras.layers.LayerNormalization()(x + positions)
    model = keras.Model(token_ids, keras.layers.Dense(vocabulary_size)(x))

    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    tokens = np.random.default_rng(0).integers(1, vocabulary_size, (32, length))
    model.fit(tokens, tokens, verbose=0)
    ```
    """

    def build(self, query_shape, key_value_shape, visible_shape=None):
        super().build(query_shape, key_value_shape)
        self.key_value_dense = dense(
            self, 2 * self.num_heads * self.head_dim, "key_value"
        )
        self.key_value_dense.build(key_value_shape)

    def call(self, query, key_value, visible, training=None):
        key, value = ops.split(self.key_value_dense(key_value), 2, axis=-1)
        return self.read(query, key, value, visible, training)
