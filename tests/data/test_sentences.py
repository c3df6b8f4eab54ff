import pytest

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
