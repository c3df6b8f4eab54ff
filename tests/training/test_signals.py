"""A training asked to stop finishes its step, saves, and goes on when run again."""

import signal

import pytest

from tests.training.interrupted_runs import (
    Interruption,
    assert_same,
    fit,
    interrupt,
    steps_in,
)
from tests.training.resumable_run import At


@pytest.fixture
def signals():
    """Whoever runs the tests keeps their handlers."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "number, exception",
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)],
)
def test_a_signal_lets_the_step_end_and_saves(
    tmp_path, whole, signals, number, exception
):
    with pytest.raises(exception) as raised:
        fit(tmp_path, At(7, lambda: signal.raise_signal(number)), every_steps=None)
    assert exception is KeyboardInterrupt or raised.value.code == 143
    assert steps_in(tmp_path) == [8]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert_same(fit(tmp_path), whole)


def test_a_signal_counts_after_a_fit_that_raised(tmp_path, whole, signals):
    for step in (1, 2):
        with pytest.raises(Interruption):
            fit(tmp_path, At(step, interrupt), every_steps=None)
    test_a_signal_lets_the_step_end_and_saves(
        tmp_path, whole, signals, signal.SIGINT, KeyboardInterrupt
    )


def test_a_second_signal_stops_at_once(tmp_path, signals):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, At(7, twice), every_steps=None)
    assert steps_in(tmp_path) == []


def test_after_an_exception_signals_are_what_they_were(tmp_path, signals):
    with pytest.raises(Interruption):
        fit(tmp_path, At(1, interrupt))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
