"""The rest of T5's menu: denoising of single tokens, deshuffling, prefix LM.

Axes: B batch, T sequence, S encoder (source), U decoder.
"""

import keras
import numpy as np

from keras_tta.checks import check_fraction
from keras_tta.layers.corruption.draws import low_mask
from keras_tta.layers.corruption.noise import NoiseMasker
from keras_tta.layers.corruption.selection import choose, round_half_even
from keras_tta.layers.corruption.seq2seq import Seq2SeqMasker
from keras_tta.layers.corruption.spans import noise_counts


@keras.saving.register_keras_serializable(package="keras_tta")
class TokenDenoising(NoiseMasker):
    """Hides single tokens of a row, all alike, for an encoder-decoder to give back.

    T5's i.i.d. denoising (`iid_denoising`), with an exact number where T5 flips a coin
    for each token: `round(noise_density * n)` of n tokens, at least 1 and at most
    n - 1, without replacement. Neighbours become one span. In the targets each span
    follows its own sentinel. T5's objectives by name:

    | T5 | settings |
    |---|---|
    | iid_15_u_u | the defaults |
    | iid_15_d_d | `inputs="drop", targets="noise"` |
    | iid_15_m_f ("MASS-style") | `inputs="token_sentinel", targets="full"` |
    | iid_15_r10s90_f ("BERT-style") | the same and `random_share=0.1` |

    Args:
        vocabulary_size: the sentinels included.
        num_sentinels: defaults to 100; every noise token may need its own.
        noise_density: defaults to 0.15.
        inputs, targets, random_share, closing_sentinel, sentinel_token_ids,
            pad_token_id, start_token_id, end_token_id, special_token_ids, seed,
            static_copies: see `NoiseMasker`, `Seq2SeqMasker` and `Masker`.

    Call arguments, returns and errors: as those of `SpanCorruption`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import TokenDenoising

    denoising = TokenDenoising(100, inputs="drop", targets="noise")
    batch = denoising.numpy(np.arange(10, 30)[None], key=0)
    assert batch["encoder_padding_mask"].sum() == 20 - 3 + 1
    assert batch["labels"].shape == (1, 3 + 1)
    ```
    """

    def __init__(
        self, vocabulary_size, num_sentinels=None, noise_density=0.15, **kwargs
    ):
        super().__init__(vocabulary_size, num_sentinels, **kwargs)
        check_fraction(self, noise_density=noise_density)
        self.noise_density = float(noise_density)

    def get_config(self):
        return {**super().get_config(), "noise_density": self.noise_density}

    @property
    def _announces_noise(self):
        return True

    def _noise_plan(self, length):
        noise, _ = noise_counts(length, self.noise_density, 1)
        if self.special_token_ids:  # They may stand between any two noise tokens.
            return noise, noise
        return noise, np.minimum(noise, np.arange(length + 1) - noise + 1)

    def _noise(self, xp, draws, rows):
        noise, _ = self._noise_plan(rows.positions.shape[-1])
        keys = draws.shuffled("order", rows.positions, rows.candidates)
        count = xp.take(noise.astype(np.int32), xp.sum(rows.candidates))
        return rows.candidates & choose(xp, keys, count)


@keras.saving.register_keras_serializable(package="keras_tta")
class Deshuffling(Seq2SeqMasker):
    """The encoder reads a row in random order; the decoder puts it right.

    T5's `deshuffling` (`permute_noise_tokens` of everything, the full row as target).
    Special tokens keep their places.

    Args:
        vocabulary_size, pad_token_id, start_token_id, end_token_id: see
            `Seq2SeqMasker`.
        special_token_ids, seed, static_copies: see `Masker`.

    Call arguments and returns: as those of `SpanCorruption`, with S = U = T and the
    end token.

    Raises:
        ValueError: for ids outside the vocabulary, or a T that is unknown; and, in
            eager calls, for tokens outside the vocabulary.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import Deshuffling

    batch = Deshuffling(100).numpy(np.arange(10, 20)[None], key=0)
    assert sorted(batch["encoder_token_ids"][0, :10]) == list(range(10, 20))
    assert batch["labels"][0].tolist() == [*range(10, 20), 1]
    ```
    """

    def _plan(self, length):
        return length + self._end_length

    def _corrupt(self, xp, draws, rows):
        length = rows.positions.shape[-1]
        keys = draws.shuffled("order", rows.positions, rows.candidates)
        order = xp.sort(keys) & low_mask(length)
        rank = xp.maximum(xp.cumsum(rows.candidates) - 1, 0)
        shuffled = xp.take_along(rows.token_ids, xp.take_along(order, rank))
        read = xp.where(rows.candidates, shuffled, rows.token_ids)
        parts = [(rows.positions, rows.real, read)]
        encoder = self._encoder(xp, rows, parts, self._plan(length))
        return {**encoder, **self._full_decoder(xp, rows)}


@keras.saving.register_keras_serializable(package="keras_tta")
class PrefixLM(Seq2SeqMasker):
    """The encoder reads the start of a row; the decoder goes on to its end.

    T5's `prefix_lm`: the prefix of a row of n tokens is k long, uniform over
    max(1, round((1 - 2 noise_density) (n - 1))) .. n - 1, so that `noise_density` of
    the tokens are predicted on average. A row of one token has an empty prefix. Special
    tokens go where they lie.

    Args:
        noise_density: in (0, 0.5]; defaults to 0.5, a prefix of 1..n-1.
        vocabulary_size, pad_token_id, start_token_id, end_token_id: see
            `Seq2SeqMasker`.
        special_token_ids, seed, static_copies: see `Masker`.

    Call arguments and returns: as those of `SpanCorruption`.

    Raises:
        ValueError: for a `noise_density` out of range, ids outside the vocabulary, or a
            T that is unknown; and, in eager calls, for tokens outside the vocabulary.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import PrefixLM

    batch = PrefixLM(100).numpy(np.arange(10, 20)[None], key=0)
    prefix = batch["encoder_token_ids"][0, : batch["encoder_padding_mask"].sum() - 1]
    suffix = batch["labels"][0, : batch["sample_weight"].sum() - 1]
    assert [*prefix, *suffix] == list(range(10, 20))
    ```
    """

    def __init__(self, vocabulary_size, noise_density=0.5, **kwargs):
        super().__init__(vocabulary_size, **kwargs)
        self.noise_density = prefix_density(noise_density)

    def get_config(self):
        return {**super().get_config(), "noise_density": self.noise_density}

    def _plan(self, length):
        lengths = np.arange(length + 1)
        suffix = int(np.max(lengths - shortest_prefix(length, self.noise_density)))
        end = self._end_length
        return max(length - 1, 0) + end, suffix + end

    def _corrupt(self, xp, draws, rows):
        length = rows.positions.shape[-1]
        split = prefix_split(xp, draws, xp.sum(rows.real), length, self.noise_density)
        in_prefix = xp.cumsum(rows.real) <= split
        prefix = [(rows.positions, rows.real & in_prefix, rows.token_ids)]
        suffix = [(rows.positions, rows.real & ~in_prefix, rows.token_ids)]
        encoder_length, decoder_length = self._plan(length)
        return {
            **self._encoder(xp, rows, prefix, encoder_length),
            **self._decoder(xp, rows, suffix, decoder_length),
        }


def prefix_density(density):
    if not 0 < density <= 0.5:
        raise ValueError(
            "`noise_density` of a prefix LM must be in (0, 0.5], because prefixes are "
            f"uniform up to all tokens but one. Received: noise_density={density!r}"
        )
    return float(density)


def shortest_prefix(length, density):
    """The shortest prefix of rows of each length 0..length."""
    most = np.maximum(np.arange(length + 1) - 1, 0)
    shortest = np.maximum(round_half_even(most, 1 - 2 * density), 1)
    return np.minimum(shortest, most).astype(np.int32)


def prefix_split(xp, draws, total, length, density):
    """A random prefix length (..., 1) for rows of `total` tokens, at most `length`."""
    shortest = xp.take(shortest_prefix(length, density), total)
    choices = xp.maximum(total - shortest, 1)
    return shortest + draws.below("split", xp.int32([0]), choices)
