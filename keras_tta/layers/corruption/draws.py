"""Random numbers that are a pure function of what they are for.

A draw is a hash of (seed, step, the row's content, position, purpose), in wrapping
int32 arithmetic: the same bits in NumPy, TensorFlow, JAX and PyTorch, in eager mode and
compiled. A row's draws depend neither on the rest of the batch nor on how far the row
is padded. Equal rows of one step therefore get equal draws; another step, others.
"""

import zlib

import numpy as np

GOLDEN = 0x9E3779B9 - 2**32  # 2^32 / golden ratio: consecutive multiples spread evenly
UNIT = 2**24  # a share is compared as an integer out of 2^24, exact in every dtype


def mix(xp, x):
    """A 32-bit bijection in which each input bit flips half of the output bits.

    The multipliers are those of "lowbias32", the least biased of its form found by
    Chris Wellons's public hash-prospector search.
    """
    x = x ^ _logical_shift(xp, x, 16)
    x = x * 0x7FEB352D
    x = x ^ _logical_shift(xp, x, 15)
    x = x * (0x846CA68B - 2**32)
    return x ^ _logical_shift(xp, x, 16)


def threshold(share):
    """How many of 2^24 equally likely integers make up `share`."""
    return int(round(share * UNIT))


class Draws:
    """The draws of each row of `token_ids` (..., T), for one (seed, step).

    `seed` and `step` are int32 scalars, step 0 standing for "no step". With `copies`,
    every step above 0 falls on one of the steps 1..copies, chosen per row: a row then
    has that many different corruptions and no more.
    """

    def __init__(self, xp, token_ids, padding_mask, seed, step, copies=None):
        self.xp = xp
        positions = xp.arange(token_ids.shape[-1])
        tokens = mix(xp, token_ids ^ mix(xp, (positions + 1) * GOLDEN))
        zero = tokens * 0
        content = (
            xp.sum(xp.where(padding_mask, tokens, zero)),
            xp.sum(xp.where(padding_mask, mix(xp, tokens + GOLDEN), zero)),
        )
        self.key = self._key(content, seed, step)
        if copies is not None:
            copy = 1 + self.below("copy", xp.int32(0), copies)
            self.key = self._key(content, seed, xp.where(step > 0, copy, step))

    def _key(self, content, seed, step):
        # Two 32-bit lanes, so that the streams of two rows can neither coincide nor be
        # shifts of one another by a 32-bit accident.
        xp = self.xp
        seeds = mix(xp, seed + GOLDEN), mix(xp, seed ^ GOLDEN)
        steps = mix(xp, step * GOLDEN + 1), mix(xp, step * GOLDEN + 2)
        return tuple(
            mix(xp, mix(xp, c + s) ^ t)
            for c, s, t in zip(content, seeds, steps, strict=True)
        )

    def bits(self, purpose, index):
        """32 random bits as an int32 for each `index` (broadcast over the rows)."""
        xp, (first, second) = self.xp, self.key
        first = mix(xp, first ^ _signed(zlib.crc32(purpose.encode())))
        return mix(xp, second ^ mix(xp, first + index * GOLDEN))

    def below(self, purpose, index, bound):
        """Integers in [0, bound); `bound` is an int or an int32 array, at least 1.

        A remainder of 31 bits: no value is off its probability by more than
        bound / 2^31 of it, which is 0.01 % for a vocabulary of 250,000.
        """
        return _logical_shift(self.xp, self.bits(purpose, index), 1) % bound

    def unit(self, purpose, index):
        """Integers in [0, 2^24), to compare with `threshold(share)`."""
        return _logical_shift(self.xp, self.bits(purpose, index), 8)

    def shuffled(self, purpose, index, present):
        """Keys whose sorted order is a random order of the `present` places.

        The low bits of a key (`low_mask`) are its place along the last axis, so keys
        are never equal; absent places sort last.
        """
        xp = self.xp
        length = present.shape[-1]
        high = _logical_shift(xp, self.bits(purpose, index), 2) & ~low_mask(length)
        return xp.where(present, high, high | 2**30) | xp.arange(length)


def low_mask(length):
    """Ones over the bits that a place in an axis of `length` may need."""
    return 2 ** int(length).bit_length() - 1


def as_int32(value):
    """A Python or NumPy integer as an int32 of the same low 32 bits."""
    return np.array(_signed(int(value) & 0xFFFFFFFF), np.int32)


def _logical_shift(xp, x, count):
    # int32 shifts copy the sign; PyTorch has no unsigned arithmetic to avoid that with.
    return xp.right_shift(x, count) & (2 ** (32 - count) - 1)


def _signed(x):
    return x - 2**32 if x >= 2**31 else x
