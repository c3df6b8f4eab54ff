"""Token sequences laid end to end, and measures of them."""

import hashlib
import math
from collections.abc import Iterable, Sequence

import numpy as np

from keras_tta.data.corpus import Document


class TokenSequences:
    """Sequences of token ids as one flat array and the places where each begins.

    Args:
        tokens: (tokens,) integers: all sequences, one after the other. Anything with
            NumPy's `take` and `len`, a memory map for example.
        offsets: (sequences + 1,) integers: sequence `i` is
            `tokens[offsets[i]:offsets[i + 1]]`.

    ```python
    from keras_tta.data import TokenSequences

    sequences = TokenSequences.from_lists([[7, 8, 9], [], [10]])
    assert len(sequences) == 3
    assert sequences[0].tolist() == [7, 8, 9]
    assert sequences.lengths.tolist() == [3, 0, 1]
    ```
    """

    def __init__(self, tokens, offsets: np.ndarray):
        offsets = np.asarray(offsets, dtype=np.int64)
        if (
            offsets.ndim != 1
            or not len(offsets)
            or offsets[0] != 0
            or offsets[-1] != len(tokens)
            or (np.diff(offsets) < 0).any()
        ):
            raise ValueError(
                "`offsets` must rise from 0 to the number of tokens, one more of them "
                f"than there are sequences. Received {len(offsets)} offsets for "
                f"{len(tokens)} tokens."
            )
        self.tokens = tokens
        self.offsets = offsets

    @classmethod
    def from_lists(cls, sequences: Iterable[Sequence[int]]) -> "TokenSequences":
        """Lay lists (or arrays) of token ids end to end."""
        rows = [np.asarray(row, dtype=np.int32) for row in sequences]
        offsets = np.cumsum([0, *(len(row) for row in rows)])
        return cls(np.concatenate([np.empty(0, np.int32), *rows]), offsets)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(f"Sequence {index} of {len(self)}.")
        index %= len(self)
        start, end = self.offsets[index : index + 2]
        return self.tokens.take(np.arange(start, end))


def split_documents(
    documents: Iterable[Document], held_out_fraction: float = 0.05
) -> tuple[list[Document], list[Document]]:
    """Split documents into (training, held out) by a hash of what they say.

    A document falls on the same side whatever else is in the corpus and in whatever
    order, and copies of a document fall together. `held_out_fraction` is therefore met
    only roughly.

    Raises:
        ValueError: one side is left without documents, because there are too few.

    ```python
    from keras_tta.data import split_documents

    documents = [[f"Document {i}."] for i in range(100)]
    train, held_out = split_documents(documents, held_out_fraction=0.1)
    assert len(train) + len(held_out) == 100 and 0 < len(held_out) < 30
    ```
    """
    if not 0 < held_out_fraction < 1:
        raise ValueError(
            "`held_out_fraction` must lie between 0 and 1. Received: "
            f"held_out_fraction={held_out_fraction}"
        )
    sides = ([], [])
    for document in documents:
        sides[is_held_out(document, held_out_fraction)].append(document)
    if not all(sides):
        raise ValueError(
            f"Of {len(sides[0]) + len(sides[1])} documents {len(sides[1])} would be "
            f"held out with held_out_fraction={held_out_fraction}. Separate documents "
            "with blank lines, cut long ones with read_documents(..., max_sentences=), "
            "or change the fraction."
        )
    return sides


def is_held_out(document: Document, held_out_fraction: float) -> bool:
    """Whether a document belongs to the held-out side: a pure function of its text."""
    text = "\n".join(document).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big") < held_out_fraction * 2**64


def unigram_nats_per_token(
    train_sequences: "TokenSequences | Iterable[Sequence[int]]",
    held_out_sequences: "TokenSequences | Iterable[Sequence[int]]",
    vocabulary_size: int,
    special_token_ids: Sequence[int] = (0, 1, 3, 4, 5, 6),
) -> float:
    """Held-out nats a token of the unigram model: the baseline to beat.

    A token's probability is its count in `train_sequences` plus one, over the count of
    all tokens plus the number of ordinary tokens in the vocabulary (add-one
    smoothing). Special tokens are left out of both counts, as they are left out of the
    `nats_per_token` that training reports.

    Raises:
        ValueError: there are no ordinary tokens held out.

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
    for start in range(0, len(sequences.tokens), 1 << 20):
        stop = min(start + (1 << 20), len(sequences.tokens))
        tokens = sequences.tokens.take(np.arange(start, stop))
        chunk = np.bincount(tokens, minlength=vocabulary_size)
        if len(chunk) > vocabulary_size:
            raise ValueError(
                f"Token id {len(chunk) - 1} is outside of the vocabulary of "
                f"{vocabulary_size} tokens."
            )
        counts += chunk
    return counts
