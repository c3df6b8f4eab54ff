import pytest

from keras_tta.tasks.scoring_rules import scoring_rule
from keras_tta.visibility import All, Causal, HideWord, NotSelf, Window

pytestmark = pytest.mark.agnostic


@pytest.mark.parametrize(
    "visibility, window, expected",
    [
        (None, None, NotSelf() & Window(9)),
        ("others", None, NotSelf()),
        ("word_left_to_right", None, HideWord("right")),
        ("whole_word", 3, HideWord("all") & Window(3)),
        ("left", None, Causal(strict=True)),
        (NotSelf() & Window(2), None, NotSelf() & Window(2)),
    ],
)
def test_names_stand_for_rules(visibility, window, expected):
    own = NotSelf() & Window(9)
    assert scoring_rule(visibility, window, own) == expected


@pytest.mark.parametrize("visibility", [All(), Causal(), NotSelf() | Window(1)])
def test_a_rule_that_shows_self_is_refused(visibility):
    with pytest.raises(ValueError, match="sees itself.*hides self"):
        scoring_rule(visibility, None, NotSelf())


@pytest.mark.parametrize("visibility", ["other", 3])
def test_what_is_no_rule_is_refused(visibility):
    with pytest.raises(ValueError, match="`visibility` must"):
        scoring_rule(visibility, None, NotSelf())
