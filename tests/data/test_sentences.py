import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tta.data import split_sentences

pytestmark = pytest.mark.agnostic


@pytest.mark.parametrize(
    "sentences",
    [
        [],
        ["No final stop"],
        ["One.", "Two!", "Three?"],
        ["It rose by 3.5 % to 1,000.25 euros.", "Then it fell."],
        ["Mr. Smith met Dr. J. R. Watson, e.g. in No. 4.", "They left."],
        ["“Who?” he asked.", "“I am.”", "(So was I.)", "'Good.'"],
        ["Wait... what?", "Nothing."],
        ["It was I.", "You knew."],
        ["The U.S. team won.", "End."],
    ],
)
def test_english(sentences):
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("\n  ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今天天气很好。", "我们去公园吧！", "你去吗？"],
        ["他说：“你好！”", "然后走了。"],
        ["「行きましょう。」", "彼は言った。", "本当？！"],
        ["没有句号"],
        ["价格是3.5元。", "OK。"],
    ],
)
def test_chinese_and_japanese(sentences):
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences("\n".join(sentences)) == sentences


def test_other_stops():
    assert split_sentences("यह एक है। यह दो है।") == ["यह एक है।", "यह दो है।"]
    assert split_sentences("هل هذا؟ نعم.") == ["هل هذا؟", "نعم."]


def test_lines_of_a_paragraph_are_joined():
    assert split_sentences("One\ntwo.\n Three") == ["One two.", "Three"]
    assert split_sentences("一行\n二行。\n三") == ["一行二行。", "三"]


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet='aB .!?。！”"\n中1', max_size=60))
def test_no_character_is_lost(text):
    joined = "".join(split_sentences(text))
    assert "".join(joined.split()) == "".join(text.split())
