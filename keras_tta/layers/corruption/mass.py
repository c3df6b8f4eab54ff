"""MASS: masked sequence to sequence pretraining.

Axes: B batch, T sequence, K tokens to predict.
"""

import keras
import numpy as np

from keras_tta.checks import check_positive
from keras_tta.layers.corruption.draws import threshold
from keras_tta.layers.corruption.masker import Masker
from keras_tta.layers.corruption.selection import (
    positions_of,
    round_half_even,
    shift_right,
)
from keras_tta.layers.corruption.spans import spread


@keras.saving.register_keras_serializable(package="keras_tta")
class MASSDenoising(Masker):
    """Hides one span of a row from the encoder; the decoder gives it back.

    The span holds `round(span_share * n)` of the n maskable tokens (real, not special,
    not the row's first), at least one. The encoder reads the row with the span masked,
    and the decoder's cross-attention is barred from the masked slots; the decoder reads
    each hidden token's predecessor, at the predecessor's position in the row. (MASS,
    section 3; the figure's [M] before the span is, in the authors' code, the token that
    stands there.)

    | hidden x3 x4 x5 | x0 | x1 | x2 | x3 | x4 | x5 | x6 |
    |---|---|---|---|---|---|---|---|
    | encoder | x0 | x1 | x2 | [M] | [M] | [M] | x6 |
    | decoder, and its positions | | | x2, 2 | x3, 3 | x4, 4 | | |
    | labels | | | x3 | x4 | x5 | | |

    No end token is added to either side: rows bring their own.

    Args:
        vocabulary_size: ids are in [0, vocabulary_size).
        mask_token_id: the id of [MASK], special without being listed.
        span_share: defaults to 0.5.
        start_share, end_share: how often the span starts the maskable tokens, or ends
            them; otherwise it is anywhere. Default to 0.2 each, as in the authors'
            unsupervised translation.
        mask_share, random_share: shares of the hidden tokens that become [MASK], the
            default for all, or a random token; the others are kept. The authors'
            unsupervised translation has 0.8 and 0.1.
        pad_token_id: fills what the decoder does not need; defaults to 0.
        special_token_ids, seed, static_copies: see `Masker`.

    Call arguments:
        token_ids: int (B, T).
        padding_mask: bool or int (B, T), 1 for real tokens; all are real by default.
        training: whether to draw afresh.

    Returns:
        A dict: `encoder_token_ids` and `encoder_padding_mask` (bool) (B, T);
        `cross_attention_mask` (bool) (B, T), false also in the hidden slots;
        `decoder_token_ids`, `decoder_position_ids`, `decoder_padding_mask` (bool),
        `labels` and `sample_weight` (B, K), K for a row of T; `num_clamped` (B,).

    Raises:
        ValueError: for shares that are not shares, ids outside the vocabulary, or a
            T that is unknown; and, in eager calls, for tokens outside the vocabulary.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import MASSDenoising

    mass = MASSDenoising(100, mask_token_id=4, special_token_ids=(2, 3))
    token_ids = np.array([[2, 10, 11, 12, 13, 14, 15, 3]])
    batch = mass.corrupt(token_ids, None, np.isin(token_ids, (12, 13, 14)))
    assert batch["encoder_token_ids"].tolist() == [[2, 10, 11, 4, 4, 4, 15, 3]]
    assert batch["decoder_token_ids"][0, :3].tolist() == [11, 12, 13]
    assert batch["decoder_position_ids"][0, :3].tolist() == [2, 3, 4]
    assert batch["labels"][0, :3].tolist() == [12, 13, 14]
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        mask_token_id,
        span_share=0.5,
        start_share=0.2,
        end_share=0.2,
        mask_share=1.0,
        random_share=0.0,
        pad_token_id=0,
        special_token_ids=(),
        **kwargs,
    ):
        super().__init__(vocabulary_size, special_token_ids, **kwargs)
        self._check_id("pad_token_id", pad_token_id)
        self.pad_token_id = pad_token_id
        self._make_special("mask_token_id", mask_token_id)
        self.mask_token_id = mask_token_id
        check_positive(self, span_share=span_share)
        self._check_shares(span_share=span_share)
        self._check_shares(start_share=start_share, end_share=end_share)
        self._check_shares(mask_share=mask_share, random_share=random_share)
        self._check_random_tokens(random_share, self.special_token_ids)
        self.span_share = span_share
        self.start_share = start_share
        self.end_share = end_share
        self.mask_share = mask_share
        self.random_share = random_share

    def corrupt(self, token_ids, padding_mask, noise_mask):
        """Hides the tokens of a mask of the caller's, as `SpanCorruption.corrupt`.

        A mask that marks special tokens or a row's first token is an error.
        """
        return self._corrupt_given(token_ids, padding_mask, noise_mask)

    def get_config(self):
        return {
            **super().get_config(),
            "mask_token_id": self.mask_token_id,
            "pad_token_id": self.pad_token_id,
            "span_share": self.span_share,
            "start_share": self.start_share,
            "end_share": self.end_share,
            "mask_share": self.mask_share,
            "random_share": self.random_share,
        }

    def _complaint_of_row(self):
        return "`noise_mask` marks a special token or the row's first token"

    def _plan(self, length):
        """How many tokens to hide for each number 0..length of maskable ones."""
        lengths = np.arange(length + 1)
        counts = round_half_even(lengths, self.span_share)
        return np.maximum(counts, np.minimum(lengths, 1)).astype(np.int32)

    def _corrupt(self, xp, draws, rows):
        length = rows.positions.shape[-1]
        maskable = rows.candidates & (xp.cumsum(rows.real) > 1)
        if rows.given is None:
            hidden = self._span(xp, draws, maskable)
            most, clamped = int(self._plan(max(length - 1, 0)).max()), 0
        else:
            hidden, most = rows.given & maskable, length
            clamped = xp.sum(rows.given) - xp.sum(hidden)

        slots = positions_of(xp, hidden)[..., :most]
        used = slots < length
        slots = xp.where(used, slots, slots * 0)
        padding = slots * 0 + self.pad_token_id

        def at_slots(values):
            return xp.where(used, xp.take_along(values, slots), padding)

        return {
            "encoder_token_ids": self._masked(xp, draws, rows, hidden),
            "encoder_padding_mask": rows.real,
            "cross_attention_mask": rows.real & ~hidden,
            "decoder_token_ids": at_slots(shift_right(xp, rows.token_ids)),
            "decoder_position_ids": xp.maximum(slots - 1, 0),
            "decoder_padding_mask": used,
            "labels": at_slots(rows.token_ids),
            "sample_weight": xp.int32(used),
            "clamped": clamped,
        }

    def _span(self, xp, draws, maskable):
        length = maskable.shape[-1]
        total = xp.sum(maskable)
        size = xp.take(self._plan(length), total)
        draw = draws.unit("where", xp.int32([0]))
        start = draws.below("start", xp.int32([0]), total - size + 1)
        at_end = draw >= threshold(1 - self.end_share)
        start = xp.where(at_end, total - size, start)
        start = xp.where(draw < threshold(self.start_share), start * 0, start)
        place = xp.arange(length)
        return spread(xp, (place >= start) & (place < start + size), maskable)
