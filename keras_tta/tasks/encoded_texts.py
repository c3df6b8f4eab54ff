"""Texts as flat arrays of tokens, and the rows that a model reads them in."""

from typing import NamedTuple

import numpy as np

from keras_tta.visibility import Visibility
from keras_tta.visibility_questions import looks_left, looks_right


class Rows(NamedTuple):
    """What the model reads: slices of the flat tokens, of which a part is scored.

    Args:
        starts: where each row begins in the flat arrays.
        lengths: its length, specials included.
        firsts, lasts: the row's slots from `firsts` up to, but not including, `lasts`
            are scored.
    """

    starts: np.ndarray
    lengths: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray


class EncodedTexts:
    """The tokens of many texts in flat arrays, each text between its special tokens.

    Args:
        token_ids: for each text its token ids, without [SOS] and [EOS].
        word_ids: for each text the words its tokens belong to, from 0, or `None` if
            nobody will ask.
        tokenizer: names the special tokens.

    Attributes:
        token_ids: int32, the tokens of all texts, [SOS] and [EOS] around each.
        word_ids: the word of each, -1 for [SOS] and -2 for [EOS], or `None`.
        offsets: where each text begins in these arrays, and where the last one ends.
        is_blank: which tokens are blanks, that no token sees.
    """

    def __init__(self, token_ids, word_ids, tokenizer):
        self.tokenizer = tokenizer
        lengths = [len(row) + 2 for row in token_ids]
        self.offsets = np.cumsum([0, *lengths], dtype=np.int64)
        self.token_ids = self._flatten(
            token_ids, tokenizer.start_token_id, tokenizer.end_token_id
        )
        self.word_ids = None if word_ids is None else self._flatten(word_ids, -1, -2)
        self.is_blank = np.zeros(len(self.token_ids), bool)

    @classmethod
    def encode(cls, texts, tokenizer, with_words=False):
        return cls(*encode_texts(texts, tokenizer, with_words), tokenizer)

    @classmethod
    def encode_with_blanks(cls, parts, tokenizer):
        """One text, with a blank between each two of its parts."""
        ids, words, blanks = [], [-1], []
        encoded = zip(*tokenizer.encode_batch(parts, return_word_ids=True), strict=True)
        for index, (part_ids, part_words) in enumerate(encoded):
            if index:
                blanks.append(len(ids) + 1)
                ids.append(tokenizer.mask_token_id)
                words.append(words[-1] + 1)
            ids += part_ids
            words += [words[-1] + 1 + word for word in part_words]
        text = cls([ids], [words[1:]], tokenizer)
        text.is_blank[blanks] = True
        return text

    def __len__(self):
        return len(self.offsets) - 1

    @property
    def lengths(self):
        """Tokens of each text, specials included."""
        return np.diff(self.offsets)

    @property
    def text_of_token(self):
        """The number of the text that each of the flat tokens belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def word_counts(self, scored):
        """In each text, the words that have a token among the scored ones."""
        in_word = np.flatnonzero(scored & (self.word_ids >= 0))
        texts = self.text_of_token[in_word]
        word = np.stack([texts, self.word_ids[in_word]])
        is_new = np.append(True, (word[:, 1:] != word[:, :-1]).any(axis=0))
        return np.bincount(texts[is_new[: len(texts)]], minlength=len(self))

    def describe_unknown_tokens(self, texts):
        """How many of the texts' tokens are unknown, and the first; or `None`."""
        at = np.flatnonzero(self.token_ids == self.tokenizer.unknown_token_id)
        if not len(at):
            return None
        in_texts = np.unique(self.text_of_token[at])
        text = texts[in_texts[0]]
        excerpt = repr(text if len(text) <= 60 else text[:60] + "...")
        return (
            f"{len(at)} of {len(self.token_ids) - 2 * len(texts)} tokens, in "
            f"{len(in_texts)} of {len(texts)} texts, are unknown to the tokenizer; the "
            f"first in the text at index {in_texts[0]}, {excerpt}."
        )

    def is_scored(self, specials, positions=None):
        """Which of the flat tokens count, by the options of a scorer."""
        if specials == "all":
            scored = np.ones(len(self.token_ids), bool)
        else:
            scored = ~np.isin(self.token_ids, self.tokenizer.special_token_ids)
        if positions is not None:
            scored &= self._is_chosen(positions)
        if specials == "end":
            scored[self.offsets[1:] - 1] = True
        return scored

    def rows(self, size: int, stride: int | None, rule: Visibility) -> Rows:
        """Cut the texts into rows of at most `size` tokens, specials included.

        A longer text is read in windows, whose starts are `stride` tokens apart, each
        between special tokens of its own. Each token is scored in the window where it
        has the most context (`scored_slots`).

        Raises:
            ValueError: if a text is too long and `stride` is `None`.
        """
        starts, lengths = self.offsets[:-1], self.lengths
        too_long = np.flatnonzero(lengths > size)
        if not len(too_long):
            return Rows(starts, lengths, np.zeros_like(starts), lengths)
        if stride is None:
            index = too_long[0]
            raise ValueError(
                f"The text at index {index} has {lengths[index] - 2} tokens; the model "
                f"reads at most {size - 2} between [SOS] and [EOS]"
                + (f", and so for {len(too_long)} texts" if len(too_long) > 1 else "")
                + f". Shorten or split it, or score it with `stride={size // 2}`, in "
                "windows that overlap."
            )
        sees = looks_left(rule, size), looks_right(rule, size)
        fits = lengths <= size
        parts = [
            (starts[fits], lengths[fits], np.zeros(fits.sum(), int), lengths[fits])
        ]
        for index in too_long:
            begins = window_starts(lengths[index] - 2, size - 2, stride)
            firsts, lasts = scored_slots(begins, lengths[index], size, *sees)
            full = np.full(len(begins), size)
            parts.append((starts[index] + begins, full, firsts, lasts))
        return Rows(*map(np.concatenate, zip(*parts, strict=True)))

    def inputs(self, starts, lengths, shape, needs) -> dict[str, np.ndarray]:
        """The batch of some rows, int32 (B, T) each: the inputs a backbone takes.

        A row is one segment, its positions count from 0, and its special tokens belong
        to words of their own.
        """
        starts, lengths = (np.pad(x, (0, shape[0] - len(x))) for x in (starts, lengths))
        position = np.arange(shape[1], dtype="int32")
        is_real = position < lengths[:, None]
        at = (starts[:, None] + position)[is_real]
        ends = np.flatnonzero(lengths), (lengths - 1)[lengths > 0]

        def batch(flat, first, last, padding):
            ids = np.full(shape, padding, "int32")
            ids[is_real] = flat[at]
            ids[ends[0], 0], ids[ends] = first, last
            return ids

        inputs = {
            "token_ids": batch(
                self.token_ids,
                self.tokenizer.start_token_id,
                self.tokenizer.end_token_id,
                self.tokenizer.pad_token_id,
            ),
            "padding_mask": is_real.astype("int32"),
        }
        inputs["padding_mask"][is_real] -= self.is_blank[at]
        if "word_ids" in needs:
            inputs["word_ids"] = batch(self.word_ids, -1, -2, -3)
        if "segment_ids" in needs:
            inputs["segment_ids"] = is_real.astype("int32")
        if "position_ids" in needs:
            inputs["position_ids"] = position * is_real.astype("int32")
        return inputs

    def _is_chosen(self, positions):
        """The tokens at the given positions of each text, and all special tokens."""
        if len(positions) != len(self):
            raise ValueError(
                "`positions` must hold a list for each text. Received: "
                f"{len(positions)} lists for {len(self)} texts."
            )
        chosen = np.zeros(len(self.token_ids), bool)
        chosen[self.offsets[:-1]] = chosen[self.offsets[1:] - 1] = True
        texts = zip(positions, self.lengths.tolist(), strict=True)
        for index, (slots, length) in enumerate(texts):
            slots = np.asarray(slots)
            if slots.size and not np.issubdtype(slots.dtype, np.integer):
                raise ValueError(
                    f"`positions[{index}]` must hold integers. Received: "
                    f"{slots.tolist()}"
                )
            slots = slots.astype(int)
            if ((slots < 0) | (slots >= length - 2)).any():
                raise ValueError(
                    f"`positions[{index}]` must lie below {length - 2}, the number of "
                    f"the text's tokens, and not below 0. Received: {slots.tolist()}"
                )
            chosen[self.offsets[index] + 1 + slots] = True
        return chosen

    def _flatten(self, rows, first, last):
        flat = np.empty(self.offsets[-1], "int32")
        inside = np.ones(len(flat), bool)
        inside[self.offsets[:-1]] = inside[self.offsets[1:] - 1] = False
        flat[inside] = [token for row in rows for token in row]
        flat[self.offsets[:-1]] = first
        flat[self.offsets[1:] - 1] = last
        return flat


def encode_texts(texts, tokenizer, with_words):
    """Lists of the texts' token ids and of their word ids; `None` for these unasked."""
    if with_words:
        return tokenizer.encode_batch(texts, return_word_ids=True)
    return tokenizer.encode_batch(texts), None


def window_starts(count: int, size: int, stride: int) -> np.ndarray:
    """Where windows of `size` of `count` tokens begin; the last ends with the text."""
    return np.append(np.arange(0, count - size, stride), count - size)


def scored_slots(
    begins: np.ndarray, length: int, size: int, sees_left: bool, sees_right: bool
) -> tuple[np.ndarray, np.ndarray]:
    """First and last slots to score in each window of a long text.

    A token goes to the window in which it is farthest from the nearer end; an end that
    is the end of the text too is no limit, nor is one on a side that no token sees.
    Slot 0 of the window that begins at token b is slot b of the text.

    Args:
        begins: where the windows begin, ascending; the last ends with the text.
        length: tokens of the text, specials included.
        size: tokens of a window, specials included.
        sees_left, sees_right: whether any token sees what is on that side of it.
    """
    is_first, is_last = begins[:, None] == 0, begins[:, None] + size == length
    slot = np.arange(length) - begins[:, None]
    context = np.full(slot.shape, np.inf)
    if sees_left:
        context = np.where(is_first, context, np.minimum(context, slot))
    if sees_right:
        context = np.where(is_last, context, np.minimum(context, size - 1 - slot))
    # The window's own special tokens are the text's only at the text's ends.
    inside = (slot >= np.where(is_first, 0, 1)) & (
        slot < np.where(is_last, size, size - 1)
    )
    best = np.where(inside, context, -1).argmax(axis=0)
    windows = np.arange(len(begins))
    firsts = np.searchsorted(best, windows, side="left") - begins
    lasts = np.searchsorted(best, windows, side="right") - begins
    return firsts, lasts
