"""What the encoder-decoder maskers share: sequences merged from parts, and the layout.

Axes: B batch, T sequence, S encoder (source), U decoder.
"""

from keras_tta.layers.corruption.draws import low_mask
from keras_tta.layers.corruption.masker import Masker
from keras_tta.layers.corruption.selection import shift_right


def merge(xp, parts, length, fill):
    """Merges parts into one sequence (..., length), and says which slots it fills.

    A part is (order, keep, values), (..., n) each: its kept values, in ascending order.
    Where orders are equal, the earlier part, and in it the earlier place, comes first.
    """
    order = xp.concatenate([order + values * 0 for order, _, values in parts])
    keep = xp.concatenate([keep for _, keep, _ in parts])
    values = xp.concatenate([values for _, _, values in parts])
    size = order.shape[-1]
    unit = low_mask(size) + 1
    keys = xp.where(keep, order * unit + xp.arange(size), values * 0 + (2**31 - 1))
    keys = xp.sort(keys)[..., :length]
    filled = keys < 2**31 - 1
    index = xp.where(filled, keys & (unit - 1), keys * 0)
    return xp.where(filled, xp.take_along(values, index), keys * 0 + fill), filled


class Seq2SeqMasker(Masker):
    """Base of the maskers for encoder-decoder models.

    Every output dict has what the encoder reads, `encoder_token_ids` (B, S) and
    `encoder_padding_mask` (bool), and what the decoder reads and must give back,
    `decoder_token_ids`, `decoder_padding_mask` (bool), `labels` and `sample_weight`
    (B, U). S and U follow from T and the settings. The decoder reads the labels one
    place late, after `start_token_id`. A row without real tokens is empty on both
    sides.

    Rows are plain text: the layer adds the end token to both sides. If rows bring
    special tokens of their own, list them in `special_token_ids`; if they bring the
    end token, also set `end_token_id=None`.

    Args:
        vocabulary_size: ids are in [0, vocabulary_size).
        pad_token_id: defaults to 0.
        start_token_id: what the decoder reads first; defaults to 0, as in T5.
        end_token_id: defaults to 1, as in T5; None adds no end.
        special_token_ids, seed, static_copies: see `Masker`.
    """

    def __init__(
        self,
        vocabulary_size,
        pad_token_id=0,
        start_token_id=0,
        end_token_id=1,
        special_token_ids=(),
        **kwargs,
    ):
        super().__init__(vocabulary_size, special_token_ids, **kwargs)
        self.pad_token_id = pad_token_id
        self.start_token_id = start_token_id
        self.end_token_id = end_token_id
        for name in ("pad_token_id", "start_token_id", "end_token_id"):
            if getattr(self, name) is not None:
                self._check_id(name, getattr(self, name))

    def get_config(self):
        return {
            **super().get_config(),
            "pad_token_id": self.pad_token_id,
            "start_token_id": self.start_token_id,
            "end_token_id": self.end_token_id,
        }

    @property
    def _end_length(self):
        return int(self.end_token_id is not None)

    def _encoder(self, xp, rows, parts, length):
        token_ids, filled = self._merge_with_end(xp, rows, parts, length)
        return {"encoder_token_ids": token_ids, "encoder_padding_mask": filled}

    def _decoder(self, xp, rows, parts, length):
        labels, filled = self._merge_with_end(xp, rows, parts, length)
        start = labels[..., :1] * 0 + self.start_token_id
        read = xp.concatenate([start, labels[..., :-1]])
        return {
            "decoder_token_ids": xp.where(filled, read, read * 0 + self.pad_token_id),
            "decoder_padding_mask": filled,
            "labels": labels,
            "sample_weight": xp.int32(filled),
        }

    def _full_decoder(self, xp, rows):
        """The decoder gives back the whole row."""
        length = rows.token_ids.shape[-1]
        parts = [(rows.positions, rows.real, rows.token_ids)]
        return self._decoder(xp, rows, parts, length + self._end_length)

    def _merge_with_end(self, xp, rows, parts, length):
        if self.end_token_id is not None:
            some = xp.sum(rows.real)
            after = some * 0 + rows.token_ids.shape[-1] + 1
            parts = [*parts, (after, some > 0, some * 0 + self.end_token_id)]
        return merge(xp, parts, length, self.pad_token_id)


def single(xp, rows, order, keep, token_id):
    """A part of one token a row."""
    zero = xp.sum(rows.real) * 0
    return zero + order, keep & (zero == 0), zero + token_id


def run_starts(xp, marked):
    return marked & ~shift_right(xp, marked)
