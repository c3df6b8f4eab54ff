import math

import numpy as np
import pytest

from keras_tta.data import (
    TokenSequences,
    is_held_out,
    split_documents,
    unigram_nats_per_token,
)

pytestmark = pytest.mark.agnostic

DOCUMENTS = [[f"Document {i}.", "It has a second sentence."] for i in range(400)]


def test_token_sequences():
    rows = [[5, 6], [], [7], [8, 9, 10]]
    sequences = TokenSequences.from_lists(rows)
    assert [sequences[i].tolist() for i in range(4)] == rows
    assert sequences[-1].tolist() == rows[-1]
    assert sequences.lengths.tolist() == [2, 0, 1, 3]
    assert len(TokenSequences.from_lists([])) == 0
    with pytest.raises(IndexError):
        sequences[4]


def test_selected_sequences():
    sequences = TokenSequences.from_lists([[5, 6], [], [7], [8, 9, 10]])
    selected = sequences.select([3, 1, 0])
    assert [row.tolist() for row in selected] == [[8, 9, 10], [], [5, 6]]
    assert len(sequences.select([])) == 0


@pytest.mark.parametrize(
    "starts, lengths", [([0], [4]), ([-1], [2]), ([1], [-1]), ([0, 1], [1]), (0, 3)]
)
def test_spans_outside_of_the_tokens_are_refused(starts, lengths):
    with pytest.raises(ValueError, match="outside|vectors"):
        TokenSequences(np.arange(3), starts, lengths)


def test_the_split_depends_on_the_document_alone():
    train, held_out = split_documents(DOCUMENTS, 0.1)
    assert sorted(train + held_out) == sorted(DOCUMENTS)
    assert 20 < len(held_out) < 60
    assert split_documents(reversed(DOCUMENTS), 0.1)[1] == held_out[::-1]
    assert all(is_held_out(document, 0.1) for document in held_out)
    # A larger fraction holds out more, and the same ones among them.
    assert all(is_held_out(document, 0.3) for document in held_out)


def test_a_split_with_an_empty_side_is_refused():
    for documents in ([], [["One."]]):
        with pytest.raises(ValueError, match=f"Of {len(documents)} documents 0 would"):
            split_documents(documents, 0.01)


@pytest.mark.parametrize("fraction", [0.0, 1.0, 1.5, -0.5, math.nan])
def test_a_fraction_that_is_none_is_refused(fraction):
    message = f"Received: held_out_fraction={fraction}"
    with pytest.raises(ValueError, match=message):
        split_documents(DOCUMENTS, fraction)
    with pytest.raises(ValueError, match=message):
        is_held_out(DOCUMENTS[0], fraction)


def test_the_default_fraction_is_a_twentieth():
    assert split_documents(DOCUMENTS) == split_documents(DOCUMENTS, 0.05)


def test_unigram_counts_ordinary_tokens_only():
    train, held_out = [[7, 7, 7], [8, 2]], [[7, 8], [9]]
    expected = -(math.log(4 / 9) + math.log(2 / 9) + math.log(1 / 9)) / 3
    nats = unigram_nats_per_token(train, held_out, vocabulary_size=10)
    assert math.isclose(nats, expected)
    # Special tokens change nothing, on either side.
    train, held_out = [[3, 7, 7, 7, 1], [8, 2, 0, 0]], [[3, 7, 8, 1], [4, 9, 5, 6]]
    assert math.isclose(unigram_nats_per_token(train, held_out, 10), expected)


def test_unigram_errors():
    with pytest.raises(ValueError, match="Token id 12 is outside"):
        unigram_nats_per_token([[12]], [[7]], 10)
    with pytest.raises(ValueError, match="no ordinary tokens"):
        unigram_nats_per_token([[7]], [[3, 1]], 10)
