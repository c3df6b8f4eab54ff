"""BERT's input: tokens, positions and, where there is a table, segments."""

import keras
import numpy as np
import pytest

from keras_tta.layers import TransformerEmbedding

SIZES = {"vocabulary_size": 11, "hidden_dim": 4, "max_sequence_length": 6}
TOKEN_IDS = np.array([[3, 7, 7, 10], [0, 1, 9, 9]])


def make_embedding(**options):
    embedding = TransformerEmbedding(**{**SIZES, **options})
    embedding.build((None, None))
    draw = np.random.default_rng(0)
    for weight in embedding.weights:
        weight.assign(draw.normal(size=weight.shape))
    return embedding


def run(embedding, token_ids=TOKEN_IDS, **ids):
    return keras.ops.convert_to_numpy(embedding(token_ids, **ids))


def reference(embedding, positions, segments):
    tokens, places, gamma, beta, *more = [np.array(w) for w in embedding.weights]
    x = tokens[TOKEN_IDS] + places[positions]
    if more:
        x = x + more[0][segments]
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def test_without_segments():
    embedding = make_embedding()
    assert np.allclose(run(embedding), reference(embedding, np.arange(4), None), 1e-4)
    restarted = np.array([[0, 1, 0, 1], [0, 0, 1, 2]])
    output = run(embedding, position_ids=restarted)
    assert np.allclose(output, reference(embedding, restarted, None), 1e-4)


def test_with_segments():
    embedding = make_embedding(num_segments=2)
    segments = np.array([[0, 0, 1, 1], [0, 1, 1, 0]])
    output = run(embedding, segment_ids=segments)
    assert np.allclose(output, reference(embedding, np.arange(4), segments), 1e-4)
    first = np.zeros_like(segments)
    assert np.array_equal(run(embedding), run(embedding, segment_ids=first))


def test_the_config_makes_the_same_layer():
    embedding = TransformerEmbedding(**SIZES, num_segments=3, dropout=0.1)
    again = TransformerEmbedding.from_config(embedding.get_config())
    assert again.get_config() == embedding.get_config()


def test_shapes_are_known_before_values():
    embedding = TransformerEmbedding(**SIZES, dtype="mixed_bfloat16")
    output = embedding(keras.Input((None,), dtype="int32"))
    assert output.shape == (None, None, 4) and output.dtype == "bfloat16"
    assert run(embedding, np.zeros((2, 0), "int32")).shape == (2, 0, 4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`num_segments` .* positive integer"):
        TransformerEmbedding(**SIZES, num_segments=-1)
    with pytest.raises(ValueError, match="at most max_sequence_length=6"):
        run(make_embedding(), np.zeros((1, 7), "int32"))
    with pytest.raises(ValueError, match="num_segments=2"):
        run(make_embedding(), segment_ids=np.zeros_like(TOKEN_IDS))
