"""From a noise mask to what T5's denoising objectives read and give back.

Axes: B batch, T sequence, S encoder (source), U decoder.
"""

import numpy as np

from keras_tta.checks import check_one_of, check_positive_integers
from keras_tta.layers.corruption.draws import threshold
from keras_tta.layers.corruption.seq2seq import Seq2SeqMasker, run_starts, single
from keras_tta.layers.corruption.spans import (
    cut_at_gaps,
    mask_of_spans,
    random_spans,
    spread,
)

INPUTS = ("sentinels", "sentinel", "token_sentinel", "drop")
TARGETS = ("sentinels", "noise", "full")


class NoiseMasker(Seq2SeqMasker):
    """Base of the maskers that hide the tokens of a noise mask, as T5's do.

    `inputs` says what the encoder reads in place of noise, with T5's name for it:

    - "sentinels": one sentinel a span, another for each (noise_span_to_unique_sentinel)
    - "sentinel": one sentinel a span, always the first one (noise_span_to_sentinel)
    - "token_sentinel": the first sentinel for each token (noise_token_to_sentinel), or,
      for a `random_share` of them, a random token (noise_token_to_random_token)
    - "drop": nothing (drop_noise_tokens)

    `targets` says what the decoder gives back:

    - "sentinels": the noise, with sentinels between (nonnoise_span_to_unique_sentinel)
    - "noise": the noise alone (drop_nonnoise_tokens)
    - "full": the whole row

    Args:
        num_sentinels: None, the default, is 100: the ids from `vocabulary_size - 1`
            down.
        sentinel_token_ids: the ids themselves, in order of use, instead.
        inputs, targets: default to "sentinels".
        random_share: with `inputs="token_sentinel"`; defaults to 0.
        closing_sentinel: whether the targets end with one more sentinel, as in the T5
            paper's figure but not its code; with `targets="sentinels"`. Defaults to
            False.
        vocabulary_size, pad_token_id, start_token_id, end_token_id: see
            `Seq2SeqMasker`.
        special_token_ids, seed, static_copies: see `Masker`.
    """

    def __init__(
        self,
        vocabulary_size,
        num_sentinels=None,
        sentinel_token_ids=None,
        inputs="sentinels",
        targets="sentinels",
        random_share=0.0,
        closing_sentinel=False,
        **kwargs,
    ):
        super().__init__(vocabulary_size, **kwargs)
        check_one_of(self, INPUTS, inputs=inputs)
        check_one_of(self, TARGETS, targets=targets)
        self._check_shares(random_share=random_share)
        if random_share and inputs != "token_sentinel":
            raise ValueError(
                "`random_share` replaces single tokens: it needs "
                f'`inputs="token_sentinel"`. Received: random_share={random_share}, '
                f"inputs={inputs!r}"
            )
        if closing_sentinel and targets != "sentinels":
            raise ValueError(
                "`closing_sentinel` ends targets that hold sentinels: it needs "
                '`targets="sentinels"`. Received: closing_sentinel=True, '
                f"targets={targets!r}"
            )
        if sentinel_token_ids is None:
            num_sentinels = 100 if num_sentinels is None else num_sentinels
            check_positive_integers(self, num_sentinels=num_sentinels)
            last = self.vocabulary_size - 1
            sentinel_token_ids = range(last, last - num_sentinels, -1)
        elif num_sentinels is not None:
            raise ValueError(
                "`sentinel_token_ids` are all the sentinels there are: give them or "
                f"`num_sentinels`. Received: num_sentinels={num_sentinels}, "
                f"sentinel_token_ids={_in_short(tuple(sentinel_token_ids))}"
            )
        self.inputs = inputs
        self.targets = targets
        # Those that are not used remain ordinary ids.
        used = None if self._numbers_spans else int(inputs != "drop")
        self.sentinel_token_ids = tuple(int(i) for i in sentinel_token_ids)[:used]
        if self.sentinel_token_ids or used != 0:
            self._check_sentinels()
        special = {*self.special_token_ids, *self.sentinel_token_ids}
        self._check_random_tokens(random_share, special)
        self.random_share = random_share
        self.closing_sentinel = closing_sentinel

    def _check_sentinels(self):
        sentinels = self.sentinel_token_ids
        others = {self.pad_token_id, self.start_token_id, self.end_token_id}
        others |= set(self.special_token_ids)
        if not sentinels or min(sentinels) < 0:
            raise ValueError(
                "`num_sentinels` must be between 1 and vocabulary_size="
                f"{self.vocabulary_size}, and none of `sentinel_token_ids` negative. "
                f"Received: sentinel_token_ids={_in_short(sentinels)}"
            )
        self._check_id("sentinel_token_ids", max(sentinels))
        if len(set(sentinels)) < len(sentinels) or others & set(sentinels):
            raise ValueError(
                "The sentinels must differ from one another and from the pad, start, "
                f"end and special token ids {sorted(others - {None})}. Grow "
                "`vocabulary_size` to hold `num_sentinels` ids of their own, or give "
                "`sentinel_token_ids`. Received: "
                f"sentinel_token_ids={_in_short(sentinels)}"
            )

    def corrupt(self, token_ids, padding_mask, noise_mask):
        """Corrupts rows by a noise mask of the caller's: bool or int (B, T) or (T,).

        NumPy arrays (or lists) in, NumPy arrays out; tensors in, tensors out. The
        outputs are as long as the worst mask needs. `padding_mask` may be None.

        A mask that needs more sentinels than there are, or that marks special tokens,
        raises a ValueError; under compilation, those tokens stay visible and are
        counted in `num_clamped`.
        """
        return self._corrupt_given(token_ids, padding_mask, noise_mask)

    def get_config(self):
        return {
            **super().get_config(),
            "sentinel_token_ids": self.sentinel_token_ids,
            "inputs": self.inputs,
            "targets": self.targets,
            "random_share": self.random_share,
            "closing_sentinel": self.closing_sentinel,
        }

    # What a subclass defines.

    def _noise_plan(self, length):
        """The most noise tokens and spans in rows of each length 0..length."""
        raise NotImplementedError

    def _noise(self, xp, draws, rows):
        """The noise mask (..., T), among the candidates."""
        raise NotImplementedError

    @property
    def _announces_noise(self):
        """Whether a target sentinel stands before each noise span rather than, as in
        T5's code, for each visible one. The same, if rows start visible and end noisy.
        """
        return False

    # The lengths and the budget of sentinels.

    @property
    def _numbers_spans(self):
        return "sentinels" in (self.inputs, self.targets)

    def _plan(self, length):
        return self._lengths(*self._noise_plan(length))

    def _lengths(self, noise, spans):
        """(S, U) for tables over lengths 0..T; raises if sentinels could run out."""
        lengths = np.arange(len(noise))
        # A visible token at the end is one more visible span, which T5's rule marks.
        extra = int(self.closing_sentinel or bool(self.special_token_ids))
        if self._numbers_spans:
            self._check_budget(spans + extra * (self.targets == "sentinels"))
        some = lengths > 0
        encoder = (
            lengths if self.special_token_ids else self._kept(lengths, noise, spans)
        )
        decoder = {
            "sentinels": noise + np.maximum(spans + extra, some),
            "noise": noise,
            "full": lengths,
        }[self.targets]
        end = self._end_length * some
        return int(np.max(encoder + end)), int(np.max(decoder + end))

    def _kept(self, lengths, noise, spans):
        if self.inputs == "token_sentinel":
            return lengths
        return lengths - noise + (spans if self.inputs != "drop" else 0)

    def _check_budget(self, needed):
        if needed.max(initial=0) > len(self.sentinel_token_ids):
            worst = int(np.argmax(needed))
            raise ValueError(
                f"A row of {worst} tokens needs {needed[worst]} sentinels, and there "
                f"are {len(self.sentinel_token_ids)}. Raise `num_sentinels`, corrupt "
                "shorter rows, or use fewer, longer spans."
            )

    def _invalid(self, xp, token_ids):
        invalid = super()._invalid(xp, token_ids)
        sentinels = self.sentinel_token_ids
        if not sentinels:
            return invalid
        low, high = min(sentinels), max(sentinels)
        if high - low + 1 == len(sentinels):
            return invalid | ((token_ids >= low) & (token_ids <= high))
        return invalid | xp.any(token_ids[..., None] == xp.int32(sentinels))

    def _complaint(self):
        if not self.sentinel_token_ids:
            return super()._complaint()
        return (
            f"{super()._complaint()}, and not one of the sentinels "
            f"{_in_short(self.sentinel_token_ids)}, which a text must not contain"
        )

    def _complaint_of_row(self):
        return (
            "`noise_mask` marks special tokens, or needs more sentinels than the "
            f"{len(self.sentinel_token_ids)} there are"
        )

    # The kernel.

    def _corrupt(self, xp, draws, rows):
        if rows.given is None:
            return self._corrupt_afresh(xp, draws, rows)
        noise = self._within_budget(xp, rows, rows.given & rows.candidates)
        lengths = self._lengths_for_any_mask(rows.positions.shape[-1])
        outputs = self._sequences(xp, draws, rows, noise, lengths)
        return {**outputs, "clamped": xp.sum(rows.given) - xp.sum(noise)}

    def _corrupt_afresh(self, xp, draws, rows):
        lengths = self._plan(rows.positions.shape[-1])
        noise = self._noise(xp, draws, rows)
        return self._sequences(xp, draws, rows, noise, lengths)

    def _place_spans(self, xp, draws, rows, noise, spans, most, anywhere=False):
        """A noise mask of `noise` candidates in `spans` spans, (..., 1) and <= most."""
        length, candidates = rows.positions.shape[-1], rows.candidates
        starts, ends = random_spans(
            xp,
            draws,
            noise,
            spans,
            xp.sum(candidates),
            max(length, 1),
            max(most, 1),
            anywhere,
        )
        inside, first = mask_of_spans(xp, starts, ends, length)
        inside = spread(xp, inside, candidates)
        if not self.special_token_ids:
            return inside
        return cut_at_gaps(xp, inside, spread(xp, first, candidates), candidates)

    def _lengths_for_any_mask(self, length):
        decoder = length + self._announces_noise + self.closing_sentinel
        end = self._end_length
        return length + end, (length if self.targets == "full" else decoder) + end

    def _within_budget(self, xp, rows, noise):
        """Ends the noise where it would need a sentinel too many."""
        if not self._numbers_spans:
            return noise
        spans = xp.cumsum(run_starts(xp, noise))
        marks = xp.sum(run_starts(xp, self._marked(rows, noise)))
        needed = xp.maximum(xp.sum(run_starts(xp, noise)), marks)
        available = len(self.sentinel_token_ids) - self.closing_sentinel
        return noise & ((needed <= available) | (spans < available))

    def _marked(self, rows, noise):
        """What the target's sentinels stand for."""
        return noise if self._announces_noise else rows.real & ~noise

    def _sequences(self, xp, draws, rows, noise, lengths, marked=None, before=()):
        """Both sides' sequences. Rows not `marked` (..., 1) have no sentinels; `before`
        are parts that precede the encoder's text.
        """
        if marked is None:
            marked = xp.sum(rows.real) >= 0
        shown, sign = self._signs(xp, draws, rows, noise)
        visible = (rows.real & ~noise) | (shown & marked)
        text = (rows.positions, visible, xp.where(noise, sign, rows.token_ids))
        encoder = self._encoder(xp, rows, [*before, text], lengths[0])
        if self.targets == "full":
            return {**encoder, **self._full_decoder(xp, rows)}
        parts = [(rows.positions, noise, rows.token_ids)]
        if self.targets == "sentinels":
            starts = run_starts(xp, self._marked(rows, noise))
            sentinels = self._sentinel(xp, xp.cumsum(starts) - 1)
            parts.insert(0, (rows.positions, starts & marked, sentinels))
            if self.closing_sentinel:
                last = rows.real & ~shift_left(xp, rows.real)
                if not self._announces_noise:  # T5's rule closes a visible end anyway.
                    last = last & noise
                keep = marked & (xp.sum(last) > 0)
                closing = self._sentinel(xp, xp.sum(starts))
                parts.append(single(xp, rows, rows.positions.shape[-1], keep, closing))
        return {**encoder, **self._decoder(xp, rows, parts, lengths[1])}

    def _signs(self, xp, draws, rows, noise):
        """Which noise tokens the encoder reads a sign for, and the signs."""
        starts = run_starts(xp, noise)
        if self.inputs == "drop":
            return noise & ~noise, rows.token_ids
        if self.inputs == "sentinels":
            return starts, self._sentinel(xp, xp.cumsum(starts) - 1)
        signs = rows.token_ids * 0 + self.sentinel_token_ids[0]
        if self.inputs == "sentinel":
            return starts, signs
        if self.random_share:
            exclude = {*self.special_token_ids, *self.sentinel_token_ids}
            random_ids = self._random_token_ids(
                xp, draws, "random token", rows.positions, exclude
            )
            draw = draws.unit("replacement", rows.positions)
            signs = xp.where(draw < threshold(self.random_share), random_ids, signs)
        return noise, signs

    def _sentinel(self, xp, number):
        last = len(self.sentinel_token_ids) - 1
        number = xp.minimum(xp.maximum(number, 0), last)
        return xp.take(np.array(self.sentinel_token_ids, np.int32), number)


def shift_left(xp, x):
    return xp.concatenate([x[..., 1:], x[..., :1] ^ x[..., :1]])


def _in_short(ids):
    return f"{ids[0]}..{ids[-1]}" if len(ids) > 4 else f"{list(ids)}"
