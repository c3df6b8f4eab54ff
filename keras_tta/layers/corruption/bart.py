"""BART's five noises: masking, deletion, infilling, sentence permutation, rotation.

Axes: B batch, T sequence, M masks a row.
"""

import keras
import numpy as np

from keras_tta.layers.corruption.draws import low_mask, threshold
from keras_tta.layers.corruption.selection import (
    ceiling,
    choose,
    positions_of,
    shift_right,
)
from keras_tta.layers.corruption.seq2seq import Seq2SeqMasker
from keras_tta.layers.corruption.spans import mask_of_spans, spread

UNLIKELY = 1e-7  # the first span length rarer than this is the longest, as in fairseq


@keras.saving.register_keras_serializable(package="keras_tta")
class BARTDenoising(Seq2SeqMasker):
    """Noises a row in up to five ways; the decoder gives the whole row back.

    In this order, each on what the one before left:

    1. *Sentence permutation*: `permutation_rate` of the sentences, rounded up, change
       places among themselves.
    2. *Text infilling*: spans of Poisson lengths that hold `infilling_rate` of the
       tokens, rounded up, each become one [MASK]; a span of length 0 puts a [MASK]
       between two tokens.
    3. *Token masking*: `masking_rate` of the tokens, rounded up, become [MASK].
    4. *Token deletion*: `deletion_rate` of the tokens, rounded up, go.
    5. *Document rotation*: `rotation_rate` of the rows start at a random token and
       continue from their start.

    Numbers are exact, of the row's maskable tokens (real, not special). In fairseq's
    `DenoisingDataset`, spans overlap and remove fewer tokens, and spans of length 0 can
    push a row past its length; here spans never overlap, all their places are equally
    likely, and a row has at most as many spans as tokens to remove, so the encoder
    never reads more than T tokens and the end token.

    BART is `permutation_rate=1.0` and the defaults; mBART, the same with
    `infilling_rate=0.35, poisson_lambda=3.5`. Special tokens at a row's ends stay
    there; one inside is never masked or removed, but moves with its sentence.

    Args:
        vocabulary_size: ids are in [0, vocabulary_size).
        mask_token_id: the id of [MASK], special without being listed.
        infilling_rate: defaults to 0.3.
        poisson_lambda: mean span length; defaults to 3.
        masking_rate, deletion_rate, permutation_rate, rotation_rate: default to 0.
        sentence_end_token_ids: the tokens that end a sentence, needed by sentence
            permutation. Of several in a row, the first does.
        random_share: share of masks that are a random token instead; defaults to 0.
        pad_token_id, start_token_id, end_token_id: see `Seq2SeqMasker`. fairseq's BART
            has 1, 2 and 2.
        special_token_ids, seed, static_copies: see `Masker`.

    Call arguments and returns: as those of `SpanCorruption`.

    Raises:
        ValueError: for shares that are not shares, a `poisson_lambda` that is not above
            0, `permutation_rate` without `sentence_end_token_ids`, ids outside the
            vocabulary, or a T that is unknown; and, in eager calls, for tokens outside
            the vocabulary.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import BARTDenoising

    bart = BARTDenoising(100, mask_token_id=4)
    batch = bart.numpy(np.arange(10, 30)[None], key=0)
    read = batch["encoder_token_ids"]
    assert np.sum((read >= 10) & (read < 30)) == 20 - 6
    assert batch["labels"][0].tolist() == [*range(10, 30), 1]
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        mask_token_id,
        infilling_rate=0.3,
        poisson_lambda=3.0,
        masking_rate=0.0,
        deletion_rate=0.0,
        permutation_rate=0.0,
        rotation_rate=0.0,
        sentence_end_token_ids=(),
        random_share=0.0,
        **kwargs,
    ):
        super().__init__(vocabulary_size, **kwargs)
        self._make_special("mask_token_id", mask_token_id)
        self.mask_token_id = mask_token_id
        self._check_shares(
            infilling_rate=infilling_rate,
            masking_rate=masking_rate,
            deletion_rate=deletion_rate,
        )
        for name, share in (
            ("permutation_rate", permutation_rate),
            ("rotation_rate", rotation_rate),
            ("random_share", random_share),
        ):
            self._check_shares(**{name: share})
        self._check_random_tokens(random_share, self.special_token_ids)
        if not poisson_lambda > 0:
            raise ValueError(
                "`poisson_lambda` must be positive. Received: "
                f"poisson_lambda={poisson_lambda!r}"
            )
        sentence_end_token_ids = tuple(sentence_end_token_ids)
        for token_id in sentence_end_token_ids:
            self._check_id("sentence_end_token_ids", token_id)
        if permutation_rate and not sentence_end_token_ids:
            raise ValueError(
                "`permutation_rate` needs `sentence_end_token_ids`, the ids of tokens "
                "such as the full stop: without them no sentence would ever move. "
                f"Received: permutation_rate={permutation_rate}, "
                f"sentence_end_token_ids={sentence_end_token_ids}"
            )
        self.infilling_rate = infilling_rate
        self.poisson_lambda = poisson_lambda
        self.masking_rate = masking_rate
        self.deletion_rate = deletion_rate
        self.permutation_rate = permutation_rate
        self.rotation_rate = rotation_rate
        self.sentence_end_token_ids = tuple(map(int, sentence_end_token_ids))
        self.random_share = random_share

    def get_config(self):
        return {
            **super().get_config(),
            "mask_token_id": self.mask_token_id,
            "infilling_rate": self.infilling_rate,
            "poisson_lambda": self.poisson_lambda,
            "masking_rate": self.masking_rate,
            "deletion_rate": self.deletion_rate,
            "permutation_rate": self.permutation_rate,
            "rotation_rate": self.rotation_rate,
            "sentence_end_token_ids": self.sentence_end_token_ids,
            "random_share": self.random_share,
        }

    def _plan(self, length):
        """Tokens to infill, to mask and to delete, for each number of maskable ones."""
        lengths = left = np.arange(length + 1)
        counts = []
        for rate in (self.infilling_rate, self.masking_rate, self.deletion_rate):
            counts.append(np.minimum(ceiling(lengths, rate), left).astype(np.int32))
            left = left - counts[-1]
        return counts

    def _corrupt(self, xp, draws, rows):
        length = rows.positions.shape[-1]
        infilled, masked, deleted = self._plan(length)
        token_ids, candidates = rows.token_ids, rows.candidates
        total = xp.sum(candidates)
        if self.permutation_rate:
            order = self._permuted(xp, draws, rows)
            token_ids = xp.take_along(token_ids, order)
            # No bool is gathered: PyTorch and XLA agree best on integers.
            candidates = xp.take_along(xp.int32(candidates), order) > 0

        parts, visible = [], candidates
        if infilled.any():
            part, hidden = self._infilled(
                xp, draws, candidates, xp.take(infilled, total), int(infilled.max())
            )
            parts.append(part)
            visible = visible & ~hidden
        keys = draws.shuffled("order", rows.positions, visible)
        masked = xp.take(masked, total)
        masks = visible & choose(xp, keys, masked)
        gone = visible & ~masks & choose(xp, keys, masked + xp.take(deleted, total))
        signs = self._mask_signs(xp, draws, "mask", rows.positions) + token_ids * 0
        kept = (rows.real & ~candidates) | (visible & ~gone)
        parts.append((rows.positions, kept, xp.where(masks, signs, token_ids)))

        encoder = self._encoder(xp, rows, parts, length + self._end_length)
        if self.rotation_rate:
            encoder["encoder_token_ids"] = self._rotated(xp, draws, rows, encoder)
        return {**encoder, **self._full_decoder(xp, rows)}

    def _mask_signs(self, xp, draws, purpose, index):
        """[MASK], or its random replacement, for each index."""
        signs = draws.bits(purpose, index) * 0 + self.mask_token_id
        if not self.random_share:
            return signs
        random_ids = self._random_token_ids(
            xp, draws, f"random {purpose}", index, self.special_token_ids
        )
        replaced = draws.unit(f"replaced {purpose}", index)
        return xp.where(replaced < threshold(self.random_share), random_ids, signs)

    def _infilled(self, xp, draws, candidates, budget, most):
        """The masks to insert, as a part, and which candidates they hide."""
        length = candidates.shape[-1]
        total, draw = xp.sum(candidates), xp.arange(most)
        limits = [threshold(share) for share in poisson_shares(self.poisson_lambda)]
        drawn = xp.sum(draws.unit("span length", draw)[..., None] >= xp.int32(limits))[
            ..., 0
        ]
        # As many draws as fill the budget. The last one fills it exactly, and so must
        # the budget-th, so that there are at most as many masks as hidden tokens.
        before = xp.cumsum(drawn) - drawn
        used = (before < budget) & (draw < budget)
        rest = xp.maximum(budget - before, 0)
        drawn = xp.where(draw == budget - 1, rest, xp.minimum(drawn, rest))
        count = xp.sum(used)
        # From another draw on, so that the last span of a row is not the trimmed one.
        turn = draws.below("turn", xp.int32([0]), xp.maximum(count, 1))
        drawn = xp.take_along(drawn, (draw + turn) % xp.maximum(count, 1))
        drawn = xp.where(draw < count, drawn, drawn * 0)

        # Any order of the masks and of the tokens that stay is equally likely.
        slots = xp.arange(length)
        keys = draws.shuffled("spans", slots, slots < total - budget + count)
        slot = positions_of(xp, choose(xp, keys, count))[..., :most]
        starts = slot - draw + xp.cumsum(drawn) - drawn
        hidden, _ = mask_of_spans(xp, starts, starts + drawn, length)

        places = positions_of(xp, candidates)
        last = xp.take_along(places, xp.maximum(total - 1, 0))
        start = xp.minimum(starts, length - 1)
        position = xp.where(starts < total, xp.take_along(places, start), last + 1)
        signs = self._mask_signs(xp, draws, "infilling", draw)
        return (position, draw < count, signs), spread(xp, hidden, candidates)

    def _permuted(self, xp, draws, rows):
        """For each position, the position of the token that moves there."""
        length, position = rows.positions.shape[-1], rows.positions
        unit = low_mask(length) + 1
        lead, body, after = self._body(xp, rows)
        stops = xp.int32(self.sentence_end_token_ids)
        stop = body & xp.any(rows.token_ids[..., None] == stops)
        last = body & (xp.sum(lead) + xp.sum(body) == xp.cumsum(rows.real))
        ends = (stop & ~shift_right(xp, stop)) | (last & ~stop)
        sentence = xp.cumsum(ends) - xp.int32(ends)

        number = xp.sum(ends)
        counts = ceiling(np.arange(length + 1), self.permutation_rate)
        keys = draws.shuffled("sentences", position, position < number)
        moving = choose(xp, keys, xp.take(counts, number))
        keys = draws.shuffled("sentence order", position, moving)
        still = keys * 0 + position + 2**30
        movers = xp.sort(xp.where(moving, keys, still)) & (unit - 1)
        places = xp.sort(xp.where(moving, still - 2**30, still)) & (unit - 1)
        place = xp.sort(movers * unit + places) & (unit - 1)

        rank = 1 + xp.take_along(place, xp.minimum(sentence, length - 1))
        rank = xp.where(lead, rank * 0, xp.where(after, rank * 0 + length + 1, rank))
        return xp.sort(rank * unit + position) & (unit - 1)

    def _body(self, xp, rows):
        """What precedes the first maskable token, the body, and what follows it."""
        seen = xp.cumsum(rows.candidates)
        final = xp.where(rows.candidates, seen * 0 + rows.positions, seen * 0 - 1)
        final = xp.sort(final)[..., -1:]
        lead = seen == 0
        after = (rows.positions > final) & ~lead
        return lead, ~lead & ~after, after

    def _rotated(self, xp, draws, rows, encoder):
        token_ids = encoder["encoder_token_ids"]
        lead, _, after = self._body(xp, rows)
        start = xp.sum(lead & rows.real)
        size = xp.sum(encoder["encoder_padding_mask"]) - start
        size = size - xp.sum(after & rows.real) - self._end_length
        place = xp.arange(token_ids.shape[-1]) - start
        turn = draws.below("rotation", xp.int32([0]), xp.maximum(size, 1))
        inside = (place >= 0) & (place < size)
        inside = inside & (
            draws.unit("rotated", xp.int32([0])) < threshold(self.rotation_rate)
        )
        source = xp.where(inside, (place + turn) % xp.maximum(size, 1), place) + start
        return xp.take_along(token_ids, source)


def poisson_shares(mean):
    """P(length <= k) for each k but the last of a Poisson law that is cut short."""
    shares = [np.exp(-mean)]
    while shares[-1] >= UNLIKELY or len(shares) <= mean:
        shares.append(shares[-1] * mean / len(shares))
    return np.cumsum(shares)[:-1] / np.sum(shares)
