import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.training import AdamWeightDecay, WallClockBudget, WarmupLinearDecay


class Clock:
    """A clock that `Tick` moves: by `first` at the first step, by 1 at the others."""

    def __init__(self, first=1.0):
        self.now, self.first = 100.0, first

    def __call__(self):
        return self.now


class Tick(keras.callbacks.Callback):
    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def on_train_begin(self, logs=None):
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self.clock.now += self.clock.first if self.steps == 1 else 1.0


def train(budget, clock, jit_compile="auto", epochs=50, optimizer=None, batches=5):
    """Fits a weight whose gradient is always 1, so that it sums the rates used."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])
    model.compile(
        optimizer or keras.optimizers.SGD(7.0),
        loss=lambda y, prediction: prediction,
        jit_compile=jit_compile,
    )
    x = np.ones((batches, 1))
    tick = Tick(clock)
    model.fit(x, x, batch_size=1, epochs=epochs, verbose=0, callbacks=[tick, budget])
    return -float(model.get_weights()[0][0, 0]), tick.steps


def expected(budget, schedule_seconds):
    """The first step at a share of 0, then one a second until the share is 1."""
    shares = [0.0] + [second / schedule_seconds for second in range(schedule_seconds)]
    return sum(budget.learning_rate_at(share) for share in [*shares, 1.0])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_optimizer_uses_the_clocks_rates(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("Keras does not compile PyTorch unasked; it takes half a minute.")
    clock = Clock()
    budget = WallClockBudget(21 / 60, 1.0, warmup=0.2, clock=clock)
    total, steps = train(budget, clock, jit_compile)
    assert steps == 1 + 20 + 1
    assert total == pytest.approx(expected(budget, 20), abs=1e-5)


def test_compiling_counts_towards_the_budget_but_not_the_schedule():
    clock = Clock(first=100.0)
    budget = WallClockBudget(120 / 60, 1.0, warmup=0.25, clock=clock)
    total, steps = train(budget, clock)
    assert clock.now == 100.0 + 120.0 + 1.0
    assert steps == 1 + 20 + 1
    assert total == pytest.approx(expected(budget, 20), abs=1e-5)


def test_time_used_at_an_epochs_end_makes_no_further_step():
    clock = Clock()
    _, steps = train(WallClockBudget(21 / 60, 1.0, clock=clock), clock, batches=7)
    assert steps == 21


def test_the_shape_of_the_schedule():
    budget = WallClockBudget(1, 2.0, warmup=0.5)
    rates = [budget.learning_rate_at(share) for share in (0, 0.25, 0.5, 0.75, 1)]
    assert rates == [0.0, 1.0, 2.0, 1.0, 0.0]
    budget = WallClockBudget(1, 2.0, warmup=0.0)
    assert [budget.learning_rate_at(share) for share in (0, 0.5, 1)] == [2.0, 1.0, 0.0]


def test_the_rate_is_set_a_thousand_times_at_most(monkeypatch):
    clock = Clock()
    budget = WallClockBudget(2001 / 60, 1.0, clock=clock)
    sets = []
    set_learning_rate = budget._set_learning_rate
    monkeypatch.setattr(
        budget,
        "_set_learning_rate",
        lambda share: (sets.append(share), set_learning_rate(share)),
    )
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd")
    budget.set_model(model)
    budget.on_train_begin()
    for step in range(2003):
        budget.on_train_batch_begin(step)
        clock.now += 1.0
    assert 900 < len(sets) <= 1 + 1000
    assert (sets[0], sets[-1]) == (0.0, 1.0)
    assert model.stop_training


def test_share_and_seconds_left():
    clock = Clock()
    budget = WallClockBudget(11 / 60, 1.0, clock=clock)
    assert (budget.share, budget.seconds_left) == (0.0, None)
    train(budget, clock, epochs=1)
    assert budget.share == pytest.approx(0.4)
    assert budget.seconds_left == pytest.approx(6.0)
    train(budget, clock)
    assert (budget.share, budget.seconds_left) == (1.0, 0.0)


def test_state_of_the_optimizer_is_kept():
    clock = Clock()
    optimizer = AdamWeightDecay(1.0)
    _, steps = train(
        WallClockBudget(0.2, 1e-3, clock=clock), clock, optimizer=optimizer
    )
    assert int(ops.convert_to_numpy(optimizer.iterations)) == steps
    # 1 - 0.9**t is Adam's first moment of a gradient that is always 1.
    momentum = float(ops.convert_to_numpy(optimizer.variables[-2])[0, 0])
    assert momentum == pytest.approx(1 - 0.9**steps, rel=1e-5)


def test_a_budget_used_by_compiling_warns_and_stops():
    clock = Clock(first=1000.0)
    with pytest.warns(UserWarning, match="first step alone took longer than minutes=1"):
        _, steps = train(WallClockBudget(1, 1.0, clock=clock), clock)
    assert steps == 2


@pytest.mark.parametrize("rate", [WarmupLinearDecay(1.0, 1, 2), lambda: 1.0])
def test_an_optimizer_with_its_own_schedule_is_refused(rate):
    clock = Clock()
    with pytest.raises(ValueError, match="given a float.*Received: an? .*SGD"):
        train(
            WallClockBudget(1, 1.0, clock=clock),
            clock,
            optimizer=keras.optimizers.SGD(rate),
        )


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((0, 1.0), "minutes"),
        ((1, 0.0), "peak_learning_rate"),
        ((1, 1.0, 1.0), "warmup"),
        ((1, 1.0, -0.1), "warmup"),
    ],
)
def test_bad_numbers_are_named(arguments, named):
    with pytest.raises(ValueError, match=f"`{named}`.*Received: {named}="):
        WallClockBudget(*arguments)
