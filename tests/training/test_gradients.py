import keras
import numpy as np
import pytest

from keras_tta.training.gradients import dense

BACKEND = keras.backend.backend()


def test_what_is_a_tensor_stays_one():
    grads = [keras.ops.ones((2, 3)), None]
    found = dense(iter(grads))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(found[0]), 1)
    assert found[1] is None


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Others have no lists of rows.")
def test_rows_of_a_repeated_id_are_summed():
    import tensorflow as tf

    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), [0, 2, 0], (3, 1))
    (found,) = dense([rows])
    assert isinstance(found, tf.Tensor)
    np.testing.assert_array_equal(found.numpy(), [[5.0], [0.0], [2.0]])
