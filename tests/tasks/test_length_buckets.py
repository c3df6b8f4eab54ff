import numpy as np
import pytest

from keras_tta.tasks.length_buckets import bucket_widths, length_buckets

pytestmark = pytest.mark.agnostic


def test_widths_end_at_the_longest_input():
    assert bucket_widths(128) == (16, 24, 32, 40, 48, 64, 80, 96, 128)
    assert bucket_widths(100) == (16, 24, 32, 40, 48, 64, 80, 96, 100)
    assert bucket_widths(7) == (7,)


def test_every_row_comes_once_in_the_narrowest_width_that_holds_it():
    lengths = np.random.default_rng(0).integers(2, 129, 300)
    widths = bucket_widths(128)
    seen = []
    for rows, (height, width) in length_buckets(lengths, widths, 64):
        assert len(rows) <= height and height in (1, 4, 16, 64)
        narrower = [w for w in widths if w < width]
        assert (lengths[rows] <= width).all()
        assert (lengths[rows] > max(narrower, default=0)).all()
        seen += rows.tolist()
    assert sorted(seen) == list(range(300))


def test_a_batch_size_that_is_no_power_of_four():
    shapes = [shape for _, shape in length_buckets(np.full(34, 3), (4,), 10)]
    assert shapes == [(10, 4), (10, 4), (10, 4), (4, 4)]


def test_no_rows_no_batches():
    assert list(length_buckets(np.zeros(0, int), (4,), 8)) == []
