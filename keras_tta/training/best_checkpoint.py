"""Which checkpoint of a run is the best, by a value of an epoch's logs."""

import math
import warnings


class BestCheckpoint:
    """The best checkpoint so far.

    Args:
        monitor: the name of the value, or None for no best.
        mode: `"min"` or `"max"`, what is better.

    Attributes:
        found: dict of its `value` and `step`, and of the `monitor` and `mode` by which
            it is the best; or None.
    """

    def __init__(self, monitor, mode):
        self.monitor = monitor
        self.criterion = {"monitor": monitor, "mode": mode}
        self.found = None

    @property
    def step(self):
        return None if self.found is None else self.found["step"]

    def go_on_from(self, found):
        """Take over what an earlier part of the run found, by the same criterion."""
        if found and found.items() >= self.criterion.items():
            self.found = found

    def update(self, logs, step):
        """Take an epoch's value; return whether `step` is now the best."""
        if self.monitor is None:
            return False
        if self.monitor not in logs:
            warnings.warn(
                f"monitor={self.monitor!r} is not among the epoch's logs: "
                f"{', '.join(logs)}.",
                stacklevel=2,
            )
            return False
        value = float(logs[self.monitor])
        if math.isnan(value):
            return False
        if self.found is not None:
            best, lower = self.found["value"], self.criterion["mode"] == "min"
            if not (value < best if lower else value > best):
                return False
        self.found = {"value": value, "step": step, **self.criterion}
        return True
