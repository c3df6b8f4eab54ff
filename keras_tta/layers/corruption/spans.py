"""Where spans lie: uniform compositions, and masks of spans in a row.

Spans are placed among a row's *candidates*, counted without the tokens between them,
and then spread over its positions. Arrays (..., M) hold one entry for each of at most M
spans; an entry a row does not need is an empty span.
"""

import numpy as np

from keras_tta.layers.corruption.selection import (
    choose,
    positions_of,
    round_half_even,
)


def noise_counts(length, density, mean_span_length, t5_exact=False):
    """Noise tokens and spans for each length 0..length, before spans are limited.

    As T5's `random_spans_noise_mask`, in float64; `t5_exact` is in float32, which T5
    computes in: of 190 tokens, 15 % are 28 in float64 and 29 in float32.
    """
    lengths = np.arange(length + 1)
    if t5_exact:
        real = np.float32
        noise = np.rint(lengths.astype(real) * real(density)).astype(np.int32)
    else:
        noise = round_half_even(lengths, density)
        real = np.float64
    noise = np.clip(noise, 1, np.maximum(lengths - 1, 1))
    spans = np.rint(noise.astype(real) / real(mean_span_length)).astype(np.int32)
    spans = np.maximum(spans, 1)
    nothing = (lengths < 2) | (density == 0)
    return np.where(nothing, 0, noise), np.where(nothing, 0, spans)


def random_composition(xp, draws, purpose, total, parts, length, most):
    """Splits `total` (..., 1) into `parts` (..., 1) positive parts, all ways alike.

    `length` is at least any total, `most` at least any number of parts. Returns where
    each part ends, (..., most); the parts beyond `parts` are empty.
    """
    slots = xp.arange(length)
    keys = draws.shuffled(purpose, slots, slots < total - 1)
    cuts = choose(xp, keys, xp.maximum(parts - 1, 0))
    return xp.minimum(positions_of(xp, cuts)[..., :most] + 1, total)


def random_spans(xp, draws, noise, spans, total, length, most, anywhere=False):
    """Starts and ends, (..., most), of `spans` spans that cover `noise` of `total`.

    Lengths of spans and of the gaps between them are uniform compositions. By default
    the first gap is at least 1 and nothing follows the last span (T5); `anywhere` makes
    every mask of separate spans equally likely.
    """
    ends = random_composition(xp, draws, "noise", noise, spans, length, most)
    starts = xp.concatenate([noise * 0, ends[..., :-1]])
    visible = total - noise
    if anywhere:  # One more gap; the first and the last may be 0.
        gaps = random_composition(
            xp, draws, "gaps", visible + 2, spans + 1, length + 2, most
        )
        gaps = gaps - 1
    else:
        gaps = random_composition(xp, draws, "gaps", visible, spans, length, most)
    return starts + gaps, ends + gaps


def mask_of_spans(xp, starts, ends, length):
    """Marks the places of `length` within any span, and those that start one."""
    places = xp.arange(length)[:, None]
    starts, ends = starts[..., None, :], ends[..., None, :]
    inside = xp.any((starts <= places) & (places < ends))
    return inside, xp.any((starts == places) & (starts < ends))


def spread(xp, marked, candidates):
    """From places among the candidates to positions in the row."""
    place = xp.maximum(xp.cumsum(candidates) - 1, 0)
    return candidates & xp.take_along(marked, place)


def cut_at_gaps(xp, noise, starts, candidates):
    """Ends each span at the first token inside it that is no candidate."""
    length = noise.shape[-1]
    others = xp.cumsum(~candidates)
    span = xp.maximum(xp.cumsum(starts) - 1, 0)
    start = xp.minimum(xp.take_along(positions_of(xp, starts), span), length - 1)
    return noise & (others == xp.take_along(others, start))
