"""Embeddings: where a model's streams start.

Axes: B batch, T length, D model width, V vocabulary.
"""

import keras
from keras import ops

from keras_tta.checks import (
    check_fraction,
    check_one_of,
    check_positive_integers,
    check_token_ids,
)
from keras_tta.layers.sublayers import bert_initializer, dropout_layer, layer_norm


class _Embedding(keras.layers.Layer):
    """What embeddings have in common: tokens, positions and the norm of their sum."""

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        max_sequence_length,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        embeddings_initializer="bert",
        token_embedding=None,
        position_embedding=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(
            self,
            vocabulary_size=vocabulary_size,
            hidden_dim=hidden_dim,
            max_sequence_length=max_sequence_length,
        )
        check_fraction(self, dropout=dropout)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.max_sequence_length = max_sequence_length
        self.dropout = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.embeddings_initializer = bert_initializer(embeddings_initializer)
        self.token_embedding = token_embedding or self._table(
            keras.layers.ReversibleEmbedding, vocabulary_size, "token_embedding"
        )
        self.position_embedding = position_embedding or self._table(
            keras.layers.Embedding, max_sequence_length, "position_embedding"
        )
        self.norm = layer_norm(self, "norm")

    def build(self, token_ids_shape, position_ids_shape=None):
        for table in (self.token_embedding, self.position_embedding):
            if not table.built:
                table.build(token_ids_shape)
        self.norm.build((None, None, self.hidden_dim))
        self.built = True

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "max_sequence_length": self.max_sequence_length,
            "dropout": self.dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
        }

    def _table(self, table_class, rows, name):
        return table_class(
            rows,
            self.hidden_dim,
            embeddings_initializer=self.embeddings_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )

    def _positions(self, position_ids, length):
        """Position vectors, those of the slots 0 to `length` - 1 by default."""
        if position_ids is None:
            position_ids = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        return self.position_embedding(position_ids)

    def _check_length(self, length):
        if isinstance(length, int) and length > self.max_sequence_length:
            raise ValueError(
                f"The input has {length} positions, the model takes at most "
                f"max_sequence_length={self.max_sequence_length}. Shorten or split the "
                "text, or build the model with a larger max_sequence_length."
            )


@keras.saving.register_keras_serializable(package="keras_tta")
class TTAEmbedding(_Embedding):
    """T-TA's two streams: queries that know a position, a memory that knows tokens.

    The memory is `LN(E[token] + P[position])`. The query is `LN(E[mask] + P[position])`
    with `query="mask"`, as the authors' code has it, or `LN(P[position])` with
    `query="position"`, as the paper's figure 2 draws it. Tables and normalisation are
    shared by the streams, their dropout is not.

    Args:
        vocabulary_size: V.
        hidden_dim: D.
        max_sequence_length: number of positions in the table.
        query: `"mask"` or `"position"`. Defaults to `"mask"`.
        mask_token_id: the id whose embedding starts the queries. Defaults to 4, that of
            the authors' vocabulary; unused with `query="position"`.
        dropout: share of units dropped in training. Defaults to 0.0.
        layer_norm_epsilon: defaults to 1e-12.
        embeddings_initializer: defaults to BERT's truncated normal.

    Call arguments:
        token_ids: (B, T) integers.
        position_ids: (B, T) integers; the slots 0 to T - 1 if left out.

    Returns:
        `(query, key_value)`, both (B, T, D).

    Raises:
        ValueError: if a size is out of range, or the input is longer than
            `max_sequence_length`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import TTAEmbedding

    embedding = TTAEmbedding(vocabulary_size=9, hidden_dim=4, max_sequence_length=8)
    query, key_value = embedding(np.array([[3, 7, 8, 1]]))
    assert tuple(query.shape) == tuple(key_value.shape) == (1, 4, 4)
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        max_sequence_length,
        query="mask",
        mask_token_id=4,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        embeddings_initializer="bert",
        **kwargs,
    ):
        super().__init__(
            vocabulary_size,
            hidden_dim,
            max_sequence_length,
            dropout=dropout,
            layer_norm_epsilon=layer_norm_epsilon,
            embeddings_initializer=embeddings_initializer,
            **kwargs,
        )
        check_one_of(self, ("mask", "position"), query=query)
        if query == "mask":
            check_token_ids(self, vocabulary_size, mask_token_id=mask_token_id)
        self.query = query
        self.mask_token_id = mask_token_id
        self.query_dropout = dropout_layer(self, "query_dropout")
        self.key_value_dropout = dropout_layer(self, "key_value_dropout")

    def call(self, token_ids, position_ids=None, training=None):
        self._check_length(token_ids.shape[1])
        return self.streams(self.token_embedding(token_ids), position_ids, training)

    def streams(self, token_vectors, position_ids=None, training=None):
        """Query and memory for token vectors (B, T, D) that were looked up before."""
        positions = self._positions(position_ids, ops.shape(token_vectors)[1])
        key_value = self.norm(token_vectors + positions)
        query = positions
        if self.query == "mask":
            mask_token = ops.full((1, 1), self.mask_token_id, dtype="int32")
            query = query + self.token_embedding(mask_token)
        query = ops.broadcast_to(self.norm(query), ops.shape(key_value))
        return (
            self.query_dropout(query, training=training),
            self.key_value_dropout(key_value, training=training),
        )

    def compute_output_spec(self, token_ids, position_ids=None, training=None):
        self._check_length(token_ids.shape[1])
        shape = (*token_ids.shape, self.hidden_dim)
        stream = keras.KerasTensor(shape, dtype=self.compute_dtype)
        return stream, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "query": self.query,
            "mask_token_id": self.mask_token_id,
        }


@keras.saving.register_keras_serializable(package="keras_tta")
class TransformerEmbedding(_Embedding):
    """BERT's input: `dropout(LN(E[token] + P[position] + S[segment]))`.

    Args:
        vocabulary_size: V.
        hidden_dim: D, the width of the tables.
        max_sequence_length: number of positions in the table.
        num_segments: number of segments in the table, 2 in BERT. Defaults to 0, for no
            such table.
        dropout: share of units dropped in training. Defaults to 0.0.
        layer_norm_epsilon: defaults to 1e-12.
        embeddings_initializer: defaults to BERT's truncated normal.
        token_embedding, position_embedding: another model's tables, to share them: a
            `keras.layers.ReversibleEmbedding` and an `Embedding`. They are not part of
            the config: who shares them shares them anew.

    Call arguments:
        token_ids: (B, T) integers.
        position_ids: (B, T) integers; the slots 0 to T - 1 if left out.
        segment_ids: (B, T) integers below `num_segments`; all 0 if left out.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if a size is out of range, the input longer than
            `max_sequence_length`, or segments come where there is no table for them.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import TransformerEmbedding

    embedding = TransformerEmbedding(
        vocabulary_size=9, hidden_dim=4, max_sequence_length=8, num_segments=2
    )
    token_ids = np.array([[5, 7, 6, 8, 6]])
    vectors = embedding(token_ids, segment_ids=np.array([[0, 0, 0, 1, 1]]))
    assert tuple(vectors.shape) == (1, 5, 4)
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        max_sequence_length,
        num_segments=0,
        dropout=0.0,
        layer_norm_epsilon=1e-12,
        embeddings_initializer="bert",
        **kwargs,
    ):
        super().__init__(
            vocabulary_size,
            hidden_dim,
            max_sequence_length,
            dropout=dropout,
            layer_norm_epsilon=layer_norm_epsilon,
            embeddings_initializer=embeddings_initializer,
            **kwargs,
        )
        self.num_segments = num_segments
        if num_segments != 0:
            check_positive_integers(self, num_segments=num_segments)
            self.segment_embedding = self._table(
                keras.layers.Embedding, num_segments, "segment_embedding"
            )
        self.output_dropout = dropout_layer(self, "output_dropout")

    def build(self, token_ids_shape, position_ids_shape=None, segment_ids_shape=None):
        super().build(token_ids_shape, position_ids_shape)
        if self.num_segments:
            self.segment_embedding.build(token_ids_shape)

    def call(self, token_ids, position_ids=None, segment_ids=None, training=None):
        self._check_length(token_ids.shape[1])
        vectors = self.token_embedding(token_ids)
        return self.stream(vectors, position_ids, segment_ids, training)

    def stream(self, token_vectors, position_ids=None, segment_ids=None, training=None):
        """The input for token vectors (B, T, D) that were looked up before."""
        if segment_ids is not None and not self.num_segments:
            raise ValueError(
                "`segment_ids` came, but the layer has no table for them: build it "
                "with `num_segments=2`, as in BERT."
            )
        vectors = token_vectors + self._positions(
            position_ids, ops.shape(token_vectors)[1]
        )
        if self.num_segments:
            if segment_ids is None:
                segment_ids = ops.zeros((1, 1), dtype="int32")
            vectors = vectors + self.segment_embedding(segment_ids)
        return self.output_dropout(self.norm(vectors), training=training)

    def compute_output_spec(
        self, token_ids, position_ids=None, segment_ids=None, training=None
    ):
        self._check_length(token_ids.shape[1])
        shape = (*token_ids.shape, self.hidden_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def copy(self, **tables):
        """A copy with weights of its own, but for the tables that are given."""
        copy = type(self).from_config({**self.get_config(), **tables})
        copy.build((None, None))
        copy.norm.set_weights(self.norm.get_weights())
        for name in ("token_embedding", "position_embedding", "segment_embedding"):
            if hasattr(self, name) and name not in tables:
                values = ops.convert_to_numpy(getattr(self, name).embeddings)
                getattr(copy, name).embeddings.assign(values)
        return copy

    def get_config(self):
        return {**super().get_config(), "num_segments": self.num_segments}
