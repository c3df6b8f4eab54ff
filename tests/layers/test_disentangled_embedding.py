"""A shared table without its gradient: the sum is read, the own table learns."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import DisentangledEmbedding
from tests.leakage.gradients import weight_gradients

IDS = np.array([[1, 3, 3]])


def numpy(x):
    return ops.convert_to_numpy(x)


def make():
    shared = keras.layers.Embedding(5, 2)
    embedding = DisentangledEmbedding(shared)
    embedding.build((None, None))
    return shared, embedding


def test_it_reads_the_sum_and_starts_as_the_shared():
    shared, embedding = make()
    assert np.array_equal(numpy(embedding(IDS)), numpy(shared(IDS)))
    embedding.own.assign(np.arange(10).reshape(5, 2))
    expected = numpy(shared.embeddings) + np.arange(10).reshape(5, 2)
    np.testing.assert_allclose(numpy(embedding(IDS)), expected[IDS], rtol=1e-6)
    logits = numpy(embedding(np.ones((1, 1, 2), "float32"), reverse=True))
    np.testing.assert_allclose(logits[0, 0], expected.sum(1), rtol=1e-5)


def test_it_teaches_its_own_table_alone():
    shared, embedding = make()
    weights = [embedding.own, shared.embeddings]

    def loss():
        return ops.sum(embedding(IDS)) + 0.0 * ops.sum(shared.embeddings)

    own, other = weight_gradients(loss, weights)
    assert np.array_equal(own, [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]])
    assert not other.any()


@pytest.mark.agnostic
def test_what_its_config_would_not_keep_is_refused():
    for option in ({"mask_zero": True}, {"tie_weights": False}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            DisentangledEmbedding(keras.layers.Embedding(5, 2), **option)


def test_config_round_trip():
    embedding = make()[1]
    embedding.trainable = False
    saved = keras.saving.serialize_keras_object(embedding)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is DisentangledEmbedding
    assert again.get_config() == embedding.get_config()
