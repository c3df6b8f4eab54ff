"""Token sequences laid end to end, and measures of them."""

import hashlib
import math
from collections.abc import Iterable, Sequence

import numpy as np

from keras_tta.data.corpus import Document

CHUNK_SEQUENCES = 1 << 16


class TokenSequences:
    """Sequences of token ids as one flat array, and where in it each of them lies.

    Args:
        tokens: (tokens,) integers. Anything with `len` and NumPy's `take`, such as a
            memory map.
        starts: (sequences,) integers: sequence `i` is
            `tokens[starts[i]:starts[i] + lengths[i]]`.
        lengths: (sequences,) integers.

    Example:
    ```python
    from keras_tta.data import TokenSequences

    sequences = TokenSequences.from_lists([[7, 8, 9], [], [10]])
    assert len(sequences) == 3
    assert sequences[0].tolist() == [7, 8, 9]
    assert sequences.lengths.tolist() == [3, 0, 1]
    assert sequences.select([2, 0])[1].tolist() == [7, 8, 9]
    ```
    """

    def __init__(self, tokens, starts: np.ndarray, lengths: np.ndarray):
        starts, lengths = (np.asarray(a, dtype=np.int64) for a in (starts, lengths))
        if starts.shape != lengths.shape or starts.ndim != 1:
            raise ValueError(
                "`starts` and `lengths` must be vectors of one length. Received: "
                f"starts.shape={starts.shape}, lengths.shape={lengths.shape}"
            )
        if len(starts) and (
            min(starts.min(), lengths.min()) < 0
            or (starts + lengths).max() > len(tokens)
        ):
            raise ValueError(
                f"A sequence lies outside of the {len(tokens)} tokens there are."
            )
        self.tokens = tokens
        self.starts = starts
        self.lengths = lengths

    @classmethod
    def from_lists(cls, sequences: Iterable[Sequence[int]]) -> "TokenSequences":
        """Lay lists (or arrays) of token ids end to end."""
        rows = [np.asarray(row, dtype=np.int32) for row in sequences]
        tokens = np.concatenate([np.empty(0, np.int32), *rows])
        return cls.from_lengths(tokens, [len(row) for row in rows])

    @classmethod
    def from_lengths(cls, tokens, lengths: np.ndarray) -> "TokenSequences":
        """Sequences that lie end to end in `tokens`."""
        lengths = np.asarray(lengths, dtype=np.int64)
        return cls(tokens, np.cumsum(lengths) - lengths, lengths)

    def select(self, indices: Sequence[int]) -> "TokenSequences":
        """Some of the sequences, over the same tokens."""
        indices = np.asarray(indices, dtype=np.int64)
        return TokenSequences(self.tokens, self.starts[indices], self.lengths[indices])

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(f"Sequence {index} of {len(self)}.")
        span = slice(index, index + 1 or None)
        return self.tokens.take(span_indices(self.starts[span], self.lengths[span]))


def span_indices(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The indices of all spans `[start, start + length)`, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def split_documents(
    documents: Iterable[Document], held_out_fraction: float = 0.05
) -> tuple[list[Document], list[Document]]:
    """Split documents into (training, held out) by a hash of what they say.

    A document falls on the same side whatever else is in the corpus and in whatever
    order, and copies of a document fall together. `held_out_fraction` is therefore met
    only roughly.

    Raises:
        ValueError: `held_out_fraction` is not between 0 and 1, or one side is left
            without documents, because there are too few.

    Example:
    ```python
    from keras_tta.data import split_documents

    documents = [[f"Document {i}."] for i in range(100)]
    train, held_out = split_documents(documents, held_out_fraction=0.1)
    assert len(train) + len(held_out) == 100 and 0 < len(held_out) < 30
    ```
    """
    documents = list(documents)
    hashes = np.array([hash_document(d) for d in documents], np.uint64)
    held_out = split_hashes(hashes, held_out_fraction).tolist()
    sides = ([], [])
    for document, side in zip(documents, held_out, strict=True):
        sides[side].append(document)
    return sides


def is_held_out(document: Document, held_out_fraction: float = 0.05) -> bool:
    """Whether a document belongs to the held-out side: a pure function of its text.

    Raises:
        ValueError: `held_out_fraction` is not between 0 and 1.

    Example:
    ```python
    from keras_tta.data import is_held_out, split_documents

    documents = [[f"Document {i}."] for i in range(100)]
    train, held_out = split_documents(documents, 0.1)
    assert all(is_held_out(document, 0.1) for document in held_out)
    assert not any(is_held_out(document, 0.1) for document in train)
    ```
    """
    return hash_document(document) < _hash_limit(held_out_fraction)


def split_hashes(hashes: np.ndarray, held_out_fraction: float) -> np.ndarray:
    """Which documents are held out, by their hashes (uint64); neither all nor none."""
    held_out = hashes < np.uint64(_hash_limit(held_out_fraction))
    if held_out.all() or not held_out.any():
        raise ValueError(
            f"Of {len(held_out)} documents {held_out.sum()} would be held out, but "
            "both sides need some. Give more documents (separate them with blank "
            "lines, or cut long ones with `max_sentences`) or another fraction. "
            f"Received: held_out_fraction={held_out_fraction}"
        )
    return held_out


def _hash_limit(held_out_fraction):
    """Documents whose hash is below it are held out."""
    if not 0 < held_out_fraction < 1:
        raise ValueError(
            "`held_out_fraction` must lie between 0 and 1. Received: "
            f"held_out_fraction={held_out_fraction}"
        )
    return math.ceil(held_out_fraction * 2**64)


def hash_document(document: Document) -> int:
    """A 64-bit hash of a document's text."""
    text = "\n".join(document).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def unigram_nats_per_token(
    train_sequences: "TokenSequences | Iterable[Sequence[int]]",
    held_out_sequences: "TokenSequences | Iterable[Sequence[int]]",
    vocabulary_size: int,
    special_token_ids: Sequence[int] = (0, 1, 3, 4, 5, 6),
) -> float:
    """Held-out nats per token of the unigram model: the baseline to beat.

    A token's probability is its count in `train_sequences` plus one, over the count of
    all tokens plus the number of ordinary tokens in the vocabulary (add-one
    smoothing). Special tokens are left out of both counts, as they are left out of the
    `nats_per_token` that training reports.

    Raises:
        ValueError: there are no ordinary tokens held out.

    Example:
    ```python
    import math
    from keras_tta.data import unigram_nats_per_token

    # Ordinary tokens 2, 7, 8, 9: token 7 has (3 + 1) / (4 + 4), token 8 (1 + 1) / 8.
    nats = unigram_nats_per_token([[7, 7], [7, 8]], [[7, 8]], vocabulary_size=10)
    assert math.isclose(nats, (math.log(2) + math.log(4)) / 2)
    ```
    """
    ordinary = np.setdiff1d(np.arange(vocabulary_size), special_token_ids)
    train, held_out = (
        _count_tokens(sequences, vocabulary_size)[ordinary]
        for sequences in (train_sequences, held_out_sequences)
    )
    if not held_out.sum():
        raise ValueError("The held-out sequences hold no ordinary tokens.")
    log_probabilities = np.log(train + 1.0) - math.log(train.sum() + len(ordinary))
    return float(-(held_out * log_probabilities).sum() / held_out.sum())


def _count_tokens(sequences, vocabulary_size):
    if not isinstance(sequences, TokenSequences):
        sequences = TokenSequences.from_lists(sequences)
    counts = np.zeros(vocabulary_size, np.int64)
    for start in range(0, len(sequences), CHUNK_SEQUENCES):
        span = slice(start, start + CHUNK_SEQUENCES)
        indices = span_indices(sequences.starts[span], sequences.lengths[span])
        chunk = np.bincount(sequences.tokens.take(indices), minlength=vocabulary_size)
        if len(chunk) > vocabulary_size:
            raise ValueError(
                f"Token id {len(chunk) - 1} is outside of the vocabulary of "
                f"{vocabulary_size} tokens."
            )
        counts += chunk
    return counts
