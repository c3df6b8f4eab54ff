"""Orders that depend on their arguments alone, on any machine and version."""

import numpy as np


def random_order(count: int, seed: int, data_pass: int, purpose: int) -> np.ndarray:
    """A permutation of `range(count)` that depends on its arguments alone.

    Rows are sorted by a 64-bit hash (SplitMix64; Steele et al., 2014) of the arguments
    and the row's number: no library's random numbers, which may change with a version.
    """
    state = np.zeros(1, np.uint64)
    for value in (seed, data_pass, purpose):
        state = _mix(state ^ np.uint64(value % 2**64))
    return np.argsort(_mix(state ^ np.arange(count, dtype=np.uint64)), kind="stable")


def _mix(x):
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
