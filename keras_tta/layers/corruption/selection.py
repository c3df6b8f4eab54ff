"""Which tokens of a row are corrupted: exact numbers of tokens, words or spans.

Arrays are (..., T) over a row's positions, or (..., 1) for one number a row. A *unit*
is what is chosen whole: it starts where `first` is true and holds the candidates up to
the next start.
"""

import numpy as np

from keras_tta.layers.corruption.draws import low_mask, threshold

# A skipped word leaves less room than its own length, and each later round fills at
# least one token of it: words of up to 8 pieces are packed as tightly as one by one.
FITTING_ROUNDS = 8


def round_half_even(lengths, rate):
    """`rate` of each length, rounded: float64, halves to the even neighbour."""
    return np.rint(np.asarray(lengths, np.float64) * rate).astype(np.int32)


def ceiling(lengths, rate):
    """`rate` of each length, rounded up: float64, blind to errors in the last bits."""
    product = np.asarray(lengths, np.float64) * rate
    return np.ceil(product - 1e-9).astype(np.int32)


def choose(xp, keys, count):
    """Marks the `count` (..., 1) smallest of the unequal `keys`."""
    in_order = xp.concatenate([count * 0 - 1, xp.sort(keys)])
    return keys <= xp.take_along(in_order, count)


def positions_of(xp, marked):
    """The marked positions in ascending order, then T for every missing one."""
    length = marked.shape[-1]
    positions = xp.arange(length)
    return xp.sort(xp.where(marked, positions, positions * 0 + length))


def shift_right(xp, x):
    """`x` one place to the right, with 0 (or False) at the front."""
    front = x[..., :1]
    return xp.concatenate([front ^ front, x[..., :-1]])


def word_starts(xp, candidates, word_ids):
    """Where a word starts: a new word id, or a candidate after a token that is none."""
    same_word = word_ids == shift_right(xp, word_ids)
    return candidates & ~(shift_right(xp, candidates) & same_word)


def span_starts(xp, draws, first, candidates, p, max_length):
    """Tiles the units of a row into spans of geometric lengths 1..max_length.

    P(length) is proportional to (1 - p)^(length - 1), as in SpanBERT (section 3.1). The
    first tile begins at a random phase, so that no position is more often a start than
    another. A span never reaches across a token that is no candidate.
    """
    length = first.shape[-1]
    lengths = np.arange(max_length)
    cumulative = np.cumsum((1 - p) ** lengths)
    limits = [threshold(share) for share in cumulative[:-1] / cumulative[-1]]
    tiles = xp.arange(length)
    draw = draws.unit("span length", tiles)
    tile_length = 1 + xp.sum(draw[..., None] >= xp.int32(limits))[..., 0]
    phase = draws.below("span phase", xp.int32([0]), max_length)
    ends = xp.cumsum(tile_length) - phase
    is_start = xp.any(tiles[:, None] == ends[..., None, :])
    unit = xp.maximum(xp.cumsum(first) - 1, 0)
    return first & (xp.take_along(is_start, unit) | ~shift_right(xp, candidates))


def choose_units(xp, draws, first, candidates, budget, most, cut):
    """Chooses whole units in random order until their tokens fill `budget` (..., 1).

    With `cut` the unit that would exceed the budget is cut to fill it exactly, and ends
    the choice. Without, it is skipped and smaller ones may follow, as in BERT's
    `create_masked_lm_predictions`; if even the smallest exceeds the budget, one of that
    size is taken, unless it exceeds `most`. Returns the chosen candidates and the
    position at which the unit of each position starts.
    """
    length = first.shape[-1]
    starts = positions_of(xp, first)
    total = xp.sum(candidates)
    # A padding unit starts at T, where all candidates have been counted.
    before = xp.concatenate([total * 0, xp.cumsum(candidates)])
    counted = xp.take_along(before, starts)
    own_size = xp.concatenate([counted[..., 1:], total]) - counted
    keys = draws.shuffled("unit order", starts, starts < length)
    order = xp.sort(keys) & low_mask(length)
    size = xp.take_along(own_size, order)

    if cut:
        amount = xp.minimum(xp.maximum(budget - (xp.cumsum(size) - size), 0), size)
    else:
        smallest = xp.sort(xp.where(size > 0, size, size + length))[..., :1]
        possible = (budget > 0) & (smallest <= most)
        budget = xp.where(possible, xp.maximum(budget, smallest), budget)
        amount = size * 0
        for _ in range(FITTING_ROUNDS):
            fitting = xp.where((amount == 0) & (size <= budget), size, size * 0)
            taken = xp.where(xp.cumsum(fitting) <= budget, fitting, fitting * 0)
            amount = amount + taken
            budget = budget - xp.sum(taken)

    # Back from random order to the units' own: sort (unit, amount) pairs.
    amount = xp.sort(order * (low_mask(length) + 1) + amount) & low_mask(length)
    unit = xp.maximum(xp.cumsum(first) - 1, 0)
    own_start = xp.minimum(xp.take_along(starts, unit), length - 1)
    within = before[..., :-1] - xp.take_along(before, own_start)
    if cut:  # At its end or at its start, so that no place in a unit is favoured.
        from_end = xp.take_along(own_size, unit) - 1 - within
        at_start = draws.unit("cut", xp.int32([0])) < threshold(0.5)
        within = xp.where(at_start, from_end, within)
    return candidates & (within < xp.take_along(amount, unit)), own_start
