"""The history of a run as a CSV file."""

import csv
import os
import time
import warnings

import keras
from keras import ops

from keras_tta.files import replace_file
from keras_tta.training.gradients import optimizer_step


class MetricsCSV(keras.callbacks.Callback):
    """Write a row an epoch: `epoch, step, seconds, tokens, learning_rate`, every log.

    `step` is the optimizer's. `seconds` and `tokens` count from the beginning of the
    run, evaluations included in the seconds; `tokens` is there if the model has a
    metric of that name, a `TokenCount`.

    The file always tells one run, and it is replaced as a whole: a reader or a crash
    never meets half a row, and a column may appear later than others. Training that
    goes on from a step in the file continues it; rows past that step are replaced,
    with a warning.

    Args:
        path: str or path. Its folder is made if need be.
        clock: a function without arguments that returns seconds. Defaults to
            `time.monotonic`.

    Attributes:
        rows: list of dicts, the file's content.

    Example:

    ```python
    import keras
    import keras_tta
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    history = keras_tta.training.MetricsCSV("runs/metrics.csv")
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=[history])
    assert history.rows[-1]["step"] == 1
    ```
    """

    def __init__(self, path, clock=time.monotonic):
        super().__init__()
        self.path = os.fspath(path)
        self.rows = []
        self._clock = clock

    def on_train_begin(self, logs=None):
        os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        step = optimizer_step(self.model)
        found = read_metrics(self.path) if os.path.exists(self.path) else []
        self.rows = [row for row in found if row.get("step", 0) <= step]
        if len(self.rows) < len(found):
            warnings.warn(
                f"{self.path} has {len(found) - len(self.rows)} rows past step {step}, "
                "where this training begins. They will be replaced.",
                stacklevel=2,
            )
        last = self.rows[-1] if self.rows else {}
        self._tokens = last.get("tokens", 0)
        self._start = self._clock() - last.get("seconds", 0.0)

    def get_state(self):
        """What `TrainingCheckpoint` saves: the rows, and the seconds so far."""
        return {"rows": self.rows, "seconds": self._clock() - self._start}

    def set_state(self, state):
        """Go on from `get_state()`, after `on_train_begin`."""
        self.rows = state["rows"]
        self._tokens = self.rows[-1].get("tokens", 0) if self.rows else 0
        self._start = self._clock() - state["seconds"]

    def on_epoch_end(self, epoch, logs=None):
        logs = dict(logs or {})
        row = {
            "epoch": epoch + 1,
            "step": optimizer_step(self.model),
            "seconds": round(self._clock() - self._start, 3),
        }
        if "tokens" in logs:
            self._tokens += int(logs.pop("tokens"))
            row["tokens"] = self._tokens
            # How many tokens the evaluation saw is the same every time.
            logs.pop("val_tokens", None)
        row["learning_rate"] = float(
            ops.convert_to_numpy(self.model.optimizer.learning_rate)
        )
        self.rows.append({**row, **logs})
        self._write()

    def _write(self):
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        with replace_file(self.path) as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)


def read_metrics(path):
    """Read a file of `MetricsCSV` into a list of dicts of numbers.

    An empty cell is left out of its row.

    Args:
        path: str or path.

    Returns:
        list of dicts from column to int or float (or str, where it is no number).

    Example:

    ```python
    import keras_tta

    with open("metrics.csv", "w") as file:
        file.write("step,loss,val_loss\\n10,2.5,\\n")
    assert keras_tta.training.read_metrics("metrics.csv") == [{"step": 10, "loss": 2.5}]
    ```
    """
    with open(path, newline="", encoding="utf-8") as file:
        return [
            {name: _number(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file)
        ]


def _number(cell):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell
