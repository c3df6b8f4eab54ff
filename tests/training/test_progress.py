import io
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from rich.console import Console

from keras_tta.training import Progress, TokenCount, WallClockBudget

X = np.ones((8, 1), "float32")


class Clock:
    """Half a second passes at every step and five while evaluating."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Tick(keras.callbacks.Callback):
    def __init__(self, clock, first=0.5):
        super().__init__()
        self.clock, self.step = clock, first

    def on_train_batch_end(self, batch, logs=None):
        self.clock.now += self.step
        self.step = 0.5

    def on_test_batch_end(self, batch, logs=None):
        self.clock.now += 5.0


class CountingModel(keras.Model):
    """A model with metrics `tokens`, 1000 in every example, and `nats_per_token`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tokens = TokenCount()
        self.nats = keras.metrics.Mean(name="nats_per_token")

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        self.tokens.update_state(keras.ops.full(keras.ops.shape(y)[:1], 1000))
        self.nats.update_state(4.25)
        return super().compute_loss(x, y, y_pred, sample_weight, training)


def train(
    model=None,
    terminal=False,
    interval=0.0,
    budget=None,
    batches=None,
    first=0.5,
    **fit,
):
    """Returns all that was written; a step is 4 examples."""
    if model is None:
        inputs = keras.Input((1,))
        model = CountingModel(inputs, keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.125), loss="mse")
    clock = Clock()
    if budget:
        budget._clock = clock
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=100)
    progress = Progress(budget, batches, interval, console, clock)
    callbacks = [*([budget] if budget else []), progress, Tick(clock, first)]
    fit = {"epochs": 2, "batch_size": 4, **fit}
    model.fit(X, X, callbacks=callbacks, **fit)
    return output.getvalue()


def test_plain_lines():
    lines = train(first=60.0, validation_data=(X[:3], X[:3])).splitlines()
    begun, step_1, evaluating = lines[:3]
    assert begun == "step 0/4  epoch 1/2  0:00 spent  compiling the first step"
    assert step_1.startswith("step 1/4  epoch 1/2  1:00 spent  loss ")
    assert "nats/token 4.25  lr 0.125" in step_1
    assert evaluating.startswith("step 2/4")
    assert evaluating.endswith("evaluating")
    # Before step 4: a second of training after the first step, five of evaluation.
    step_3 = lines[-4]
    assert step_3.startswith("step 3/4  epoch 2/2  1:06 spent  0:03 left  loss ")
    assert "held-out 4.25  lr 0.125  8k tokens/s" in step_3
    assert lines[-2:] == [
        "Trained 4 steps, 16k tokens in 1:12 (8k tokens/s).",
        "Held-out 4.25, best 4.25 at step 2.",
    ]


def test_lines_keep_their_distance():
    lines = train(epochs=20, interval=5.0).splitlines()
    assert [line.split("/")[0] for line in lines[:-1]] == [
        "step 0",
        "step 10",
        "step 20",
        "step 30",
    ]


def test_a_model_without_tokens():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    lines = train(model, validation_data=(X, X)).splitlines()
    assert "held-out" in lines[-4]
    assert lines[-2] == "Trained 4 steps in 0:22 (2 steps/s)."


def test_a_budget_gives_the_time_left():
    budget = WallClockBudget(10 / 60, 1.0)
    lines = train(budget=budget, epochs=1000).splitlines()
    assert lines[1].startswith("step 1  0:00 spent  0:10 left  loss ")
    assert lines[-1].startswith("Trained 20 steps, 80k tokens in 0:10")


def test_what_the_data_cost():
    batches = SimpleNamespace(padding_share=0.25, seconds=1.0)
    lines = train(batches=batches, first=2.0).splitlines()
    assert "padding" not in lines[0]
    assert lines[1].endswith("padding 25.0%  data 50.0%")
    batches = SimpleNamespace(seconds=1.0)
    line = train(batches=batches, first=2.0).splitlines()[1]
    assert line.endswith("  data 50.0%") and "padding" not in line


def test_a_generator_of_unknown_length():
    data = ((X[:4], X[:4]) for _ in range(3))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    output = io.StringIO()
    console = Console(file=output, width=100)
    progress = Progress(interval=0.0, console=console, clock=Clock())
    model.fit(data, callbacks=[progress])
    assert "step 1  0:00 spent  loss" in output.getvalue()


def test_a_terminal_gets_live_lines_and_its_cursor_back():
    written = train(terminal=True, validation_data=(X, X))
    assert "━" in written
    assert written.index("\x1b[?25l") < written.index("\x1b[?25h")
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h")
    assert "Trained 4 steps" in written.split("\x1b[?25h")[-1]


def test_kerass_own_bar_stays_away(capsys):
    train(verbose=1)
    assert capsys.readouterr().out == ""


def test_training_again_after_a_failure():
    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("stop here")

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    output = io.StringIO()
    progress = Progress(console=Console(file=output, force_terminal=True))
    with pytest.raises(RuntimeError, match="stop here"):
        model.fit(X, X, callbacks=[progress, Fail()])
    model.fit(X, X, callbacks=[progress])
    assert output.getvalue().count("\x1b[?25l") == output.getvalue().count("\x1b[?25h")


def test_evaluating_alone_shows_nothing():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    output = io.StringIO()
    progress = Progress(console=Console(file=output))
    model.evaluate(X, X, callbacks=[progress], verbose=0)
    model.predict(X, callbacks=[progress], verbose=0)
    assert output.getvalue() == ""
