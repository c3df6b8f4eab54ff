import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tta.tasks.encoded_texts import EncodedTexts, scored_slots, window_starts
from keras_tta.visibility import Causal, NotSelf, Visibility

pytestmark = pytest.mark.agnostic


def test_texts_lie_between_their_special_tokens(tokenizer):
    encoded = EncodedTexts.encode(["the cats", "", "dog"], tokenizer, with_words=True)
    assert encoded.token_ids.tolist() == [3, 7, 9, 11, 1, 3, 1, 3, 10, 1]
    assert encoded.word_ids.tolist() == [-1, 0, 1, 1, -2, -1, -2, -1, 0, -2]
    assert encoded.offsets.tolist() == [0, 5, 7, 10]
    assert encoded.text_of_token.tolist() == [0] * 5 + [1] * 2 + [2] * 3


def test_no_texts(tokenizer):
    encoded = EncodedTexts.encode([], tokenizer, with_words=True)
    assert len(encoded) == 0
    assert encoded.word_counts(encoded.is_scored("all")).tolist() == []


def test_words_are_counted_where_a_piece_of_them_counts(tokenizer):
    texts = ["cats walking on", "", "cat", "sat"]
    encoded = EncodedTexts.encode(texts, tokenizer, with_words=True)
    everything = encoded.is_scored("all")
    assert encoded.word_counts(everything).tolist() == [3, 0, 1, 1]
    some = encoded.is_scored("all", positions=[[0, 1, 3], [], [], [0]])
    assert encoded.word_counts(some).tolist() == [2, 0, 0, 1]


def test_inputs_give_special_tokens_words_of_their_own(tokenizer):
    encoded = EncodedTexts.encode(["the cats", "dog"], tokenizer, with_words=True)
    rows = encoded.rows(8, None, NotSelf())
    needs = ("word_ids", "segment_ids", "position_ids")
    inputs = encoded.inputs(rows.starts, rows.lengths, (3, 6), needs)
    assert inputs["token_ids"].tolist() == [
        [3, 7, 9, 11, 1, 0],
        [3, 10, 1, 0, 0, 0],
        [0] * 6,
    ]
    assert inputs["padding_mask"].sum(axis=1).tolist() == [5, 3, 0]
    assert inputs["word_ids"][0].tolist() == [-1, 0, 1, 1, -2, -3]
    assert inputs["position_ids"][1].tolist() == [0, 1, 2, 0, 0, 0]
    assert inputs["segment_ids"][1].tolist() == [1, 1, 1, 0, 0, 0]
    assert {array.dtype.name for array in inputs.values()} == {"int32"}


def test_a_window_has_special_tokens_of_its_own(tokenizer):
    encoded = EncodedTexts.encode(["a cat sat on the mat"], tokenizer, True)
    rows = encoded.rows(5, 2, NotSelf())
    inputs = encoded.inputs(rows.starts, rows.lengths, (3, 5), ("word_ids",))
    token = tokenizer.id_to_token
    assert [[token(i) for i in row] for row in inputs["token_ids"]] == [
        ["[SOS]", "a", "cat", "sat", "[EOS]"],
        ["[SOS]", "sat", "on", "the", "[EOS]"],
        ["[SOS]", "on", "the", "mat", "[EOS]"],
    ]
    assert inputs["word_ids"][1].tolist() == [-1, 2, 3, 4, -2]


def test_blanks_are_tokens_that_no_token_sees(tokenizer):
    text = EncodedTexts.encode_with_blanks(["the ", " sat on ", ""], tokenizer)
    rows = text.rows(9, None, NotSelf())
    inputs = text.inputs(rows.starts, rows.lengths, (1, 9), ("word_ids",))
    assert inputs["token_ids"].tolist() == [[3, 7, 4, 13, 15, 4, 1, 0, 0]]
    assert inputs["padding_mask"].tolist() == [[1, 1, 0, 1, 1, 0, 1, 0, 0]]
    assert inputs["word_ids"].tolist() == [[-1, 0, 1, 2, 3, 4, -2, -3, -3]]


def test_a_text_too_long_is_named(tokenizer):
    encoded = EncodedTexts.encode(["a", "a cat sat", "a"], tokenizer)
    with pytest.raises(ValueError, match="index 1 has 3 tokens.* at most 2 .*stride"):
        encoded.rows(4, None, NotSelf())


@given(
    size=st.integers(3, 12),
    stride=st.integers(1, 10),
    excess=st.integers(1, 30),
    sees=st.sampled_from([(True, True), (True, False), (False, True)]),
)
def test_every_token_is_scored_once_where_it_has_the_most_context(
    size, stride, excess, sees
):
    stride = min(stride, size - 2)
    length = size + excess
    begins = window_starts(length - 2, size - 2, stride)
    firsts, lasts = scored_slots(begins, length, size, *sees)
    scored = [
        (begin + slot, window)
        for window, begin in enumerate(begins)
        for slot in range(firsts[window], lasts[window])
    ]
    assert [token for token, _ in scored] == list(range(length))

    def context(token, window):
        slot, count = token - begins[window], len(begins)
        if not (window > 0) <= slot < size - (window < count - 1):
            return -1
        left = slot if window and sees[0] else np.inf
        right = size - 1 - slot if window < count - 1 and sees[1] else np.inf
        return min(left, right)

    for token, window in scored:
        best = max(context(token, other) for other in range(len(begins)))
        assert context(token, window) == best >= 0


class NotNear(Visibility):
    """Hides self and both neighbours."""

    def visible(self, query, key):
        distance = query.position - key.position
        return (distance > 1) | (distance < -1)


@pytest.mark.parametrize(
    "rule, lasts",
    [(NotSelf(), (5, 7)), (NotNear(), (5, 7)), (Causal(strict=True), (6, 7))],
    ids=str,
)
def test_windows_end_where_what_the_rule_shows_does(tokenizer, rule, lasts):
    encoded = EncodedTexts.encode(["a cat sat on the mat a cat"], tokenizer)
    rows = encoded.rows(7, 3, rule)
    assert rows.starts.tolist() == [0, 3]
    assert rows.lasts.tolist() == list(lasts)
