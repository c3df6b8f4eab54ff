"""One clock for all processes."""

import pytest

from keras_tta.training import Devices, SharedClock

pytestmark = pytest.mark.agnostic


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_it_counts_from_the_beginning_of_training():
    clock = Clock()
    shared = SharedClock(Devices(), clock)
    clock.now += 5.0
    shared.on_train_begin()
    assert shared() == 0.0
    clock.now += 2.0
    assert shared() == 2.0


def test_of_several_processes_all_read_the_time_of_the_step(monkeypatch):
    monkeypatch.setattr(
        "keras_tta.training.shared_clock.of_first_process", lambda seconds: seconds
    )
    clock = Clock()
    shared = SharedClock(Devices(process_count=2), clock)
    shared.on_train_begin()
    clock.now += 2.0
    assert shared() == 0.0
    shared.on_train_batch_begin(0)
    assert shared() == 2.0
