"""Batches of token ids: every batch a pure function of the seed and the step."""

import hashlib
import time
from collections.abc import Iterable, Sequence

import keras
import numpy as np

from keras_tta.checks import check_one_of, check_positive_integers
from keras_tta.data.orders import random_order
from keras_tta.data.packing import RowPlan, one_a_row, pack
from keras_tta.data.sequences import TokenSequences, span_indices

REMAINDERS = ("pad", "keep", "drop")


class TokenBatches(keras.utils.PyDataset):
    """Padded batches for `keras.Model.fit`, on any backend.

    Row by row: [SOS], the tokens of a sequence, [EOS], then padding on the right; with
    `packed=True`, several sequences one after the other, and almost no padding. A
    sequence too long for a row is cut into consecutive rows of its own; nothing is
    truncated. Batch `step` depends on nothing but the seed and the data, so
    training continues where it stopped from one integer, `first_step`. The `fit` of
    our pretrainers leaves the order alone; to that of another `keras.Model` pass
    `shuffle=False`, else Keras shuffles the batches once more, with random numbers of
    its own.

    Every batch is `({"token_ids": int32 (B, T), "padding_mask": bool (B, T)},)`, with
    more integers (B, T) where asked for.

    Args:
        sequences: a `TokenSequences`, or lists of token ids without special tokens.
        batch_size: int, rows of `sequence_length` tokens in a batch, all processes
            together.
        sequence_length: int, T, special tokens included.
        bucket_lengths: row widths below `sequence_length`, such as `(32, 64)`. Rows
            are grouped by the narrowest width that holds them, and a batch of narrow
            rows has more of them, for about the same number of tokens. Each width is
            a shape that XLA compiles. Defaults to none.
        packed: bool, whether rows are filled with several sequences, each with its own
            [SOS] and [EOS]. Batches then also hold `segment_ids`, 1 to k in a row and
            0 at padding, and `position_ids`, which start again at 0 in every segment:
            train `LanguageAutoencoder(backbone, packed=True)`, which keeps segments
            apart (it adds `SameSegment` to the backbone's rule). Which sequences share
            a row is fixed by `seed`; the order of the rows changes from epoch to epoch.
        word_starts: (V,) bool, whether a token begins a word, a tokenizer's
            `starts_word`. Batches then also hold `word_ids`, the number of the word in
            its row, for rules such as `HideWord`.
        seed: int.
        shuffle: bool, whether the order changes from epoch to epoch. Defaults to
            `True`; pass `False` for validation data.
        remainder: what becomes of the last batch: `"pad"` fills it with rows of
            padding, so that all batches have one shape; `"keep"` leaves it smaller;
            `"drop"` leaves its rows out, others in every epoch, and counts them in
            `dropped_rows`.
        steps_per_epoch: int, how many batches `fit` takes for an epoch, for evaluations
            and checkpoints at other times than the ends of the data: the next epoch
            goes on where the last one stopped. Defaults to all, `batches_per_pass`.
        first_step: int, the number of batches already taken: `fit` goes on there.
        process_index: int, which share of every batch this process gets.
        process_count: int, the number of processes. Together the shares are the batch
            that one process would have got.
        device_count: int, the number of devices, of all processes, that every batch is
            divided among: its rows are a multiple of it. Defaults to `process_count`.
        start_token_id: int or `None` for none.
        end_token_id: int or `None` for none.
        pad_token_id: int.
        **kwargs: `workers` and other arguments of `keras.utils.PyDataset`.

    Attributes:
        batches_per_pass: int, batches in one pass over the data.
        rows: int, rows in one pass.
        cut_sequences: int, sequences that needed more than one row.
        empty_sequences: int, sequences without tokens, which get no row.
        dropped_rows: int, rows left out of each pass.
        seconds: float, time spent making batches so far.
        padding_share: float, padding tokens among all tokens of a pass.

    Raises:
        ValueError: an argument is out of its range, or there is not one batch.

    Example:
    ```python
    from keras_tta.data import TokenBatches

    batches = TokenBatches(
        [[7, 8, 9], [10]], batch_size=2, sequence_length=6, shuffle=False
    )
    (batch,) = batches[0]
    assert batch["token_ids"].tolist() == [[3, 7, 8, 9, 1, 0], [3, 10, 1, 0, 0, 0]]
    assert batch["padding_mask"].sum(axis=1).tolist() == [5, 3]
    ```
    """

    def __init__(
        self,
        sequences: TokenSequences | Iterable[Sequence[int]],
        batch_size: int,
        sequence_length: int,
        bucket_lengths: Sequence[int] = (),
        packed: bool = False,
        word_starts: np.ndarray | None = None,
        seed: int = 0,
        shuffle: bool = True,
        remainder: str = "pad",
        steps_per_epoch: int | None = None,
        first_step: int = 0,
        process_index: int = 0,
        process_count: int = 1,
        device_count: int | None = None,
        start_token_id: int | None = 3,
        end_token_id: int | None = 1,
        pad_token_id: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if not isinstance(sequences, TokenSequences):
            sequences = TokenSequences.from_lists(sequences)
        specials = (start_token_id is not None) + (end_token_id is not None)
        if sequence_length <= specials:
            raise ValueError(
                f"`sequence_length` must exceed {specials}, the number of special "
                f"tokens in a row. Received: sequence_length={sequence_length}"
            )
        check_one_of(self, REMAINDERS, remainder=remainder)
        device_count = device_count or process_count
        check_positive_integers(
            self,
            batch_size=batch_size,
            process_count=process_count,
            device_count=device_count,
        )
        if steps_per_epoch is not None:
            check_positive_integers(self, steps_per_epoch=steps_per_epoch)
        if not hasattr(first_step, "__index__") or first_step < 0:
            raise ValueError(
                "`first_step` counts the batches already taken: it must be an integer, "
                f"0 or more. Received: first_step={first_step!r}"
            )
        if batch_size % device_count or device_count % process_count:
            raise ValueError(
                "`batch_size` counts the rows of all devices of all processes: it must "
                "be a multiple of `device_count`, and that of `process_count`. "
                f"Received: batch_size={batch_size}, device_count={device_count}, "
                f"process_count={process_count}"
            )
        if remainder == "keep" and device_count > process_count:
            raise ValueError(
                "remainder='keep' leaves a last batch that devices cannot divide: use "
                f"'pad' or 'drop'. Received: device_count={device_count}"
            )
        if not 0 <= process_index < process_count:
            raise ValueError(
                "`process_index` must lie in [0, process_count). Received: "
                f"process_index={process_index}, process_count={process_count}"
            )
        if packed and bucket_lengths:
            raise ValueError(
                "Packed rows are full: `packed=True` takes no `bucket_lengths`. "
                f"Received: bucket_lengths={tuple(bucket_lengths)}"
            )
        self.sequences = sequences
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.widths = (*_check_buckets(bucket_lengths, sequence_length, specials),)
        self.seed = seed
        self.shuffle = shuffle
        self.remainder = remainder
        self.steps_per_epoch = steps_per_epoch
        self.first_step = first_step
        self.process_index = process_index
        self.process_count = process_count
        self.device_count = device_count
        self.pad_token_id = pad_token_id
        self.packed = packed
        self.word_starts = word_starts
        self._special_token_ids = [
            token_id
            for token_id in (start_token_id, end_token_id, pad_token_id)
            if token_id is not None
        ]
        self.epoch = 0
        self._skipped = 0  # Batches of this epoch that were taken in an earlier run.
        self._read = set()
        self.seconds = 0.0

        starts, lengths = cut_rows(sequences, sequence_length - specials)
        if packed:
            members = pack(lengths + specials, sequence_length, seed)
        else:
            members = one_a_row(len(starts))
        self._plan = RowPlan(
            starts, lengths, *members, start_token_id, end_token_id, pad_token_id
        )
        self.rows = len(self._plan)
        self.cut_sequences = int((sequences.lengths > sequence_length - specials).sum())
        self.empty_sequences = int((sequences.lengths == 0).sum())
        self._plan_buckets(self._plan.row_lengths())
        self._order = None, None

    def _plan_buckets(self, row_lengths):
        bucket_of_row = np.searchsorted(self.widths, row_lengths)
        self._buckets = []
        slots = kept_rows = self.batches_per_pass = 0
        for number, width in enumerate(self.widths):
            rows = np.flatnonzero(bucket_of_row == number)
            share = self.batch_size // self.device_count
            size = share * self.sequence_length // width * self.device_count
            batches = len(rows) // size
            if len(rows) % size and self.remainder != "drop":
                batches += 1
            kept = min(len(rows), batches * size)
            kept_rows += kept
            slots += width * (kept if self.remainder == "keep" else batches * size)
            self.batches_per_pass += batches
            self._buckets.append((width, size, rows, batches))
        self.dropped_rows = self.rows - kept_rows
        if not self.batches_per_pass:
            raise ValueError(
                f"There is no batch in {len(self.sequences)} sequences, "
                f"{self.empty_sequences} of them empty, which make {self.rows} rows, "
                f"with batch_size={self.batch_size} and remainder={self.remainder!r}."
            )
        real = row_lengths.sum() * (kept_rows / self.rows)
        self.padding_share = float(1 - real / slots)

    def __len__(self):
        return self._steps_per_epoch - self._skipped

    @property
    def _steps_per_epoch(self):
        return self.steps_per_epoch or self.batches_per_pass

    @property
    def num_batches(self):
        return len(self)

    # Keras begins and ends epochs that train nothing (to build a model) and reads ahead
    # into epochs that it then starts anew. An epoch is over when every batch of it
    # was read, and is counted once, by whatever comes next.
    def on_epoch_begin(self):
        if len(self._read) == len(self):
            self._read = set()

    def on_epoch_end(self):
        if len(self._read) == len(self):
            self._read = set()
            self._skipped = 0
            self.epoch += 1

    def __getitem__(self, index):
        return self.batch(self.take(index))

    @property
    def next_step(self) -> int:
        """The step of this epoch's first batch; of the next one's, once it is read."""
        if len(self._read) == len(self):
            return self.first_step + (self.epoch + 1) * self._steps_per_epoch
        return self._step(0)

    def take(self, index: int) -> int:
        """Counts batch `index` of the epoch as read; returns its training step."""
        if not 0 <= index < len(self):
            raise IndexError(f"Batch {index} of {len(self)}.")
        self.on_epoch_end()
        self._read.add(index)
        return self._step(index)

    def _step(self, index):
        before = self.epoch * self._steps_per_epoch + self._skipped
        return self.first_step + before + index

    def resume(self, step: int, skipped: int = 0) -> None:
        """Go on with the batch of training step `step`.

        Args:
            step: int, the number of batches already taken.
            skipped: int, how many of them were of the epoch that now goes on: it is so
                much shorter.
        """
        self.first_step = step - skipped
        self.epoch = 0
        self._skipped = skipped
        self._read = set()

    def fingerprint(self) -> dict:
        """What determines every batch: the settings, and a hash of the tokens.

        Of long data a thousand stretches are hashed, besides all lengths. How the
        batches are shared out to processes is left out.
        """
        tokens = self.sequences.tokens
        digest = hashlib.sha256()
        for array in (self.sequences.starts, self.sequences.lengths):
            digest.update(np.ascontiguousarray(array))
        for start in np.unique(np.linspace(0, len(tokens), 1025, dtype=int)[:-1]):
            stretch = np.arange(start, min(start + 1024, len(tokens)))
            digest.update(np.asarray(tokens.take(stretch), np.int64))
        words = self.word_starts
        return {
            "sequences": len(self.sequences),
            "tokens": int(self.sequences.lengths.sum()),
            "sha256": digest.hexdigest(),
            "batch_size": self.batch_size,
            "shapes": [(size, int(width)) for width, size, _, _ in self._buckets],
            "packed": self.packed,
            "word_starts": None if words is None else int(np.sum(words)),
            "seed": self.seed,
            "shuffle": self.shuffle,
            "remainder": self.remainder,
            "steps_per_epoch": self._steps_per_epoch,
            "special_token_ids": self._special_token_ids,
        }

    def batch(self, step: int) -> tuple[dict[str, np.ndarray]]:
        """The batch of training step `step`, which counts through all passes."""
        start = time.perf_counter()
        data_pass, index = divmod(step, self.batches_per_pass)
        width, rows, size = self._rows(data_pass, index)
        batch = self._plan.fill(self.sequences.tokens, rows, width)
        if not self.packed:
            del batch["segment_ids"], batch["position_ids"]
        if self.word_starts is not None:
            batch["word_ids"] = self._number_words(batch["token_ids"])
        share = slice(self.process_index, None, self.process_count)
        missing = size - len(rows) if self.remainder == "pad" else 0
        fill = {"token_ids": self.pad_token_id}
        for name, array in batch.items():
            array = np.pad(
                array, ((0, missing), (0, 0)), constant_values=fill.get(name, 0)
            )
            batch[name] = array[share]
        self.seconds += time.perf_counter() - start
        return (batch,)

    def _rows(self, data_pass, index):
        data_pass = data_pass if self.shuffle else 0
        # One assignment, for several threads may be at work on different passes.
        cached_pass, order = self._order
        if cached_pass != data_pass:
            order = self._make_order(data_pass)
            self._order = data_pass, order
        rows, batch_order = order
        bucket, start = batch_order[index]
        width, size, _, _ = self._buckets[bucket]
        return width, rows[bucket][start : start + size], size

    def _make_order(self, data_pass):
        """Rows in order in every bucket, and (bucket, first row) of every batch."""
        rows, batches = [], []
        for number, (_, size, bucket_rows, count) in enumerate(self._buckets):
            if self.shuffle:
                order = random_order(len(bucket_rows), self.seed, data_pass, number)
                bucket_rows = bucket_rows[order]
            rows.append(bucket_rows)
            batches.extend((number, start * size) for start in range(count))
        if self.shuffle:
            order = random_order(len(batches), self.seed, data_pass, len(self.widths))
            batches = [batches[i] for i in order]
        # Keras on TensorFlow takes a width that the first two batches share for that
        # of all.
        for i, (number, _) in enumerate(batches):
            if number != batches[0][0]:
                batches[1], batches[i] = batches[i], batches[1]
                break
        return rows, batches

    def _number_words(self, token_ids):
        starts = np.asarray(self.word_starts)[token_ids]
        # The special tokens are words, and so is what follows one.
        special = np.isin(token_ids, self._special_token_ids)
        starts |= special
        starts[:, 1:] |= special[:, :-1]
        return np.cumsum(starts, axis=1, dtype=np.int32)


def cut_rows(sequences: TokenSequences, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and lengths of consecutive pieces of at most `size` tokens, no overlap."""
    pieces = -(-sequences.lengths // size)
    sequence = np.repeat(np.arange(len(sequences)), pieces)
    skipped = size * span_indices(np.zeros_like(pieces), pieces)
    lengths = np.minimum(size, sequences.lengths[sequence] - skipped)
    return sequences.starts[sequence] + skipped, lengths


def _check_buckets(bucket_lengths, sequence_length, specials):
    widths = sorted({*bucket_lengths, sequence_length})
    if widths[0] <= specials or widths[-1] != sequence_length:
        raise ValueError(
            f"`bucket_lengths` must lie between {specials} and sequence_length="
            f"{sequence_length}. Received: bucket_lengths={tuple(bucket_lengths)}"
        )
    return widths
