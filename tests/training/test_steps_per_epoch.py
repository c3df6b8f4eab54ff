import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.training import count_steps

X = np.zeros((10, 3), "float32")


class Batches(keras.utils.PyDataset):
    @property
    def num_batches(self):
        return 7

    def __getitem__(self, index):
        return X, X


class Endless(Batches):
    num_batches = None


def steps_made(x, batch_size=None, steps_per_epoch=None):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", loss="mse")
    y = X if batch_size else None
    model.fit(x, y, batch_size, steps_per_epoch=steps_per_epoch, verbose=0)
    return int(ops.convert_to_numpy(model.optimizer.iterations))


@pytest.mark.parametrize(
    "batch_size, steps", [(1, 10), (3, 4), (5, 2), (10, 1), (11, 1)]
)
def test_arrays(batch_size, steps):
    assert count_steps(X, batch_size) == steps == steps_made(X, batch_size)
    assert count_steps({"a": X, "b": (X, [X, None])}, batch_size) == steps
    assert count_steps(ops.convert_to_tensor(X), batch_size) == steps


def test_the_default_batch_size_is_that_of_fit():
    assert count_steps(np.zeros((65, 2))) == 3


def test_examples_set_aside_are_not_counted():
    assert count_steps(X, 1, validation_split=0.25) == 7
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", loss="mse")
    model.fit(X, X, batch_size=1, validation_split=0.25, verbose=0)
    assert int(ops.convert_to_numpy(model.optimizer.iterations)) == 7


def test_a_given_number_wins():
    assert count_steps(X, 1, steps_per_epoch=3) == 3
    assert count_steps((x for x in [X]), steps_per_epoch=3) == 3


def test_py_dataset():
    assert count_steps(Batches()) == 7 == steps_made(Batches())
    assert count_steps(Endless()) is None


def test_generator():
    assert count_steps((X, X) for _ in range(3)) is None


def test_tf_data():
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices((X, X))
    assert count_steps(data.batch(3)) == 4 == steps_made(data.batch(3))
    assert count_steps(data.batch(3, drop_remainder=True)) == 3
    assert count_steps(data.repeat()) is None
    unknown = tf.data.experimental.assert_cardinality(tf.data.UNKNOWN_CARDINALITY)
    assert count_steps(data.apply(unknown)) is None


def test_grain():
    grain = pytest.importorskip("grain")
    data = grain.MapDataset.source([(x, x) for x in X]).batch(3)
    # Keras does not ask Grain for its length: on TensorFlow it would make a step more.
    assert count_steps(data) == 4 == steps_made(data, steps_per_epoch=4)
    assert count_steps(data.repeat(2)) == 8
    assert count_steps(data.repeat()) is None
    assert count_steps(data.to_iter_dataset()) is None


def test_torch_loader():
    torch = pytest.importorskip("torch")

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(x, x) for x in X])

    loader = torch.utils.data.DataLoader([(x, x) for x in X], batch_size=3)
    assert count_steps(loader) == 4 == steps_made(loader)
    assert count_steps(torch.utils.data.DataLoader(Stream(), batch_size=3)) is None


def test_libraries_that_cannot_be_imported(monkeypatch):
    for name in ("tensorflow", "grain", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    assert count_steps(X, 5) == 2


@pytest.mark.parametrize("x", [None, {}, "text", 3, [1, 2], object(), np.float32(1)])
def test_anything_else_is_refused(x):
    with pytest.raises(TypeError, match=f"Received: {type(x).__name__}"):
        count_steps(x)


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match=r"Received lengths: \[10, 11\]"):
        count_steps({"a": X, "b": np.zeros((11, 3))})
    with pytest.raises(ValueError, match="batch_size=0"):
        count_steps(X, batch_size=0)
    with pytest.raises(ValueError, match="steps_per_epoch=0"):
        count_steps(X, steps_per_epoch=0)
