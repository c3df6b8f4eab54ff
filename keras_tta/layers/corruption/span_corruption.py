"""Span corruption, T5's objective.

Axes: B batch, T sequence, S encoder (source), U decoder.
"""

import keras
import numpy as np

from keras_tta.checks import check_fraction
from keras_tta.layers.corruption.noise import NoiseMasker
from keras_tta.layers.corruption.spans import noise_counts


@keras.saving.register_keras_serializable(package="keras_tta")
class SpanCorruption(NoiseMasker):
    """Replaces spans of a row by sentinels and asks for what they held: T5's objective.

    With <X>, <Y> for the sentinels, which count down from the end of the vocabulary:

        text      Thank you for inviting me to your party last week .
        encoder   Thank you <X> me to your party <Y> week . [EOS]
        labels    <X> for inviting <Y> last [EOS]

    Of a row's n tokens `round(noise_density * n)` are noise (float64, halves to even;
    at least 1, at most n - 1), in `round(noise / mean_noise_span_length)` spans, at
    least 1 and at most as many as there are noise or visible tokens. The lengths of
    spans and of the gaps between them are uniform compositions, as in T5's
    `random_spans_noise_mask`: a row starts with a visible token and ends with noise. A
    row of one token has no noise. With special tokens, a span that would reach across
    one ends there.

    The targets are those of T5's code: a sentinel for each visible span, with the noise
    that follows it. In T5's own masks that is the sentinel of the noise span. Where
    given masks (`corrupt`) begin with noise, T5's targets begin without a sentinel, and
    where they end visible, the targets end with one.

    Args:
        vocabulary_size: the sentinels included.
        num_sentinels: defaults to 100: the ids from `vocabulary_size - 1` down.
        noise_density: defaults to 0.15.
        mean_noise_span_length: defaults to 3.
        spans_anywhere: makes every mask of separate spans equally likely, with noise at
            the first token or none at the last. Each noise span then has its own
            sentinel in the targets. Defaults to False.
        strict: raises where the density and mean length ask for more spans than a
            row of any length up to T has noise or visible tokens, instead of taking
            fewer. Defaults to False.
        t5_exact: computes the numbers as T5's code does: those of the mask in float32,
            those of `expanded_length` without their limits. Defaults to False.
        inputs, targets, random_share, closing_sentinel, sentinel_token_ids,
            pad_token_id, start_token_id, end_token_id, special_token_ids, seed,
            static_copies: see `NoiseMasker`, `Seq2SeqMasker` and `Masker`.

    Call arguments:
        token_ids: int (B, T), plain text without sentinels.
        padding_mask: bool or int (B, T), 1 for real tokens; all are real by default.
        training: whether to draw afresh.

    Returns:
        A dict: `encoder_token_ids` (B, S), `encoder_padding_mask` (bool),
        `decoder_token_ids` (B, U), `decoder_padding_mask` (bool), `labels` and
        `sample_weight` (B, U), and `num_clamped` (B,).

    Raises:
        ValueError: when built, if rows of T can need more sentinels than there are;
            at construction, if the sentinels collide with other special tokens; in
            eager calls, if a text contains a sentinel.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import SpanCorruption

    corruption = SpanCorruption(100, num_sentinels=20)
    token_ids = np.arange(10, 26)[None]
    batch = corruption.numpy(token_ids, key=0)
    assert batch["encoder_token_ids"][0, -2:].tolist() == [99, 1]  # <X> [EOS]
    assert batch["labels"].tolist() == [[99, 24, 25, 1]]

    mask = np.isin(token_ids, (12, 13, 20))
    batch = corruption.corrupt(token_ids, None, mask)
    assert batch["labels"][0, :7].tolist() == [99, 12, 13, 98, 20, 97, 1]
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        num_sentinels=None,
        noise_density=0.15,
        mean_noise_span_length=3.0,
        spans_anywhere=False,
        strict=False,
        t5_exact=False,
        **kwargs,
    ):
        super().__init__(vocabulary_size, num_sentinels, **kwargs)
        check_fraction(self, noise_density=noise_density)
        if mean_noise_span_length < 1:
            raise ValueError(
                "`mean_noise_span_length` must be at least 1. Received: "
                f"mean_noise_span_length={mean_noise_span_length!r}"
            )
        self.noise_density = float(noise_density)
        self.mean_noise_span_length = float(mean_noise_span_length)
        self.spans_anywhere = spans_anywhere
        self.strict = strict
        self.t5_exact = t5_exact

    def expanded_length(self, input_length, t5_exact=None):
        """How many raw tokens fill an encoder input of `input_length`, end included.

        By default the numbers are those of the mask, limits included, so the input is
        never longer. With `t5_exact` (by default the layer's) they are those of T5's
        `random_spans_helper`, which promises too much for some short lengths.
        """
        t5_exact = self.t5_exact if t5_exact is None else t5_exact
        if t5_exact:
            return self._t5_expanded_length(input_length)
        length = 0
        longest = 2 * input_length + 2
        while length == 0 or length == longest:  # Not long enough yet: look further.
            longest *= 2
            lengths = np.arange(longest + 1)
            kept = self._kept(lengths, *self._noise_plan(longest))
            fits = kept + self._end_length <= input_length
            if not fits[1]:
                raise ValueError(
                    "`input_length` must hold at least one token and the end token. "
                    f"Received: input_length={input_length}"
                )
            length = int(np.flatnonzero(fits)[-1])
        return length

    def _t5_expanded_length(self, input_length):
        def lengths(tokens):
            noise = round(tokens * self.noise_density)
            spans = round(noise / self.mean_noise_span_length)
            return tokens - noise + spans + 1, noise + spans + 1

        tokens = input_length - 1
        while lengths(tokens + 1)[0] <= input_length:
            tokens += 1
        inputs, targets = lengths(tokens)
        # T5 takes a token less where the targets would outgrow the inputs.
        return tokens - (self.noise_density == 0.5 and targets > inputs)

    def get_config(self):
        return {
            **super().get_config(),
            "noise_density": self.noise_density,
            "mean_noise_span_length": self.mean_noise_span_length,
            "spans_anywhere": self.spans_anywhere,
            "strict": self.strict,
            "t5_exact": self.t5_exact,
        }

    @property
    def _announces_noise(self):
        return self.spans_anywhere

    def _noise_plan(self, length):
        noise, spans = noise_counts(
            length, self.noise_density, self.mean_noise_span_length, self.t5_exact
        )
        most = np.minimum(noise, np.arange(length + 1) - noise)
        if self.strict and np.any(spans > most):
            worst = int(np.argmax(spans > most))
            raise ValueError(
                f"A row of {worst} tokens has {noise[worst]} noise and "
                f"{worst - noise[worst]} visible tokens, too few for {spans[worst]} "
                "spans. Lower `noise_density`, raise `mean_noise_span_length`, or "
                "take fewer spans with `strict=False`."
            )
        return noise, np.minimum(spans, most)

    def _noise(self, xp, draws, rows):
        noise, spans = self._noise_plan(rows.token_ids.shape[-1])
        total = xp.sum(rows.candidates)
        return self._place_spans(
            xp,
            draws,
            rows,
            xp.take(noise.astype(np.int32), total),
            xp.take(spans.astype(np.int32), total),
            int(spans.max()),
            self.spans_anywhere,
        )
