"""Rows under rules that are drawn: which rule, how often, and when again."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import MixedVisibilityMask, VisibilityMask
from keras_tta.layers.corruption.arrays import NumPyArrays
from keras_tta.layers.corruption.draws import Draws
from keras_tta.visibility import All, Causal, HideWord, NotSelf

RULES = [NotSelf(), Causal(strict=True), HideWord()]
SHARES = [0.5, 0.3, 0.2]
ROWS = np.random.default_rng(0).integers(5, 99, (1000, 6)).astype("int32")
REAL = np.arange(6) < np.random.default_rng(1).integers(3, 7, (1000, 1))
WORDS = np.tile(np.array([[0, 1, 1, 2, 3, 3]], "int32"), (1000, 1))


def drawn(layer, rows=slice(None), **options):
    """The number of the rule that each row is under."""
    inputs = [x[rows] for x in (REAL, WORDS)]
    visible = ops.convert_to_numpy(
        layer(ROWS[rows], inputs[0], word_ids=inputs[1], **options)
    )
    masks = [
        ops.convert_to_numpy(VisibilityMask(r)(inputs[0], word_ids=inputs[1]))
        for r in RULES
    ]
    same = np.stack([(mask == visible).all((1, 2)) for mask in masks])
    assert (same.sum(axis=0) == 1).all()
    return same.argmax(axis=0)


def test_each_row_is_under_one_rule_as_often_as_its_share():
    counts = np.bincount(drawn(MixedVisibilityMask(RULES, SHARES)), minlength=3)
    # Four standard deviations of a binomial count.
    spread = np.sqrt(1000 * np.array(SHARES) * (1 - np.array(SHARES)))
    assert (abs(counts - 1000 * np.array(SHARES)) < 4 * spread).all()


def test_training_draws_afresh_and_evaluation_does_not():
    layer = MixedVisibilityMask(RULES, SHARES)
    fixed = drawn(layer)
    first, second = drawn(layer, training=True), drawn(layer, training=True)
    assert 0.2 < (first == second).mean() < 0.6
    np.testing.assert_array_equal(drawn(layer), fixed)
    again = MixedVisibilityMask(RULES, SHARES)
    np.testing.assert_array_equal(drawn(again, training=True), first)
    other = MixedVisibilityMask(RULES, SHARES, seed=1)
    assert (drawn(other, training=True) != first).any()


def test_a_row_s_rule_is_its_own():
    layer = MixedVisibilityMask(RULES, SHARES)
    whole = drawn(layer)
    np.testing.assert_array_equal(drawn(layer, slice(990, None)), whole[990:])


def test_the_draws_are_those_of_numpy():
    draws = Draws(NumPyArrays, ROWS, REAL, *NumPyArrays.int32([0, 0])[:, None])
    shares = draws.unit("visibility", NumPyArrays.int32([0]))[:, 0] / 2**24
    expected = np.searchsorted(np.cumsum(SHARES), shares, side="right")
    np.testing.assert_array_equal(drawn(MixedVisibilityMask(RULES, SHARES)), expected)


def test_config():
    layer = MixedVisibilityMask(RULES, SHARES, seed=3)
    config = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(config)
    np.testing.assert_array_equal(drawn(again), drawn(layer))


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.5, 0.5, 0.5], [1.2, -0.1, -0.1]])
def test_shares_must_sum_to_one(shares):
    with pytest.raises(ValueError, match="`shares` of MixedVisibilityMask"):
        MixedVisibilityMask(RULES, shares)


def test_a_rule_may_see_itself_here():
    visible = MixedVisibilityMask([All()], [1.0])(ROWS[:1], REAL[:1] | True)
    assert ops.convert_to_numpy(visible).all()
