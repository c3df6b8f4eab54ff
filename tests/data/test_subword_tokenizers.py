import json

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tta.data import (
    SPECIAL_TOKENS,
    python_documentation,
    train_byte_pair,
    train_unigram,
)
from tests.data.odd_texts import ODD_TEXTS

RESERVED = ["[unused0]", "<extra_id_0>"]
TRAINERS = [train_byte_pair, train_unigram]


@pytest.fixture(scope="module")
def trained():
    documents = [*python_documentation()[:20], ODD_TEXTS]
    return {
        train: train(documents, 1000, reserved_tokens=RESERVED) for train in TRAINERS
    }


def reload(tokenizer, folder):
    tokenizer.save_to_preset(folder)
    config = json.loads((folder / "tokenizer.json").read_text())
    loaded = keras.saving.deserialize_keras_object(config)
    loaded.load_preset_assets(str(folder))
    return loaded


@pytest.mark.parametrize("train", TRAINERS)
def test_every_door_gives_the_same_ids(trained, train, tmp_path):
    tokenizer = trained[train]
    expected = [tokenizer.encode(text) for text in ODD_TEXTS]
    loaded = reload(tokenizer, tmp_path)
    assert loaded.get_vocabulary() == tokenizer.get_vocabulary()
    for one in (tokenizer, loaded):
        assert one.encode_batch(ODD_TEXTS) == expected
        assert one(ODD_TEXTS) == expected
        assert [np.array(one(text)).tolist() for text in ODD_TEXTS] == expected
        assert one([text.encode() for text in ODD_TEXTS]) == expected
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices(ODD_TEXTS).batch(len(ODD_TEXTS))
    (batch,) = dataset.map(loaded)
    assert batch.to_list() == expected


@pytest.mark.parametrize("train", TRAINERS)
def test_vocabulary(trained, train):
    tokenizer = trained[train]
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:9] == [*SPECIAL_TOKENS, *RESERVED]
    assert tokenizer.vocabulary_size() == len(set(vocabulary)) <= 1000
    assert tokenizer.special_token_ids == (0, 1, 3, 4, 5, 6)
    assert tokenizer.unknown_token_id == 2
    assert (tokenizer.start_token_id, tokenizer.end_token_id) == (3, 1)
    assert tokenizer.id_to_token(tokenizer.token_to_id("[MASK]")) == "[MASK]"
    with pytest.raises(ValueError, match="in range"):
        tokenizer.id_to_token(len(vocabulary))


@pytest.mark.parametrize("train", TRAINERS)
def test_training_is_deterministic(train):
    documents = python_documentation()[:10]
    first, second = (train(documents, 500).get_vocabulary() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("train", TRAINERS)
def test_text_cannot_smuggle_special_tokens(trained, train):
    for token in (*SPECIAL_TOKENS, *RESERVED):
        ids = trained[train].encode(f"a {token} b{token}{token}")
        assert not set(ids) & {*range(9)} - {2}


@pytest.mark.parametrize("train", TRAINERS)
def test_word_ids(trained, train):
    ids, words = trained[train].encode_batch(
        ["the statement attributes", "", *ODD_TEXTS], return_word_ids=True
    )
    assert [len(row) for row in ids] == [len(row) for row in words]
    assert sorted(set(words[0])) == [0, 1, 2]
    assert words[1] == []
    for row in words:
        assert row[:1] in ([], [0])
        assert set(np.diff(row)) <= {0, 1}


@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_byte_pair_loses_nothing(trained, text):
    tokenizer = trained[train_byte_pair]
    ids = tokenizer.encode(text)
    assert tokenizer.detokenize(ids) == text
    assert tokenizer.detokenize([ids, ids]) == [text, text]
    assert tokenizer.unknown_token_id not in ids


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="abcdefgh iklmnorst.,", max_size=50))
def test_unigram_keeps_its_normal_form(trained, text):
    tokenizer = trained[train_unigram]
    assert tokenizer.detokenize(tokenizer.encode(text)) == " ".join(text.split())


def test_casing(tmp_path):
    documents = python_documentation()[:10]
    lower = train_byte_pair(documents, 400, lowercase=True)
    assert reload(lower, tmp_path).encode("THE") == lower.encode("the")
    cased = train_unigram(documents, 400, lowercase=False)
    assert cased.detokenize(cased.encode("The")) == "The"


@pytest.mark.parametrize("train", TRAINERS)
def test_errors(trained, train):
    with pytest.raises(ValueError, match="no text"):
        train(["", " "], 400)
    with pytest.raises(ValueError, match="vocabulary_size|cannot train"):
        train(["some text"], 10)
    with pytest.raises(ValueError, match="index 1 is not valid Unicode"):
        trained[train].encode_batch(["fine", "bad \ud800"])
    with pytest.raises(TypeError, match="index 0"):
        trained[train].encode_batch([None])
    with pytest.raises(ValueError, match="No vocabulary"):
        type(trained[train])().encode("text")
