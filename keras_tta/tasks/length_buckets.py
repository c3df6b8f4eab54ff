"""Batches of rows of like length, in few shapes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Bucket(NamedTuple):
    """Rows that go through the model together.

    Args:
        rows: numbers of the rows, at most `shape[0]`.
        shape: (B, T) of the batch; what `rows` leaves of it is padding.
    """

    rows: np.ndarray
    shape: tuple[int, int]


def bucket_widths(longest: int) -> tuple[int, ...]:
    """The widths rows are padded to: 16, 24, 32, 40, 48, 64, 80, 96, 128 and so on.

    Three to an octave: about a tenth of a batch is padding, and XLA compiles few
    shapes.
    """
    widths, octave = [], 16
    while octave < longest:
        widths += [w for w in (octave, octave * 5 // 4, octave * 3 // 2) if w % 8 == 0]
        octave *= 2
    return (*(width for width in widths if width < longest), longest)


def length_buckets(
    lengths: np.ndarray, widths: tuple[int, ...], batch_size: int
) -> Iterator[Bucket]:
    """Divide rows into batches, the widest first.

    A row's width depends on its own length alone, so that its score cannot depend on
    which rows come with it. The last batch of a width has 1, 4, 16, 64, ... or
    `batch_size` rows, whichever is the least that will do.

    Args:
        lengths: lengths of the rows, none above the largest width.
        widths: ascending.
        batch_size: most rows in a batch.
    """
    width_of_row = np.searchsorted(widths, lengths)
    for number in reversed(range(len(widths))):
        rows = np.flatnonzero(width_of_row == number)
        for start in range(0, len(rows), batch_size):
            part = rows[start : start + batch_size]
            height = 1
            while height < len(part):
                height *= 4
            yield Bucket(part, (min(height, batch_size), widths[number]))
