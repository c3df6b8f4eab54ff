"""Packing: several sequences in a row, almost no padding."""

from collections import defaultdict

import numpy as np

from keras_tta.data.orders import random_order
from keras_tta.data.sequences import span_indices


def pack(lengths: np.ndarray, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Assign sequences to rows of `width` slots, best fit of the longest first.

    Works on the histogram of lengths (as Krell et al., 2021, do), so that the time to
    plan depends on `width` more than on the number of sequences. Which of the sequences
    of a length goes where is random, by `seed`.

    Returns:
        `(offsets, members)`: row `r` holds the sequences
        `members[offsets[r]:offsets[r + 1]]`.

    Example:
    ```python
    import numpy as np
    from keras_tta.data.packing import pack

    offsets, members = pack(np.array([3, 5, 2, 4, 6]), width=10, seed=0)
    assert len(offsets) - 1 == 2
    assert sorted(members) == [0, 1, 2, 3, 4]
    ```
    """
    lengths = np.asarray(lengths)
    shuffled = random_order(len(lengths), seed, 0, 0)
    by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    counts = np.bincount(lengths, minlength=width + 1)
    next_of_length = np.cumsum(counts) - counts
    rows, sizes = [], []
    for kinds, number in plan_rows(counts, width):
        row = np.empty((number, len(kinds)), np.int64)
        for slot, length in enumerate(kinds):
            start = next_of_length[length]
            row[:, slot] = by_length[start : start + number]
            next_of_length[length] += number
        rows.append(row.ravel())
        sizes.append(np.full(number, len(kinds)))
    sizes = np.concatenate([np.empty(0, np.int64), *sizes])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return offsets, np.concatenate([np.empty(0, np.int64), *rows])


def plan_rows(counts: np.ndarray, width: int) -> list[tuple[tuple[int, ...], int]]:
    """Which lengths go together: a list of (lengths in a row, number of such rows).

    `counts[length]` sequences have that length. The longest go first, each into the
    fullest rows that have room for it.
    """
    with_room = defaultdict(list)
    for length in range(width, 0, -1):
        left = int(counts[length])
        for room in range(length, width):
            if not left:
                break
            for kinds, number in with_room.pop(room, ()):
                copies = room // length
                whole = min(number, left // copies)
                rest = min(left - whole * copies, copies - 1) if whole < number else 0
                for take, rows in ((copies, whole), (rest, min(rest, 1))):
                    if rows:
                        kept = (*kinds, *[length] * take)
                        with_room[room - length * take].append((kept, rows))
                        left -= take * rows
                        number -= rows
                if number:
                    with_room[room].append((kinds, number))
        copies = width // length
        for take, rows in ((copies, left // copies), (left % copies, 1)):
            if take and rows:
                with_room[width - length * take].append(((length,) * take, rows))
    return [row for room in sorted(with_room) for row in with_room[room]]


def one_a_row(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The plan, in the form of `pack`, that packs nothing."""
    return np.arange(count + 1), np.arange(count)


class RowPlan:
    """Rows of sequences: who is in a row, and the arrays that a batch of them makes.

    Args:
        starts: (sequences,) integers, where in `tokens` a sequence begins.
        lengths: (sequences,) integers, without special tokens.
        offsets: (rows + 1,) integers, as from `pack`.
        members: (sequences,) integers, as from `pack`.
        start_token_id: int or `None`.
        end_token_id: int or `None`.
        pad_token_id: int.
    """

    def __init__(
        self,
        starts,
        lengths,
        offsets,
        members,
        start_token_id,
        end_token_id,
        pad_token_id,
    ):
        self.starts = starts
        self.lengths = lengths
        self.offsets = offsets
        self.members = members
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id
        self.pad_token_id = pad_token_id
        self.slots = lengths + (start_token_id is not None) + (end_token_id is not None)

    def __len__(self):
        return len(self.offsets) - 1

    def row_lengths(self) -> np.ndarray:
        """(rows,) the real tokens of every row, special tokens included."""
        ends = np.concatenate([[0], np.cumsum(self.slots[self.members])])[self.offsets]
        return np.diff(ends)

    def fill(self, tokens, rows: np.ndarray, width: int) -> dict[str, np.ndarray]:
        """The arrays (rows, width) of a batch: padded, with segments and positions."""
        sizes = self.offsets[rows + 1] - self.offsets[rows]
        members = self.members[span_indices(self.offsets[rows], sizes)]
        slots, lengths = self.slots[members], self.lengths[members]
        first = np.cumsum(sizes) - sizes
        before = np.cumsum(slots) - slots
        begins = before + np.repeat(np.arange(len(rows)) * width - before[first], sizes)
        real = span_indices(begins, slots)

        names = ("token_ids", "segment_ids", "position_ids")
        batch = {name: np.zeros(len(rows) * width, np.int32) for name in names}
        token_ids = batch["token_ids"]
        token_ids[:] = self.pad_token_id
        has_start = self.start_token_id is not None
        token_ids[span_indices(begins + has_start, lengths)] = tokens.take(
            span_indices(self.starts[members], lengths)
        )
        if has_start:
            token_ids[begins] = self.start_token_id
        if self.end_token_id is not None:
            token_ids[begins + slots - 1] = self.end_token_id
        number = np.arange(len(members)) - np.repeat(first, sizes) + 1
        batch["segment_ids"][real] = np.repeat(number, slots)
        batch["position_ids"][real] = real - np.repeat(begins, slots)
        batch["padding_mask"] = batch["segment_ids"] > 0
        return {name: array.reshape(-1, width) for name, array in batch.items()}
