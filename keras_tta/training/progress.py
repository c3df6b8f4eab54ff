"""What a person watches while a model trains."""

import atexit
import time

import keras
from keras import ops
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_REFRESH_SECONDS = 0.5


class Progress(keras.callbacks.ProgbarLogger):
    """Show how training goes: two live lines, or a plain line now and then.

    Shown are the step, the loss and the nats per token of the epoch so far, the latest
    held-out nats per token (`val_nats_per_token`, else `val_loss`), the learning rate,
    the speed, the time spent and the time left. The speed is in tokens per second if
    the model has a metric `tokens`, a `TokenCount`, and in steps per second otherwise;
    compiling the first step and evaluations are not in it. At the end, a summary.

    It takes the place of Keras's own bar. The metrics are read twice a second and not
    at every step, so that an accelerator is not kept waiting.

    Args:
        budget: `WallClockBudget` or None. Where given, the time left is the
            budget's and not an estimate from the number of steps.
        batches: the data, or None. Where it counts `padding_share` and `seconds`, as
            `keras_tta.data.TokenBatches` does, the share of padding and the share of
            the time that goes into making batches are shown. Made ahead in a thread,
            as on TensorFlow, they cost less than that.
        interval: float. Seconds between lines where the output is no terminal.
            Defaults to 10.
        console: `rich.console.Console` or None, to write elsewhere than to the
            standard output.
        clock: a function without arguments that returns seconds. Defaults to
            `time.monotonic`.

    Example:

    ```python
    import keras
    import keras_tta
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    x, y = np.ones((64, 4)), np.ones((64, 1))
    model.fit(x, y, epochs=2, callbacks=[keras_tta.training.Progress()])
    ```
    """

    # A ProgbarLogger keeps Keras from adding its own. The batch hooks are put back to
    # doing nothing: with any, Keras waits for a step's metrics before the next step.
    on_train_batch_end = keras.callbacks.Callback.on_train_batch_end
    on_test_batch_end = keras.callbacks.Callback.on_test_batch_end
    on_predict_begin = keras.callbacks.Callback.on_predict_begin
    on_predict_batch_end = keras.callbacks.Callback.on_predict_batch_end
    on_predict_end = keras.callbacks.Callback.on_predict_end

    def __init__(
        self,
        budget=None,
        batches=None,
        interval=10.0,
        console=None,
        clock=time.monotonic,
    ):
        super().__init__()
        self._budget = budget
        self._batches = batches
        self._interval = interval
        self._console = console or Console()
        self._clock = clock
        self._live = None
        self._training = False

    def set_params(self, params):
        self.params = params

    def on_train_begin(self, logs=None):
        self._training = True
        self._doing = "compiling the first step"
        self._step = self._epoch_start = 0
        self._first_step = None
        self._past_tokens = 0
        self._logs, self._held_out = {}, []
        self._started = self._clock()
        self._last_read = self._last_line = float("-inf")
        # Set when the first step is made: (seconds, steps, tokens) before the measure.
        self._baseline = None
        self._evaluation_seconds = 0.0
        self._start_live()

    def on_epoch_begin(self, epoch, logs=None):
        steps = self.params["steps"]
        if steps:
            # What goes on in mid-epoch has a rest of it to read.
            rest = getattr(self._batches, "num_batches", None) or steps
            self._step = (epoch + 1) * steps - rest
        self._epoch, self._epoch_start = epoch, self._step
        if self._first_step is None:
            self._first_step = self._step

    def on_train_batch_begin(self, batch, logs=None):
        self._batch, self._step = batch, self._epoch_start + batch
        self._measure()

    def on_test_begin(self, logs=None):
        if self._training:
            self._evaluation_start = self._clock()
            self._doing = "evaluating"
            self._step = self._epoch_end()
            self._show()

    def on_test_end(self, logs=None):
        if self._training:
            self._evaluation_seconds += self._clock() - self._evaluation_start
            self._doing = None

    def on_epoch_end(self, epoch, logs=None):
        self._step = self._epoch_end()
        self._logs = dict(logs or {})
        self._past_tokens += self._logs.pop("tokens", 0)
        held_out = self._logs.get("val_nats_per_token", self._logs.get("val_loss"))
        if held_out is not None:
            self._held_out.append((self._step, held_out))

    def on_train_end(self, logs=None):
        self._stop_live()
        self._training = False
        self._console.print(self._summary(), highlight=False)

    # === Measuring ===

    def _measure(self):
        first = self._baseline is None and self._step > self._first_step
        if first or self._clock() - self._last_read >= _REFRESH_SECONDS:
            self._learning_rate = _to_float(self.model.optimizer.learning_rate)
            if self._step > self._epoch_start:
                metrics = self.model.get_metrics_result()
                self._logs = {name: _to_float(value) for name, value in metrics.items()}
            self._last_read = self._clock()
            if first:
                self._doing = None
                self._baseline = (self._last_read, self._step, self._tokens)
            self._show()

    def _epoch_end(self):
        steps = self._batch + self.model.steps_per_execution
        return self._epoch_start + min(steps, self.params["steps"] or steps)

    @property
    def _tokens(self):
        return self._past_tokens + self._logs.get("tokens", 0)

    def _measured(self):
        """Seconds of training, steps and tokens since the first step."""
        if self._baseline is None:
            return 0.0, 0, 0
        seconds, steps, tokens = self._baseline
        seconds = self._clock() - seconds - self._evaluation_seconds
        return seconds, self._step - steps, self._tokens - tokens

    def _total_steps(self):
        steps = self.params["steps"]
        return steps * self.params["epochs"] if steps and not self._budget else None

    def _seconds_left(self):
        if self._budget:
            return self._budget.seconds_left
        seconds, steps, _ = self._measured()
        total = self._total_steps()
        if not total or not steps:
            return None
        # Evaluations to come take their share as those before did.
        seconds += self._evaluation_seconds
        return seconds / steps * (total - self._step)

    def _speed(self):
        seconds, steps, tokens = self._measured()
        if seconds <= 0 or steps <= 0:
            return None
        if tokens > 0:
            return f"{_short(tokens / seconds)} tokens/s"
        return f"{_short(steps / seconds)} steps/s"

    # === Showing ===

    def _where(self):
        total = self._total_steps()
        parts = [f"step {self._step:,}" + (f"/{total:,}" if total else "")]
        if self.params["epochs"] > 1 and not self._budget:
            parts.append(f"epoch {self._epoch + 1}/{self.params['epochs']}")
        parts.append(f"{_duration(self._clock() - self._started)} spent")
        left = self._seconds_left()
        if left is not None:
            parts.append(f"{_duration(left)} left")
        return "  ".join(parts)

    def _numbers(self):
        parts = []
        if "loss" in self._logs:
            parts.append(f"loss {self._logs['loss']:.4g}")
        if "nats_per_token" in self._logs:
            parts.append(f"nats/token {self._logs['nats_per_token']:.4g}")
        if self._held_out:
            parts.append(f"held-out {self._held_out[-1][1]:.4g}")
        if self._step > 0:
            parts.append(f"lr {self._learning_rate:.3g}")
        parts.append(self._doing or self._speed())
        padding = getattr(self._batches, "padding_share", None)
        seconds = getattr(self._batches, "seconds", None)
        if padding is not None and not self._doing:
            parts.append(f"padding {padding:.1%}")
        if seconds is not None and not self._doing:
            spent = max(self._clock() - self._started, 1e-9)
            parts.append(f"data {seconds / spent:.1%}")
        return "  ".join(filter(None, parts))

    def _summary(self):
        done = f"{self._step - (self._first_step or 0):,} steps"
        if self._tokens:
            done += f", {_short(self._tokens)} tokens"
        speed = f" ({self._speed()})" if self._speed() else ""
        spent = _duration(self._clock() - self._started)
        lines = [f"Trained {done} in {spent}{speed}."]
        if self._held_out:
            step, best = min(self._held_out, key=lambda pair: pair[1])
            last = self._held_out[-1][1]
            lines.append(f"Held-out {last:.4g}, best {best:.4g} at step {step:,}.")
        return "\n".join(lines)

    def _render(self):
        if self._budget:
            done = self._budget.share
        else:
            done = self._step / self._total_steps() if self._total_steps() else None
        bar = ProgressBar(total=None if done is None else 1.0, completed=done or 0.0)
        bar.width = 24
        head = Table.grid(padding=(0, 2))
        head.add_row(bar, Text(self._where(), no_wrap=True, overflow="ellipsis"))
        return Group(head, Text(self._numbers(), no_wrap=True, overflow="ellipsis"))

    def _show(self):
        if self._live:
            self._live.update(self._render(), refresh=True)
        elif self._clock() - self._last_line >= self._interval:
            self._last_line = self._clock()
            line = f"{self._where()}  {self._numbers()}"
            self._console.print(line, highlight=False, soft_wrap=True)

    def _start_live(self):
        self._stop_live()
        if self._console.is_interactive or self._console.is_jupyter:
            # No thread of its own: it would go on after an exception in `fit`.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
            # Gives the terminal its cursor back if `fit` never ends.
            atexit.register(self._live.stop)

    def _stop_live(self):
        if self._live:
            self._live.stop()
            atexit.unregister(self._live.stop)
            self._live = None


def _to_float(value):
    return float(ops.convert_to_numpy(value))


def _short(number):
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
