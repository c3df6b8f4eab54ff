"""Rules are judged by all that they show, near and far."""

import pytest

from keras_tta.visibility import (
    All,
    Causal,
    HideWord,
    NotSelf,
    SameSegment,
    Visibility,
    Window,
)
from keras_tta.visibility_questions import looks_left, looks_right

pytestmark = pytest.mark.agnostic


class NotNear(Visibility):
    """Hides self and both neighbours."""

    def visible(self, query, key):
        distance = query.position - key.position
        return (distance > 1) | (distance < -1)


class OddKeys(Visibility):
    def visible(self, query, key):
        return key.position % 2 == 1


@pytest.mark.parametrize(
    "rule, left, right",
    [
        (All(), True, True),
        (NotSelf() & Window(1), True, True),
        (Causal(), True, False),
        (NotNear(), True, True),
        (OddKeys(), True, True),
        (NotNear() & Causal(), True, False),
        (NotNear() & Window(1), False, False),
        (HideWord("all"), True, True),
        (HideWord("right") & SameSegment(), True, True),
        (HideWord("all") & SameSegment() & Causal(), True, False),
    ],
    ids=str,
)
def test_what_a_rule_shows(rule, left, right):
    assert looks_left(rule, 6) == left
    assert looks_right(rule, 6) == right


def test_a_row_too_short_shows_nothing():
    for length in (0, 1):
        assert not looks_left(All(), length) and not looks_right(All(), length)
    assert not looks_left(NotNear(), 2) and looks_left(NotNear(), 3)
