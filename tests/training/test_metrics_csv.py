import csv

import keras
import numpy as np
import pytest

from keras_tta.training import MetricsCSV, TokenCount, read_metrics

X = np.ones((8, 1), "float32")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        self.now += 1.0
        return self.now


class CountingModel(keras.Model):
    """A model with a metric `tokens`: two of them in every example."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tokens = TokenCount()

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        self.tokens.update_state(keras.ops.full(keras.ops.shape(y)[:1], 2))
        return super().compute_loss(x, y, y_pred, sample_weight, training)


def make_model():
    inputs = keras.Input((1,))
    model = CountingModel(inputs, keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.25), loss="mse")
    return model


def fit(model, path, **arguments):
    history = MetricsCSV(path, clock=Clock())
    model.fit(X, X, batch_size=4, verbose=0, callbacks=[history], **arguments)
    return history


def test_a_row_an_epoch(tmp_path):
    path = tmp_path / "new" / "metrics.csv"
    history = fit(make_model(), path, epochs=2, validation_data=(X[:4], X[:4]))
    assert history.rows == read_metrics(path)
    assert [list(row) for row in history.rows] == [
        ["epoch", "step", "seconds", "tokens", "learning_rate", "loss", "val_loss"]
    ] * 2
    first, second = history.rows
    assert (first["epoch"], first["step"], first["tokens"]) == (1, 2, 16)
    assert (second["epoch"], second["step"], second["tokens"]) == (2, 4, 32)
    assert first["seconds"] < second["seconds"]
    assert first["learning_rate"] == 0.25
    assert not list(path.parent.glob("*.tmp"))


def test_training_that_goes_on_continues_the_file(tmp_path):
    path = tmp_path / "metrics.csv"
    model = make_model()
    fit(model, path, epochs=2)
    # A column that comes later is empty in the rows before it.
    fit(model, path, epochs=3, initial_epoch=2, validation_data=(X, X))
    rows = read_metrics(path)
    assert [row["step"] for row in rows] == [2, 4, 6]
    assert [row["tokens"] for row in rows] == [16, 32, 48]
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert ["val_loss" in row for row in rows] == [False, False, True]


def test_rows_of_an_undone_future_are_replaced_with_a_warning(tmp_path):
    path = tmp_path / "metrics.csv"
    fit(make_model(), path, epochs=3)
    with pytest.warns(UserWarning, match="has 3 rows past step 0"):
        fit(make_model(), path, epochs=1)
    assert [row["step"] for row in read_metrics(path)] == [2]


def test_a_model_without_tokens(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    assert "tokens" not in fit(model, tmp_path / "metrics.csv").rows[0]


def test_the_file_is_plain_csv(tmp_path):
    path = tmp_path / "metrics.csv"
    fit(make_model(), path)
    header, row = list(csv.reader(path.open()))
    assert header[:2] == ["epoch", "step"]
    assert row[:2] == ["1", "2"]


@pytest.mark.agnostic
def test_rows_that_are_not_safe_replace_none(tmp_path, monkeypatch):
    def full(handle):
        raise OSError("the disk is full")

    path = tmp_path / "metrics.csv"
    model = make_model()
    rows = fit(model, path).rows
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="full"):
        fit(model, path)
    assert read_metrics(path) == rows
