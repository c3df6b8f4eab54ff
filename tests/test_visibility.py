"""Rules are values with a truth table."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tta.visibility import (
    All,
    And,
    Causal,
    HideWord,
    NotSelf,
    Or,
    SameSegment,
    Side,
    Visibility,
    Window,
)

pytestmark = pytest.mark.agnostic

POSITION = np.arange(5)
SEGMENT = np.array([0, 0, 1, 1, 0])
WORD = np.array([0, 1, 1, 1, 2])

SIMPLE = (
    All(),
    NotSelf(),
    Causal(),
    Causal(strict=True),
    SameSegment(),
    Window(1),
    Window(2),
    HideWord("all"),
    HideWord("right"),
)
RULES = st.recursive(
    st.sampled_from(SIMPLE),
    lambda rules: st.builds(
        lambda kind, parts: kind(*parts),
        st.sampled_from([And, Or]),
        st.lists(rules, min_size=1, max_size=3),
    ),
    max_leaves=5,
)


def table(rule, position=POSITION, segment=SEGMENT, word=WORD):
    query, key = (
        Side(*(np.expand_dims(x, axis) for x in (position, segment, word)))
        for axis in (1, 0)
    )
    return np.broadcast_to(rule.visible(query, key), (len(position),) * 2)


def drawn(*rows):
    return np.array([[mark == "x" for mark in row] for row in rows])


@pytest.mark.parametrize(
    "rule, expected",
    [
        (All(), drawn("xxxxx", "xxxxx", "xxxxx", "xxxxx", "xxxxx")),
        (NotSelf(), drawn(".xxxx", "x.xxx", "xx.xx", "xxx.x", "xxxx.")),
        (Causal(), drawn("x....", "xx...", "xxx..", "xxxx.", "xxxxx")),
        (Causal(strict=True), drawn(".....", "x....", "xx...", "xxx..", "xxxx.")),
        (SameSegment(), drawn("xx..x", "xx..x", "..xx.", "..xx.", "xx..x")),
        (Window(1), drawn("xx...", "xxx..", ".xxx.", "..xxx", "...xx")),
        (Window(2), drawn("xxx..", "xxxx.", "xxxxx", ".xxxx", "..xxx")),
        (HideWord("all"), drawn(".xxxx", "x...x", "x...x", "x...x", "xxxx.")),
        (HideWord("right"), drawn(".xxxx", "x...x", "xx..x", "xxx.x", "xxxx.")),
    ],
    ids=repr,
)
def test_truth_table(rule, expected):
    np.testing.assert_array_equal(table(rule), expected)


@settings(deadline=None)
@given(st.lists(RULES, min_size=2, max_size=3))
def test_algebra(rules):
    seen = np.stack([table(rule) for rule in rules])
    first, *rest = rules
    every = any_of = first
    for rule in rest:
        every, any_of = every & rule, any_of | rule
    np.testing.assert_array_equal(table(every), seen.all(axis=0))
    np.testing.assert_array_equal(table(any_of), seen.any(axis=0))
    needs = tuple(sorted({name for rule in rules for name in rule.needs}))
    assert every.needs == any_of.needs == needs


@settings(deadline=None)
@given(RULES)
def test_whoever_says_it_hides_self_does(rule):
    """Whatever the segments and words are."""
    draw = np.random.default_rng(0)
    for _ in range(3):
        ids = draw.integers(0, 3, (2, 5))
        if rule.hides_self:
            assert not table(rule, segment=ids[0], word=ids[1]).diagonal().any()


@pytest.mark.parametrize("rule", SIMPLE, ids=repr)
def test_whoever_does_not_say_so_shows_self(rule):
    assert rule.hides_self or table(rule).diagonal().all()


def test_what_compositions_say():
    assert (NotSelf() & Window(2)).hides_self
    assert (Window(2) & NotSelf()).hides_self
    assert not (Window(2) & All()).hides_self
    assert (NotSelf() | HideWord()).hides_self
    assert not (NotSelf() | Causal()).hides_self
    assert not (NotSelf() & HideWord() | All()).hides_self
    assert (NotSelf() & (HideWord() | All())).hides_self


def test_what_rules_need():
    assert not any(r.needs for r in (All(), NotSelf(), Causal(), Window(1)))
    assert HideWord().needs == ("word_ids",)
    assert SameSegment().needs == ("position_ids", "segment_ids")
    both = HideWord() & SameSegment()
    assert both.needs == ("position_ids", "segment_ids", "word_ids")


@settings(deadline=None)
@given(RULES)
def test_config_round_trip(rule):
    saved = keras.saving.serialize_keras_object(rule)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is type(rule)
    assert again == rule and hash(again) == hash(rule)
    np.testing.assert_array_equal(table(again), table(rule))


def test_rules_are_equal_by_what_they_say():
    for a, b in itertools.permutations(SIMPLE, 2):
        assert a != b
    assert NotSelf() != NotSelf() & All()
    assert NotSelf() & All() != All() & NotSelf()
    assert NotSelf() != "NotSelf()"
    assert len({NotSelf(), NotSelf(), Window(1), Window(1), Window(2)}) == 3


def test_nested_compositions_are_flat():
    a, b, c = NotSelf(), Window(1), Causal()
    assert (a & b) & c == a & (b & c) == And(a, b, c)
    assert (a | b) | c == a | (b | c) == Or(a, b, c)
    assert ((a | b) & c).rules == (a | b, c)


def test_repr_is_how_it_is_written():
    rule = NotSelf() & (Window(2) | HideWord("right"))
    assert repr(rule) == "(NotSelf() & (Window(size=2) | HideWord(pieces='right')))"
    assert eval(repr(rule)) == rule


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_a_window_has_a_size(size):
    with pytest.raises(ValueError, match=f"positive whole number.*size={size!r}"):
        Window(size)


def test_hide_word_knows_two_ways():
    with pytest.raises(ValueError, match='"all".*"right".*pieces=\'left\''):
        HideWord("left")


@pytest.mark.parametrize("kind", [And, Or])
def test_only_rules_compose(kind):
    with pytest.raises(ValueError, match="composes visibility rules.*Received: 3"):
        kind(NotSelf(), 3)
    with pytest.raises(ValueError, match="at least one rule"):
        kind()
    with pytest.raises(TypeError):
        NotSelf() & 3
    with pytest.raises(TypeError):
        NotSelf() | None


def test_a_rule_without_a_table_says_so():
    class Lazy(Visibility):
        pass

    with pytest.raises(NotImplementedError, match="Lazy must define `visible`"):
        table(Lazy())


def test_a_rule_with_arguments_must_have_a_config():
    class Far(Visibility):
        def __init__(self, distance):
            self.distance = distance

    with pytest.raises(NotImplementedError, match="must define `get_config`"):
        Far(2).get_config()
