"""Where the two streams start."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import TTAEmbedding

TOKEN_IDS = np.array([[3, 7, 8, 1], [3, 7, 1, 0]])


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def make(**options):
    embedding = TTAEmbedding(9, 4, 6, **options)
    embedding.build((None, None))
    draw = np.random.default_rng(0)
    for weight in embedding.trainable_weights:
        weight.assign(draw.normal(size=weight.shape))
    return embedding


def norm(embedding, x):
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)
    return x * numpy(embedding.norm.gamma) + numpy(embedding.norm.beta)


@pytest.mark.parametrize("options", [{}, {"mask_token_id": 2}, {"query": "position"}])
@pytest.mark.parametrize("position_ids", [None, np.array([[0, 1, 0, 1], [5, 0, 1, 2]])])
def test_streams(options, position_ids):
    embedding = make(**options)
    tokens = numpy(embedding.token_embedding.embeddings)
    slots = np.arange(4)[None] if position_ids is None else position_ids
    positions = numpy(embedding.position_embedding.embeddings)[slots]
    query, key_value = map(numpy, embedding(TOKEN_IDS, position_ids=position_ids))
    expected = norm(embedding, tokens[TOKEN_IDS] + positions)
    np.testing.assert_allclose(key_value, expected, rtol=1e-4, atol=1e-5)
    start = 0 if "query" in options else tokens[options.get("mask_token_id", 4)]
    expected = np.broadcast_to(norm(embedding, start + positions), query.shape)
    np.testing.assert_allclose(query, expected, rtol=1e-4, atol=1e-5)


def test_streams_are_dropped_apart():
    embedding = make(dropout=0.5)
    query, key_value = map(numpy, embedding(TOKEN_IDS, training=True))
    assert 0 < (query == 0).mean() < 1 and 0 < (key_value == 0).mean() < 1
    assert not np.array_equal(query == 0, key_value == 0)
    # Nor is one row of queries dropped as another, though they start alike.
    assert not np.array_equal(query[0] == 0, query[1] == 0)
    still = make()
    for dropped, whole in zip((query, key_value), still(TOKEN_IDS), strict=True):
        kept = dropped != 0
        np.testing.assert_allclose(dropped[kept], 2 * numpy(whole)[kept], rtol=1e-5)


def test_looked_up_vectors_give_the_same_streams():
    embedding = make()
    streams = embedding.streams(embedding.token_embedding(TOKEN_IDS))
    for ours, expected in zip(streams, embedding(TOKEN_IDS), strict=True):
        np.testing.assert_array_equal(numpy(ours), numpy(expected))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_symbolic_is_eager(dtype):
    embedding = make(dtype=dtype)
    specs = embedding(keras.KerasTensor((None, None), dtype="int32"))
    for spec, eager in zip(specs, embedding(TOKEN_IDS), strict=True):
        assert spec.shape == (None, None, 4) and tuple(eager.shape) == (2, 4, 4)
        assert spec.dtype == keras.backend.standardize_dtype(eager.dtype)


def test_too_long():
    message = "7 positions, the model takes at most max_sequence_length=6. Shorten"
    embedding = make()
    with pytest.raises(ValueError, match=message):
        embedding(np.ones((1, 7), "int32"))
    with pytest.raises(ValueError, match=message):
        embedding(keras.KerasTensor((None, 7), dtype="int32"))


def test_config_round_trip():
    embedding = TTAEmbedding(
        9, 4, 6, query="position", mask_token_id=3, dropout=0.5, name="start"
    )
    saved = keras.saving.serialize_keras_object(embedding)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is TTAEmbedding
    assert again.get_config() == embedding.get_config()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"query": "token"}, "must be one of 'mask', 'position'.*query='token'"),
        ({"mask_token_id": 9}, "integers from 0 to 8.*mask_token_id=9"),
        ({"mask_token_id": -1}, "mask_token_id=-1"),
        ({"dropout": 2}, "dropout=2"),
        ({"hidden_dim": 0}, "hidden_dim=0"),
    ],
)
def test_arguments_out_of_range(options, message):
    sizes = {"vocabulary_size": 9, "hidden_dim": 4, "max_sequence_length": 6}
    with pytest.raises(ValueError, match=message):
        TTAEmbedding(**{**sizes, **options})
