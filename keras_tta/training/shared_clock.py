"""One clock for all processes of a training."""

import time

import keras

from keras_tta.training.processes import of_first_process


class SharedClock(keras.callbacks.Callback):
    """The clock of the first process, alike in all of them.

    What stops a training or sets its learning rate by the time must not do so in one
    process and not in another. Called, it returns the seconds since training began; in
    several processes, as they were when the present step did. Put it in `callbacks`
    before those that read it.

    Args:
        devices: the `Devices` that `distribute` returned.
        clock: a function without arguments that returns seconds. Defaults to
            `time.monotonic`.

    Example:
    ```python
    from keras_tta.training import Devices, SharedClock, WallClockBudget

    clock = SharedClock(Devices())
    budget = WallClockBudget(2.0, peak_learning_rate=1e-3, clock=clock)
    callbacks = [clock, budget]
    ```
    """

    def __init__(self, devices, clock=time.monotonic):
        super().__init__()
        self._devices = devices
        self._clock = clock
        self._start = clock()
        self._now = 0.0

    def __call__(self):
        if self._devices.process_count == 1:
            return self._clock() - self._start
        return self._now

    def on_train_begin(self, logs=None):
        self._start = self._clock()
        self._share()

    def on_train_batch_begin(self, batch, logs=None):
        self._share()

    def on_epoch_end(self, epoch, logs=None):
        self._share()

    def _share(self):
        if self._devices.process_count > 1:
            self._now = of_first_process(self._clock() - self._start)
