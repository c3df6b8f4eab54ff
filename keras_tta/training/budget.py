"""Training by the clock instead of by steps."""

import time
import warnings

import keras

from keras_tta.checks import check_fraction, check_positive
from keras_tta.training.gradients import optimizer_step

# The learning rate is set this many times in a budget, and no oftener: each time, the
# host waits for the device and, on JAX, moves the training state into the model.
_UPDATES = 1000


class WallClockBudget(keras.callbacks.Callback):
    """Stop training when its time is used, and let the learning rate end with it.

    The learning rate is a function of the share of the time used: linear warm-up to
    `peak_learning_rate`, then linear decay to 0. So a slow machine and a fast one
    both finish their schedule, and the number of steps need not be known: give `fit`
    more epochs than can be made.

    The budget runs from the beginning of `fit`, and the schedule from the end of the
    first step. So compiling counts towards the time used, which is a promise to whoever
    waits, and never eats the warm-up. Evaluations within `fit` count too; the one after
    the last step comes on top. A step in progress is finished.

    A `TrainingCheckpoint` that is given the budget saves the time used, so that a run
    in parts has one budget. Several processes would read several clocks: give each a
    `SharedClock`.

    Args:
        minutes: float. The budget.
        peak_learning_rate: float.
        warmup: float from 0 up to, not including, 1. Share of the time spent on the
            warm-up. Defaults to 0.05.
        clock: a function without arguments that returns seconds. Defaults to
            `time.monotonic`.

    Raises:
        ValueError: a number is out of range; or, when training begins, the optimizer
            follows a schedule of its own. Compile it with a float: any will do.

    Example:

    ```python
    import keras
    import keras_tta
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), loss="mse")
    x, y = np.ones((32, 4)), np.ones((32, 1))
    budget = keras_tta.training.WallClockBudget(0.01, peak_learning_rate=0.1)
    model.fit(x, y, epochs=1_000_000, verbose=0, callbacks=[budget])
    assert budget.share == 1.0
    ```
    """

    def __init__(self, minutes, peak_learning_rate, warmup=0.05, clock=time.monotonic):
        super().__init__()
        check_positive(self, minutes=minutes, peak_learning_rate=peak_learning_rate)
        check_fraction(self, warmup=warmup)
        self.minutes = minutes
        self.peak_learning_rate = peak_learning_rate
        self.warmup = warmup
        self._clock = clock
        self._deadline = None
        self._schedule_start = None

    @property
    def share(self):
        """Share of the schedule used, from 0.0 to 1.0."""
        if self._schedule_start is None:
            return 0.0
        length = self._deadline - self._schedule_start
        used = self._clock() - self._schedule_start
        return min(used / length, 1.0) if length > 0 else 1.0

    @property
    def seconds_left(self):
        """Seconds until the budget is used, at least 0.0; None before `fit`."""
        if self._deadline is None:
            return None
        return max(self._deadline - self._clock(), 0.0)

    def learning_rate_at(self, share):
        """The learning rate when `share` of the schedule is used."""
        if share < self.warmup:
            return self.peak_learning_rate * share / self.warmup
        return self.peak_learning_rate * (1.0 - share) / (1.0 - self.warmup)

    def get_state(self):
        """What `TrainingCheckpoint` saves: seconds used, and the schedule's place."""
        begin = self._deadline - 60.0 * self.minutes
        start = self._schedule_start
        return {
            "seconds_used": self._clock() - begin,
            "schedule_start": None if start is None else start - begin,
            "share_set": self._share_set,
        }

    def set_state(self, state):
        """Go on from `get_state()`, after `on_train_begin`."""
        begin = self._clock() - state["seconds_used"]
        self._deadline = begin + 60.0 * self.minutes
        if state["schedule_start"] is not None:
            self._schedule_start = begin + state["schedule_start"]
        self._set_learning_rate(state["share_set"])

    def get_config(self):
        return {
            "minutes": self.minutes,
            "peak_learning_rate": self.peak_learning_rate,
            "warmup": self.warmup,
        }

    def on_train_begin(self, logs=None):
        self._deadline = self._clock() + 60.0 * self.minutes
        self._schedule_start = None
        self._first_step_begun = False
        self._set_learning_rate(0.0)

    def on_train_batch_begin(self, batch, logs=None):
        # At a batch's beginning, because a callback at its end makes Keras wait for
        # every step's metrics before it sends the next one to the device.
        if not self._first_step_begun:
            self._first_step_begun = True
            return
        if self._schedule_start is None:
            self._wait_for_device()
            self._schedule_start = self._clock()
            if self._schedule_start >= self._deadline:
                warnings.warn(
                    f"The first step alone took longer than minutes={self.minutes}: "
                    "training stops almost untrained. Give it more time.",
                    stacklevel=2,
                )
        share = self.share
        if share == 1.0 or share - self._share_set >= 1.0 / _UPDATES:
            self._set_learning_rate(share)
            self._wait_for_device()
        if share == 1.0:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.share == 1.0:
            self.model.stop_training = True

    def _set_learning_rate(self, share):
        # On JAX a callback's `self.model` first takes the state back from the jitted
        # step, and the trainer then reads it again: so what is assigned is used.
        optimizer = self.model.optimizer
        try:
            optimizer.learning_rate = self.learning_rate_at(share)
        except (AttributeError, TypeError):
            raise ValueError(
                "WallClockBudget sets the learning rate, so the optimizer must be "
                "given a float (any will do) and not a schedule or a function. "
                f"Received: an {type(optimizer).__name__} with "
                f"learning_rate={optimizer.get_config()['learning_rate']!r}"
            ) from None
        self._share_set = share

    def _wait_for_device(self):
        # Steps are queued faster than an accelerator makes them; the clock is to
        # count those made.
        optimizer_step(self.model)
