"""Training that goes on where it stopped when the same command is run again."""

import contextlib
import time
import warnings

import keras

from keras_tta.checks import (
    check_one_of,
    check_positive,
    check_positive_integers,
)
from keras_tta.training.best_checkpoint import BestCheckpoint
from keras_tta.training.checkpoint_files import CheckpointError, CheckpointFolder
from keras_tta.training.gradients import optimizer_step
from keras_tta.training.processes import is_first_process, of_first_process
from keras_tta.training.signals import StopSignals
from keras_tta.training.training_state import (
    assign_arrays,
    check_arrays,
    check_same_training,
    describe,
    draw_as_data_loader,
    identity,
    read_arrays,
    restore_generators,
)


class TrainingCheckpoint(keras.callbacks.Callback):
    """Save all that training depends on, and go on from it when run again.

    When `fit` begins and the folder holds checkpoints, the newest is restored: weights,
    optimizer, step, every seed (those of dropout and of maskers, and PyTorch's own
    generators), the metrics of the epoch so far, the place in the data and the state of
    the `callbacks` given. On one machine, the run is then the one that would have been,
    bit for bit, on CPUs; on accelerators as far as their kernels are deterministic. A
    run that came to its end trains nothing more.

    A checkpoint is a folder: safetensors files, JSON, and SHA-256 sums of both. It is
    written beside, synced and renamed, so that a crash leaves the ones before it. One
    that is torn or altered is set aside with a warning, and the one before it is used.
    If the model, the optimizer, the data or a callback's settings have changed, `fit`
    raises and says what was and what is.

    SIGTERM and SIGINT (Ctrl-C) let the step, or the evaluation, end; then a checkpoint
    is saved and the signal takes its course, by default `SystemExit` or
    `KeyboardInterrupt`. A second one takes it at once.

    Put it first in `callbacks`. The model must be built before `fit`. Of several
    processes, the first looks and writes, and all read what it has found.

    Args:
        folder: str or path. One folder for each training.
        batches: what `fit` trains on, if it can go on in mid-epoch: a
            `keras_tta.data.TokenBatches`, or a `PyDataset` with its `next_step`,
            `batch(step)`, `fingerprint()` and `resume(step, skipped)`, after which its
            length is the rest of the epoch. With other data pass `None`: checkpoints
            are then saved between epochs only, and data in the same order in every
            epoch (`shuffle=False`) make the run exact.
        callbacks: callbacks of this `fit` whose state belongs to the run, such as
            `WallClockBudget` and `MetricsCSV`: any that have `get_state()`, which
            returns what JSON can hold, and `set_state(state)`.
        every_minutes: float or None. Minutes between checkpoints. Defaults to 10.
        every_steps: int or None. Steps between checkpoints, beside the minutes.
        keep: int. How many of the last checkpoints are kept. Defaults to 3.
        monitor: str or None. A value of an epoch's logs, such as
            `"val_nats_per_token"`: whenever it is better than before, a checkpoint is
            saved, and the best is kept beside the last ones.
        mode: `"min"` or `"max"`, what is better. Defaults to `"min"`.
        clock: a function without arguments that returns seconds. Defaults to
            `time.monotonic`.

    Raises:
        ValueError: an argument is out of range; or when training begins, if
            `steps_per_epoch` was given to `fit` and not to `batches`.
        CheckpointError: a checkpoint cannot be written, or does not belong to this
            training.

    Example:

    ```python
    import keras
    import keras_tta
    import numpy as np

    x, y = np.ones((8, 4)), np.ones((8, 1))


    def train(epochs):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("adam", loss="mse")
        checkpoint = keras_tta.training.TrainingCheckpoint("checkpoints")
        history = model.fit(
            x, y, epochs=epochs, shuffle=False, verbose=0, callbacks=[checkpoint]
        )
        return history.epoch


    assert train(epochs=2) == [0, 1]
    assert train(epochs=3) == [2]
    ```
    """

    def __init__(
        self,
        folder,
        batches=None,
        callbacks=(),
        every_minutes=10.0,
        every_steps=None,
        keep=3,
        monitor=None,
        mode="min",
        clock=time.monotonic,
    ):
        super().__init__()
        check_positive_integers(self, keep=keep)
        if every_steps is not None:
            check_positive_integers(self, every_steps=every_steps)
        if every_minutes is not None:
            check_positive(self, every_minutes=every_minutes)
        check_one_of(self, ("min", "max"), mode=mode)
        for callback in callbacks:
            if not (hasattr(callback, "get_state") and hasattr(callback, "set_state")):
                raise ValueError(
                    "`callbacks` are those with `get_state()` and `set_state(state)`. "
                    f"Received: a {type(callback).__name__}"
                )
        self._folder = CheckpointFolder(folder)
        self._batches = batches
        self._callbacks = callbacks
        self._every_seconds = 60 * (every_minutes or float("inf"))
        self._every_steps = every_steps or float("inf")
        self._keep = keep
        self._best = BestCheckpoint(monitor, mode)
        self._clock = clock
        self._signals = StopSignals()
        self._quiet = contextlib.ExitStack()

    def set_model(self, model):
        super().set_model(model)
        # Before any callback changes the learning rate.
        self._description = describe(model, self._batches, self._callbacks)

    def on_train_begin(self, logs=None):
        self._description["steps_per_epoch"] = self.params["steps"]
        if self._batches is not None and self.params["steps"] != len(self._batches):
            raise ValueError(
                "Give `steps_per_epoch` to the batches and not to `fit`: it cannot go "
                f"on within an epoch. Received: {self.params['steps']} steps an epoch, "
                f"of batches that have {len(self._batches)}."
            )
        if is_first_process():
            self._folder.prepare()
        self._restored = self._generators = None
        self._skipped = 0  # Steps of the first epoch that an earlier part has made.
        self._trained = self._saved_at = 0  # Steps that this part has made.
        self._tokens = 0
        self._best.found = None
        self._due = False
        if self._batches is not None:
            # Where the steps of the present epoch begin in the data.
            self._data_step = self._batches.next_step
        found = self._read_newest()
        if found:
            self._restore(*found)
        self._saved_time = self._clock()
        self._signals.install()

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._batch = epoch, self._skipped
        self._epoch_start = self._trained
        self._hand_out()
        self._in_rest = self._skipped > 0
        if self._in_rest:
            # Keras has counted on more batches.
            self._quiet.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Your input ran out of data")

    def on_train_batch_begin(self, batch, logs=None):
        # At a batch's beginning, when all callbacks have done with the one before; and
        # one at its end would make Keras wait for every step.
        if self._skipped and self._skipped + batch >= self.params["steps"]:
            # The rest of the epoch is over, as `fit` is about to find out; but on
            # TensorFlow a step without data is made by half before it does.
            raise StopIteration
        self._batch = self._skipped + batch
        self._trained = self._epoch_start + batch
        if self._generators is not None:
            # Iterating a torch DataLoader draws, too.
            restore_generators(self._generators)
            self._generators = None
        if self._signals.received is not None:
            self._stop()
        elif self._is_due() and self._can_save():
            self._save()

    def on_test_begin(self, logs=None):
        self._end_rest_of_epoch()

    def on_epoch_end(self, epoch, logs=None):
        self._end_rest_of_epoch()
        logs = logs or {}
        steps = self.model.steps_per_execution
        if self.params["steps"]:
            steps = min(steps, self.params["steps"] - self._batch)
        self._trained += steps
        if self._batches is not None:
            self._data_step += self.params["steps"]
        self._epoch, self._batch, self._skipped = epoch + 1, 0, 0
        self._tokens += int(logs.get("tokens", 0))
        if self._best.update(logs, optimizer_step(self.model)):
            self._due = True

    def on_train_end(self, logs=None):
        self._hand_out()
        if self._trained:
            self._save(in_epoch=False)
        if self._signals.received is not None:
            self._signals.deliver(self._signals.received)
        self._signals.uninstall()

    def restore_weights(self, model, which=None):
        """Give a model the weights of a checkpoint, and no more.

        Args:
            model: a model as the one that was trained, compiled or not.
            which: `"best"` or `"last"`. Defaults to the best if there is a `monitor`,
                and to the last otherwise.

        Returns:
            The step of the checkpoint.

        Raises:
            ValueError: `which` is none of these.
            CheckpointError: if there is none, or it does not fit the model.
        """
        if which is None:
            which = "last" if self._best.monitor is None else "best"
        check_one_of(self, ("best", "last"), which=which)
        found = self._folder.read_newest(set_aside=is_first_process())
        if found is None:
            raise CheckpointError(f"There is no checkpoint in {self._folder.path}.")
        step, arrays, state = found
        if which == "best":
            if state["best"] is None:
                raise CheckpointError(
                    f"No checkpoint in {self._folder.path} is known to be the best: "
                    "train with `monitor=...`, or ask for the last."
                )
            step = state["best"]["step"]
            arrays, _ = self._folder.read(step)
        check_arrays(model, arrays, ["model"])
        assign_arrays(model, arrays, "model")
        return step

    def roll_back(self, below=None):
        """Give model and optimizer the values of the last checkpoint, in mid-training.

        All else goes on: the data, the learning-rate schedule, the count of steps, and
        the seeds, so that nothing is drawn twice. A checkpoint of this is saved with
        the next step. Of several processes, all must call it.

        Args:
            below: int. Take a checkpoint of an earlier step than this.

        Returns:
            The step of the checkpoint, or None if there is none.
        """
        found = self._read_newest(below)
        if found is None:
            return None
        step, arrays, _ = found
        model = self.model
        check_arrays(model, arrays, ["model", "optimizer"])
        assign_arrays(model, arrays, "model", learned_only=True)
        assign_arrays(model, arrays, "optimizer", learned_only=True)
        self._due = True
        return step

    def _read_newest(self, below=None):
        """What the first process finds, in all: it alone sets damaged ones aside."""
        found = None
        if is_first_process():
            found = self._folder.read_newest(below)
        step = of_first_process(-1 if found is None else found[0])
        if found or step < 0:
            return found
        return step, *self._folder.read(step)

    def _restore(self, step, arrays, state):
        check_same_training(self._folder.path, state, self._description)
        model = self.model
        if state["batch"]:
            if len(model.metrics_variables) < len(arrays["metrics"]):
                # On TensorFlow, compiled metrics are built by the first batch.
                model.test_on_batch(*self._batches.batch(state["data_step"]))
            check_arrays(model, arrays, ["metrics"])
        check_arrays(model, arrays, ["model", "optimizer"])
        assign_arrays(model, arrays, "model")
        assign_arrays(model, arrays, "optimizer")
        assign_arrays(model, arrays, "guard")
        if state["in_epoch"]:
            self._generators = arrays["generators"]
        else:
            restore_generators(arrays["generators"])
        self._restored = arrays, state
        self._best.go_on_from(state["best"])
        self._tokens = state["tokens"] - state["epoch_tokens"]
        self._skipped = state["batch"]
        if self._batches is not None:
            self._batches.resume(state["data_step"], self._skipped)
            self._data_step = state["data_step"] - self._skipped
        # What Keras's own BackupAndRestore sets, too.
        model._initial_epoch = state["epoch"]
        if state["stopped"]:
            model._initial_epoch = self.params["epochs"]
        if self.params.get("verbose"):
            over = model._initial_epoch >= self.params["epochs"]
            what = "Training is finished, at" if over else "Going on from"
            print(f"{what} step {step} ({self._folder.path}).")

    def _hand_out(self):
        """Restore what Keras and the other callbacks reset when they begin."""
        self.model._initial_epoch = None  # Keras would begin the next `fit` there.
        if self._restored:
            arrays, state = self._restored
            if self._skipped:
                assign_arrays(self.model, arrays, "metrics")
            for callback, saved in zip(
                self._callbacks, state["callbacks"], strict=True
            ):
                callback.set_state(saved)
            self._restored = None

    def _end_rest_of_epoch(self):
        """Once, after an epoch of which an earlier part of the run has made some."""
        if self._in_rest:
            self._in_rest = False
            self._quiet.close()
            draw_as_data_loader()

    def _is_due(self):
        return (
            self._due
            or self._trained - self._saved_at >= self._every_steps
            or self._clock() - self._saved_time >= self._every_seconds
        )

    def _can_save(self):
        return self._batches is not None or self._batch == 0

    def _stop(self):
        if self._can_save():
            self._save()
        self._signals.deliver(self._signals.received)

    def _save(self, in_epoch=True):
        step = optimizer_step(self.model)
        counts = [m.result() for m in self.model.metrics if m.name == "tokens"]
        epoch_tokens = sum(int(count) for count in counts) if self._batch else 0
        state = {
            "step": step,
            "epoch": self._epoch,
            "batch": self._batch,
            "data_step": None,
            "tokens": self._tokens + epoch_tokens,
            "epoch_tokens": epoch_tokens,
            "in_epoch": in_epoch,
            "stopped": not in_epoch and bool(self.model.stop_training),
            "best": self._best.found,
            "callbacks": [callback.get_state() for callback in self._callbacks],
            **identity(self._description),
        }
        if self._batches is not None:
            state["data_step"] = self._data_step + self._batch
        if is_first_process():
            self._folder.write(step, read_arrays(self.model), state)
            self._folder.prune(self._keep, self._best.step)
        self._due = False
        self._saved_at, self._saved_time = self._trained, self._clock()
