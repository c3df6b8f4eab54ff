import numpy as np
import pytest
from scipy import stats

from keras_tta.layers.corruption.arrays import NumPyArrays
from keras_tta.layers.corruption.draws import Draws, as_int32, low_mask, threshold

pytestmark = pytest.mark.agnostic


def draws(token_ids, padding_mask=None, seed=0, step=0, copies=None):
    token_ids = np.asarray(token_ids, np.int32)
    mask = np.ones(token_ids.shape, bool) if padding_mask is None else padding_mask
    seed, step = (NumPyArrays.int32(as_int32(i)) for i in (seed, step))
    return Draws(NumPyArrays, token_ids, mask, seed, step, copies)


ROWS = np.arange(500 * 8).reshape(500, 8) // 3
POSITIONS = np.arange(200, dtype=np.int32)


def test_a_known_draw_never_changes():
    """Masks are promised to be the same in later versions: this pins the hash."""
    bits = draws([[5, 6, 7], [5, 6, 8]], seed=1, step=2).bits("order", POSITIONS[:3])
    assert bits.tolist() == [
        [-1613810221, 1913341485, 1291535775],
        [-850730406, 1612647037, 258063777],
    ]


def as_unsigned(bits):
    return bits.view(np.uint32).astype(np.int64)


@pytest.mark.parametrize("purpose", ["order", "replacement", "random token"])
def test_every_byte_is_uniform(purpose):
    bits = as_unsigned(draws(ROWS).bits(purpose, POSITIONS)).ravel()
    for shift in (0, 8, 16, 24):
        counts = np.bincount(bits >> shift & 255, minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("distance", [1, 2, 64])
def test_neighbouring_positions_are_independent(distance):
    bits = as_unsigned(draws(ROWS).bits("order", POSITIONS)) >> 28
    assert_independent(bits[:, :-distance], bits[:, distance:])


def test_steps_seeds_purposes_and_rows_are_independent():
    base = draws(ROWS, seed=3, step=4)
    bits = as_unsigned(base.bits("order", POSITIONS)) >> 28
    others = {
        "step": draws(ROWS, seed=3, step=5),
        "seed": draws(ROWS, seed=4, step=4),
        "seed and step": draws(ROWS, seed=4, step=3),
        "one token": draws(ROWS + (np.arange(8) == 7), seed=3, step=4),
        "order of tokens": draws(ROWS[:, ::-1], seed=3, step=4),
    }
    for other in others.values():
        assert_independent(bits, as_unsigned(other.bits("order", POSITIONS)) >> 28)
    assert_independent(bits, as_unsigned(base.bits("replacement", POSITIONS)) >> 28)
    assert_independent(bits[:-1], bits[1:])


def assert_independent(first, second):
    table = np.zeros((16, 16), int)
    np.add.at(table, (first.ravel(), second.ravel()), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_each_input_bit_flips_half_of_the_output_bits():
    row = np.arange(100, 600)[:, None]
    bits = as_unsigned(draws(row).bits("order", POSITIONS[:20]))
    for bit in range(16):
        flipped = as_unsigned(draws(row ^ (1 << bit)).bits("order", POSITIONS[:20]))
        share = np.mean([(bits ^ flipped) >> i & 1 for i in range(32)], axis=(1, 2))
        # 10,000 coin flips an output bit: 4 sigma, and 512 bits looked at.
        assert np.all(np.abs(share - 0.5) < 4.5 * 0.005)


def test_draws_depend_neither_on_padding_nor_on_the_batch():
    row = np.array([[7, 8, 9]])
    padded = np.array([[1, 2, 3, 4, 5], [7, 8, 9, 50, 60]])
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    alone = draws(row).bits("order", POSITIONS[:3])
    together = draws(padded, mask).bits("order", POSITIONS[:3])
    np.testing.assert_array_equal(alone[0], together[1])
    single = draws(padded[1], mask[1]).bits("order", POSITIONS[:3])
    np.testing.assert_array_equal(alone[0], single)


def test_below_is_uniform_and_takes_arrays():
    values = draws(ROWS).below("random token", POSITIONS, 10)
    assert stats.chisquare(np.bincount(values.ravel(), minlength=10)).pvalue > 1e-4
    bounds = np.array([1, 2, 7], np.int32)
    assert (draws(ROWS).below("random token", POSITIONS[:3], bounds) < bounds).all()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.8, 1.0])
def test_shares_hold_within_four_sigma(share):
    hits = draws(ROWS).unit("replacement", POSITIONS) < threshold(share)
    sigma = np.sqrt(share * (1 - share) / hits.size)
    assert abs(hits.mean() - share) <= 4 * sigma


def test_shuffled_keys_are_a_uniform_order_with_absent_places_last():
    present = np.broadcast_to(np.arange(5) < 3, (30_000, 5))
    rows = np.arange(30_000)[:, None]
    keys = draws(rows).shuffled("order", POSITIONS[:5], present)
    order = np.sort(keys) & low_mask(5)
    assert (np.sort(order[:, 3:]) == [3, 4]).all()
    codes = order[:, 0] * 9 + order[:, 1] * 3 + order[:, 2]
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def test_copies_give_each_row_so_many_streams_and_no_more():
    row = np.array([[11, 12, 13]])
    streams = {
        tuple(draws(row, step=step, copies=3).bits("order", POSITIONS[:2]).ravel())
        for step in range(1, 60)
    }
    copies = {
        tuple(draws(row, step=step).bits("order", POSITIONS[:2]).ravel())
        for step in (1, 2, 3)
    }
    assert streams == copies
