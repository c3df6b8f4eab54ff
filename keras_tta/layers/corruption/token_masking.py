"""Token masking for masked language models: BERT's, ELECTRA's, whole words, spans.

Axes: B batch, T sequence, K predictions a row.
"""

import keras
import numpy as np

from keras_tta.checks import check_positive_integers
from keras_tta.layers.corruption.masker import MAX_LENGTH, Masker
from keras_tta.layers.corruption.selection import (
    choose,
    choose_units,
    positions_of,
    round_half_even,
    span_starts,
    word_starts,
)

SPAN_LENGTH = 10  # the longest span by default, as in SpanBERT, section 3.1


@keras.saving.register_keras_serializable(package="keras_tta")
class TokenMasking(Masker):
    """Hides an exact number of a row's tokens, for a model to predict them.

    Of a row's n maskable tokens (real, not special), `round(mask_rate * n)` are chosen
    without replacement, at least one if there is one: float64, halves to even, as in
    BERT. Each is then replaced by [MASK] (`mask_share`) or by a random token
    (`random_share`), or kept. The model reads `token_ids` and predicts `labels` at
    `masked_positions`; the slots a row does not need have position, label and weight 0.
    A row without maskable tokens is left as it is and has weight 0 throughout.

    | recipe | settings |
    |---|---|
    | BERT, RoBERTa | the defaults: 80 % mask, 10 % random, 10 % kept |
    | ELECTRA | `mask_share=0.85, random_share=0.0` |
    | T5's, Electric's and others' plain masks | `mask_share=1.0, random_share=0.0` |
    | whole words | `whole_word=True` and `word_ids` |
    | SpanBERT | `span_p=0.2, replace_per_unit=True` |
    | BERT's duplicated corpus | `static_copies=10` |

    Whole words are taken in random order; one that exceeds what is left of the number
    is skipped for smaller ones (BERT's `create_masked_lm_predictions`), so a row may
    fall a few tokens short; where that would leave nothing to predict, one of the row's
    shortest words is taken if it fits into K. Spans fill the number exactly: the last
    is cut. SpanBERT places spans one after another; here a row is tiled into spans of
    the same lengths and tiles are chosen, so they never overlap; the few positions at a
    row's ends are chosen a little more often. Spans of whole words follow the rule of
    words.

    See `keras_tta.layers.Masker` for the entry points, the seed and static copies.

    Args:
        vocabulary_size: ids are in [0, vocabulary_size).
        mask_token_id: the id of [MASK], special without being listed.
        special_token_ids: ids never masked and never predicted: [PAD], [CLS], ...
        mask_rate: share of tokens to predict, in [0, 1]. Defaults to 0.15.
        mask_share: share of the chosen tokens to replace by [MASK]. Defaults to 0.8.
        random_share: share to replace by a random token. Defaults to 0.1.
        max_predictions: most predictions in a row; None, the default, is no limit.
            BERT's `max_predictions_per_seq`.
        count_specials: whether `mask_rate` is a share of all real tokens, as in BERT
            and ELECTRA, instead of the maskable ones. Defaults to False.
        random_specials: whether a random token may be a special one, as in BERT.
            Defaults to False.
        whole_word: whether all tokens of a word are masked together. Defaults to False.
        span_p: None, the default, or the p of geometric span lengths: whole spans of
            tokens (of words, with `whole_word`) are masked.
        max_span_length: the longest span, with `span_p`; None, the default, is 10.
        replace_per_unit: whether mask, random or kept is drawn once a word or span
            (RoBERTa, SpanBERT) instead of once a token (BERT). Defaults to False.
        seed, static_copies: see `Masker`.

    Call arguments:
        token_ids: int (B, T).
        padding_mask: bool or int (B, T), 1 for real tokens; all are real by default.
        word_ids: int (B, T), needed by `whole_word`: neighbours with the same id are
            one word. Word ids of special tokens are not looked at.
        training: whether to draw afresh.

    Returns:
        A dict of int32 tensors: `token_ids` (B, T), what the model reads;
        `masked_positions`, ascending, `labels` and `sample_weight` (B, K), where K is
        the number for a row of T; the same as a dense view, `dense_labels` and
        `dense_sample_weight` (B, T), which are 0 where nothing is predicted; and
        `num_clamped` (B,).

    Raises:
        ValueError: for shares that are not shares, ids outside the vocabulary, or a
            T that is unknown; and, in eager calls, for tokens outside the vocabulary.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import TokenMasking

    masking = TokenMasking(100, mask_token_id=4, special_token_ids=(0, 1, 3))
    token_ids = np.array([[3, 17, 62, 35, 48, 90, 21, 55, 1, 0]])
    masked = masking.numpy(token_ids, token_ids != 0, key=7)
    position = masked["masked_positions"][0, 0]
    assert masked["labels"][0, 0] == token_ids[0, position]
    assert masked["sample_weight"].sum() == 1  # round(0.15 * 7)
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        mask_token_id,
        special_token_ids=(),
        mask_rate=0.15,
        mask_share=0.8,
        random_share=0.1,
        max_predictions=None,
        count_specials=False,
        random_specials=False,
        whole_word=False,
        span_p=None,
        max_span_length=None,
        replace_per_unit=False,
        **kwargs,
    ):
        super().__init__(vocabulary_size, special_token_ids, **kwargs)
        self._make_special("mask_token_id", mask_token_id)
        self._check_shares(mask_rate=mask_rate)
        self._check_shares(mask_share=mask_share, random_share=random_share)
        self.mask_token_id = int(mask_token_id)
        self.mask_rate = mask_rate
        self.mask_share = mask_share
        self.random_share = random_share
        if max_predictions is not None and max_predictions < 1:
            raise ValueError(
                "`max_predictions` must be None (no limit) or at least 1; for no "
                "predictions, use `mask_rate=0.0`. Received: "
                f"max_predictions={max_predictions!r}"
            )
        if span_p is not None and not 0 < span_p < 1:
            raise ValueError(
                "`span_p` must be None (no spans) or between 0 and 1, the chance that "
                "a span ends after each token; SpanBERT's is 0.2. Received: "
                f"span_p={span_p!r}"
            )
        if max_span_length is not None:
            check_positive_integers(self, max_span_length=max_span_length)
            if max_span_length > MAX_LENGTH:
                raise ValueError(
                    f"`max_span_length` must be at most {MAX_LENGTH}, as rows are. "
                    f"Received: max_span_length={max_span_length}"
                )
            if span_p is None:
                raise ValueError(
                    "`max_span_length` needs spans: set `span_p`. Received: "
                    f"max_span_length={max_span_length}, span_p=None"
                )
        if replace_per_unit and not whole_word and span_p is None:
            raise ValueError(
                "`replace_per_unit` needs units of several tokens: set `whole_word` or "
                "`span_p`. Received: replace_per_unit=True, whole_word=False, "
                "span_p=None"
            )
        self._excluded = () if random_specials else self.special_token_ids
        self._check_random_tokens(random_share, self._excluded)
        self.max_predictions = max_predictions
        self.count_specials = count_specials
        self.random_specials = random_specials
        self.whole_word = whole_word
        self.span_p = span_p
        self.max_span_length = max_span_length
        self.replace_per_unit = replace_per_unit

    def build(self, token_ids_shape, padding_mask_shape=None, word_ids_shape=None):
        super().build(token_ids_shape, padding_mask_shape)

    def call(self, token_ids, padding_mask=None, word_ids=None, training=None):
        return self._call(training, token_ids, padding_mask, word_ids=word_ids)

    def compute_output_spec(
        self, token_ids, padding_mask=None, word_ids=None, training=None
    ):
        return self._output_spec(token_ids, word_ids=word_ids)

    def numpy(self, token_ids, padding_mask=None, key=None, word_ids=None):
        """Masks NumPy rows, (B, T) or one row (T,); `key` is as for every `Masker`."""
        return self._numpy(key, token_ids, padding_mask, word_ids=word_ids)

    def count_masked(self, token_ids, padding_mask):
        """How many tokens of each row will be masked, whatever is drawn.

        Args:
            token_ids: int (B, T), NumPy.
            padding_mask: bool or int (B, T), NumPy.

        Returns:
            NumPy int32 (B,).

        Raises:
            ValueError: with `whole_word`, where the number depends on which words are
                drawn.
        """
        if self.whole_word:
            raise ValueError(
                "With `whole_word=True` the number of masked tokens is known only once "
                "words are drawn, and gradient accumulation needs to know it before: "
                "use larger batches without accumulation."
            )
        real = np.asarray(padding_mask) != 0
        inside = (token_ids >= 0) & (token_ids < self.vocabulary_size)
        candidates = real & inside & ~np.isin(token_ids, self.special_token_ids)
        counted = real if self.count_specials else candidates
        counts = self._plan(token_ids.shape[1])[counted.sum(axis=1)]
        return np.minimum(counts, candidates.sum(axis=1, dtype=np.int32))

    def get_config(self):
        return {
            **super().get_config(),
            "mask_token_id": self.mask_token_id,
            "mask_rate": self.mask_rate,
            "mask_share": self.mask_share,
            "random_share": self.random_share,
            "max_predictions": self.max_predictions,
            "count_specials": self.count_specials,
            "random_specials": self.random_specials,
            "whole_word": self.whole_word,
            "span_p": self.span_p,
            "max_span_length": self.max_span_length,
            "replace_per_unit": self.replace_per_unit,
        }

    def _input_names(self):
        return (*super()._input_names(), *(("word_ids",) if self.whole_word else ()))

    def _plan(self, length):
        """How many tokens to predict for each count 0..length of tokens."""
        lengths = np.arange(length + 1)
        counts = round_half_even(lengths, self.mask_rate)
        if self.mask_rate > 0:
            counts = np.maximum(counts, np.minimum(lengths, 1))
        if self.max_predictions is not None:
            counts = np.minimum(counts, self.max_predictions)
        return counts.astype(np.int32)

    def _corrupt(self, xp, draws, rows):
        token_ids, candidates = rows.token_ids, rows.candidates
        length = token_ids.shape[-1]
        counts = self._plan(length)
        counted = rows.real if self.count_specials else candidates
        count = xp.minimum(xp.take(counts, xp.sum(counted)), xp.sum(candidates))
        most = int(counts.max())
        chosen, unit = self._choose(xp, draws, rows, count, most)

        index = unit if self.replace_per_unit else rows.positions
        slots = positions_of(xp, chosen)[..., :most]
        used = slots < length
        slots = xp.where(used, slots, slots * 0)
        labels = xp.take_along(token_ids, slots)
        return {
            "token_ids": self._masked(xp, draws, rows, chosen, index, self._excluded),
            "masked_positions": slots,
            "labels": xp.where(used, labels, slots * 0),
            "sample_weight": xp.int32(used),
            "dense_labels": xp.where(chosen, token_ids, token_ids * 0),
            "dense_sample_weight": xp.int32(chosen),
        }

    def _choose(self, xp, draws, rows, count, most):
        """The chosen tokens, and where the unit of each position starts."""
        candidates, positions = rows.candidates, rows.positions
        if not self.whole_word and self.span_p is None:
            keys = draws.shuffled("order", positions, candidates)
            return candidates & choose(xp, keys, count), positions
        first = candidates
        if self.whole_word:
            if rows.word_ids is None:
                raise ValueError(
                    "`whole_word=True` needs `word_ids`, int (B, T), which number the "
                    "words of a row. Received: word_ids=None"
                )
            first = word_starts(xp, candidates, rows.word_ids)
        if self.span_p is not None:
            longest = self.max_span_length or SPAN_LENGTH
            first = span_starts(xp, draws, first, candidates, self.span_p, longest)
        cut = self.span_p is not None and not self.whole_word
        return choose_units(xp, draws, first, candidates, count, most, cut)
