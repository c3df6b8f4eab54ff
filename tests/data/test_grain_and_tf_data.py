import keras
import numpy as np
import pytest

from keras_tta.data import TokenBatches, to_grain, to_tf_data

ROWS = [[i] * (1 + i % 13) for i in range(10, 110)]
OPTIONS = [{}, {"bucket_lengths": (6, 10)}, {"packed": True}, {"remainder": "keep"}]


def grain_batches(batches, epochs):
    pytest.importorskip("grain")
    dataset = to_grain(batches, epochs)
    assert len(dataset) == epochs * len(batches)
    return list(dataset.to_iter_dataset())


def tf_data_batches(batches, epochs):
    pytest.importorskip("tensorflow")
    dataset = to_tf_data(batches, epochs)
    assert int(dataset.cardinality()) == epochs * len(batches)
    return list(dataset.as_numpy_iterator())


@pytest.mark.agnostic
@pytest.mark.parametrize("convert", [grain_batches, tf_data_batches])
@pytest.mark.parametrize("options", OPTIONS)
def test_every_conversion_gives_the_same_batches(convert, options):
    batches = TokenBatches(ROWS, 8, 16, first_step=5, **options)
    found = convert(batches, epochs=2)
    assert len(found) == 2 * len(batches)
    for step, (batch,) in enumerate(found, start=5):
        (expected,) = batches.batch(step)
        assert batch.keys() == expected.keys()
        for name, array in expected.items():
            assert batch[name].dtype == array.dtype
            np.testing.assert_array_equal(batch[name], array)


@pytest.mark.parametrize("convert", [to_grain, to_tf_data])
def test_fit_takes_them(convert):
    pytest.importorskip({to_grain: "grain", to_tf_data: "tensorflow"}[convert])
    batches = TokenBatches(ROWS, 8, 16)
    names = ("token_ids", "padding_mask")
    inputs = {name: keras.Input((16,), dtype="int32", name=name) for name in names}
    outputs = keras.layers.Embedding(128, 1)(inputs["token_ids"])
    mask = keras.ops.cast(inputs["padding_mask"], "float32")[..., None]

    class Model(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.mean(y_pred**2)

    model = Model(inputs, outputs * mask)
    model.compile("sgd")
    history = model.fit(
        convert(batches, 2),
        epochs=2,
        steps_per_epoch=len(batches),
        shuffle=False,
        verbose=0,
    )
    assert len(history.history["loss"]) == 2
    assert int(model.optimizer.iterations) == 2 * len(batches)
