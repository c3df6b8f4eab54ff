"""How every benchmark here reports: a line on the screen, rows of a CSV file."""

import csv
import time
from pathlib import Path

import numpy as np


def report(rows, path=None):
    """Print rows, a dict each, and append them to a CSV file if there is a path."""
    rows = [{name: _rounded(value) for name, value in row.items()} for row in rows]
    for row in rows:
        print(*(f"{name}={value}" for name, value in row.items()), sep="  ", flush=True)
    if path:
        append_rows(Path(path), rows)


def append_rows(path, rows):
    """Append rows to a CSV file whose columns are theirs."""
    columns = list({name: None for row in rows for name in row})
    is_new = not path.exists()
    with path.open("a+", newline="") as file:
        file.seek(0)
        if not is_new and next(csv.reader(file)) != columns:
            raise SystemExit(f"{path} has other columns: give another file.")
        writer = csv.DictWriter(file, columns)
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def median_seconds(calls, repeats, untimed=1):
    """Medians of several calls' times, which take turns: they meet one machine.

    Args:
        calls: dict from name to a function without arguments.
        repeats: how often each is timed.
        untimed: how often each is called before, to compile.
    """
    seconds = {name: [] for name in calls}
    for number in range(untimed + repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if number >= untimed:
                seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(times)) for name, times in seconds.items()}


def _rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value
