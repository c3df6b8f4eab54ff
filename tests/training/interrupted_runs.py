"""A small model of numbers, trained in one go or in parts."""

import keras
import numpy as np
import pytest

from keras_tta.training import MetricsCSV, TrainingCheckpoint
from tests.training.resumable_run import EPOCHS, At, NumberBatches


class Interruption(Exception):
    pass


def interrupt():
    raise Interruption


def make_model(units=3, rate=0.01):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(units), keras.layers.Dropout(0.5)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), loss="mse", metrics=["mae"])
    return model


def fit(folder, *callbacks, model=None, batches=None, epochs=EPOCHS, **settings):
    """Trains a small model of numbers; returns weights and the epochs' losses."""
    model = model or make_model()
    batches = batches or NumberBatches()
    metrics = MetricsCSV(folder / "metrics.csv")
    settings = {"every_steps": 2, "callbacks": [metrics], **settings}
    checkpoint = TrainingCheckpoint(folder / "checkpoints", batches, **settings)
    model.fit(
        batches,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[checkpoint, *callbacks, metrics],
    )
    return model.get_weights(), [(row["loss"], row["mae"]) for row in metrics.rows]


def fit_in_parts(folder, step, action=interrupt, exception=Interruption):
    with pytest.raises(exception):
        fit(folder, At(step, action))
    return fit(folder)


def assert_same(found, expected):
    for a, b in zip(found[0], expected[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert found[1] == expected[1]


def steps_in(folder):
    return [int(path.name[5:]) for path in sorted(folder.glob("checkpoints/step-*"))]
