"""UL2's mixture of denoisers.

Axes: B batch, T sequence, S encoder (source), U decoder.
"""

import keras
import numpy as np

from keras_tta.layers.corruption.denoising import (
    prefix_density,
    prefix_split,
    shortest_prefix,
)
from keras_tta.layers.corruption.draws import threshold
from keras_tta.layers.corruption.noise import NoiseMasker
from keras_tta.layers.corruption.seq2seq import single
from keras_tta.layers.corruption.spans import noise_counts

# Mode, mean span length, density: UL2, table 1. S is a prefix LM and has no spans.
DENOISERS = (
    ("R", 3, 0.15),
    ("R", 8, 0.15),
    ("S", None, 0.25),
    ("X", 3, 0.5),
    ("X", 8, 0.5),
    ("X", 64, 0.15),
    ("X", 64, 0.5),
)


@keras.saving.register_keras_serializable(package="keras_tta")
class UL2Denoising(NoiseMasker):
    """UL2's mixture: each row gets one of seven denoisers, told by a mode token.

    R (regular) and X (extreme) denoisers are span corruption, see `SpanCorruption`; S
    (sequential) is a prefix LM, see `PrefixLM`, without sentinels. The row's draws
    choose its denoiser, so a batch holds all of them and its shapes never change: the
    encoder's and decoder's lengths are the longest of any denoiser. (UL2's own pipeline
    shards the data by denoiser and gives each raw text of another length, so that all
    fill the encoder.)

    Args:
        vocabulary_size: the sentinels included.
        num_sentinels: defaults to 100. The densest denoiser needs one for six tokens.
        mode_token_ids: the ids of R, S and X, put before the encoder's text: the
            paper's [R], [S], [X], in the released model [NLU], [S2S], [NLG]. None, the
            default, adds none.
        denoisers: (mode, mean span length, density) each; defaults to UL2's seven.
        rates: how often each is chosen; None, the default, is equally often.
        inputs, targets, random_share, closing_sentinel, sentinel_token_ids,
            pad_token_id, start_token_id, end_token_id, special_token_ids, seed,
            static_copies: see `NoiseMasker`, `Seq2SeqMasker` and `Masker`.

    Call arguments, returns and errors: as those of `SpanCorruption`, and `denoiser`
    (B,), the index of each row's.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import UL2Denoising

    ul2 = UL2Denoising(200, mode_token_ids=(5, 6, 7), special_token_ids=(5, 6, 7))
    batch = ul2.numpy(np.random.default_rng(0).integers(10, 99, (8, 64)), key=0)
    modes = [ul2.denoisers[i][0] for i in batch["denoiser"]]
    read = batch["encoder_token_ids"][:, 0]
    assert ["RSX"[i - 5] for i in read] == modes
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        num_sentinels=None,
        mode_token_ids=None,
        denoisers=DENOISERS,
        rates=None,
        **kwargs,
    ):
        super().__init__(vocabulary_size, num_sentinels, **kwargs)
        self.denoisers = tuple(tuple(denoiser) for denoiser in denoisers)
        for mode, mean, density in self.denoisers:
            if mode not in ("R", "S", "X"):
                raise ValueError(
                    f'A mode must be "R", "S" or "X". Received: mode={mode!r}'
                )
            if mode == "S":
                prefix_density(density)
            elif mean is None or mean < 1 or not 0 < density < 1:
                raise ValueError(
                    "A denoiser of spans needs a mean span length of at least 1 and a "
                    f"density between 0 and 1. Received: "
                    f"denoiser={(mode, mean, density)}"
                )
        rates = [1] * len(self.denoisers) if rates is None else list(rates)
        if len(rates) != len(self.denoisers) or min(rates) < 0 or not sum(rates):
            raise ValueError(
                f"`rates` must be {len(self.denoisers)} numbers, one a denoiser, none "
                f"negative and not all 0. Received: rates={rates}"
            )
        self.rates = tuple(rates)
        self.mode_token_ids = mode_token_ids and tuple(mode_token_ids)
        if self.mode_token_ids:
            if len(self.mode_token_ids) != 3:
                raise ValueError(
                    "`mode_token_ids` must be the ids of R, S and X. Received: "
                    f"mode_token_ids={mode_token_ids}"
                )
            for token_id in self.mode_token_ids:
                self._check_id("mode_token_ids", token_id)
                if token_id in self.sentinel_token_ids:
                    raise ValueError(
                        f"`mode_token_ids` holds {token_id}, which is a sentinel. "
                        f"Received: mode_token_ids={mode_token_ids}"
                    )

    def get_config(self):
        return {
            **super().get_config(),
            "mode_token_ids": self.mode_token_ids,
            "denoisers": self.denoisers,
            "rates": self.rates,
        }

    def _tables(self, length):
        """Noise tokens and spans, (denoisers, length + 1); for S the most of them."""
        lengths = np.arange(length + 1)
        tables = []
        for mode, mean, density in self.denoisers:
            if mode == "S":
                noise = lengths - shortest_prefix(length, density)
                tables.append((noise, np.minimum(noise, 1)))
            else:
                noise, spans = noise_counts(length, density, mean)
                tables.append((noise, np.minimum(spans, lengths - noise)))
        noise, spans = np.stack(tables, axis=1)
        return noise.astype(np.int32), spans.astype(np.int32)

    def _plan(self, length):
        lengths = [
            self._prefix_lengths(length, *counts)
            if mode == "S"
            else self._lengths(*counts)
            for (mode, _, _), *counts in zip(
                self.denoisers, *self._tables(length), strict=True
            )
        ]
        encoder, decoder = (max(sides) for sides in zip(*lengths, strict=True))
        return encoder + bool(self.mode_token_ids), decoder

    def _prefix_lengths(self, length, noise, _):
        decoder = length if self.targets == "full" else int(noise.max())
        return length + self._end_length, decoder + self._end_length

    def _corrupt_afresh(self, xp, draws, rows):
        length = rows.positions.shape[-1]
        total = xp.sum(rows.candidates)
        limits = np.cumsum(self.rates)[:-1] / np.sum(self.rates)
        draw = draws.unit("denoiser", xp.int32([0]))
        limits = xp.int32([threshold(share) for share in limits])
        which = total * 0 + xp.sum(draw[..., None] >= limits)[..., 0]

        noise_table, span_table = self._tables(length)
        noise = xp.take(noise_table.ravel(), which * (length + 1) + total)
        spans = xp.take(span_table.ravel(), which * (length + 1) + total)
        marked = total >= 0
        for index, (mode, _, density) in enumerate(self.denoisers):
            if mode == "S":  # One span that ends the row: the rest is the prefix.
                split = prefix_split(xp, draws, total, length, density)
                noise = xp.where(which == index, total - split, noise)
                marked = marked & (which != index)
        mask = self._place_spans(xp, draws, rows, noise, spans, int(span_table.max()))

        before = []
        if self.mode_token_ids:
            modes = ["RSX".index(mode) for mode, _, _ in self.denoisers]
            ids = np.array(self.mode_token_ids, np.int32)[modes]
            keep = xp.sum(rows.real) > 0
            before.append(single(xp, rows, 0, keep, xp.take(ids, which)))
        outputs = self._sequences(
            xp, draws, rows, mask, self._plan(length), marked, before
        )
        return {**outputs, "denoiser": which[..., 0]}
