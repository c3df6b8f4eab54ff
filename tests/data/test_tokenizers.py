import json
import subprocess
import sys

import numpy as np
import pytest
import tokenizers

from keras_tta.data import SPECIAL_TOKENS, TTATokenizer, python_documentation
from keras_tta.data.tokenizer_training import train_wordpiece
from tests.data.odd_texts import ODD_TEXTS


@pytest.fixture(scope="module")
def documents():
    return [*python_documentation(), ODD_TEXTS]


@pytest.fixture(scope="module")
def tokenizer(documents):
    return train_wordpiece(documents, 1500, min_frequency=1)


def reference(tokenizer):
    """Hugging Face's own BERT tokenizer over the same vocabulary."""
    return tokenizers.BertWordPieceTokenizer(
        {token: i for i, token in enumerate(tokenizer.get_vocabulary())},
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        handle_chinese_chars=tokenizer.split_on_cjk,
    )


OPTIONS = [
    {},
    {"lowercase": False},
    {"lowercase": True, "strip_accents": False},
    {"lowercase": False, "strip_accents": True},
    {"split_on_cjk": False},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_every_door_gives_the_ids_of_hugging_face(documents, options, tmp_path):
    tokenizer = train_wordpiece(documents, 1500, min_frequency=1, **options)
    for option, value in options.items():
        assert getattr(tokenizer, option) == value
    theirs = reference(tokenizer)
    special = [*SPECIAL_TOKENS, "[MASK]"]
    expected = [
        theirs.encode(text, add_special_tokens=False).ids
        for text in ODD_TEXTS
        if not any(token in text for token in special)
    ]
    texts = [text for text in ODD_TEXTS if not any(token in text for token in special)]
    assert sum(map(len, expected)) > 200

    tokenizer.save_to_preset(tmp_path)
    loaded = _load(tmp_path)
    for one in (tokenizer, loaded):
        assert one.encode_batch(texts) == expected
        assert [one.encode(text) for text in texts] == expected
        assert one(texts) == expected
        assert [np.array(one(text)).tolist() for text in texts] == expected
        assert one([texts, texts[:2]]) == [expected, expected[:2]]
        assert one(np.array(texts[3:6])) == expected[3:6]
        assert one([text.encode() for text in texts]) == expected
        restored = tokenizers.Tokenizer.from_str(one.huggingface.to_str())
        assert [e.ids for e in restored.encode_batch(texts)] == expected


def _load(folder):
    """What a preset's reader does, without a backbone beside the tokenizer."""
    import keras

    config = json.loads((folder / "tokenizer.json").read_text())
    assert config["registered_name"] == "keras_tta>TTATokenizer"
    tokenizer = keras.saving.deserialize_keras_object(config)
    tokenizer.load_preset_assets(str(folder))
    return tokenizer


def test_in_a_tensorflow_graph(tokenizer):
    tf = pytest.importorskip("tensorflow")
    # A string tensor ends at no NUL; the rest is the same list.
    expected = tokenizer.encode_batch(ODD_TEXTS)
    dataset = tf.data.Dataset.from_tensor_slices(ODD_TEXTS)
    rows = [ids.numpy().tolist() for ids in dataset.map(tokenizer)]
    assert rows == expected
    (batch,) = dataset.batch(len(ODD_TEXTS)).map(tokenizer)
    assert batch.to_list() == expected
    assert tokenizer(tf.constant(ODD_TEXTS)) == expected
    nested = tf.ragged.constant([["one", "two words"], [], ["three"]])
    (ragged,) = tf.data.Dataset.from_tensors(nested).map(tokenizer)
    assert ragged.to_list() == [tokenizer(row) for row in nested.to_list()]


def test_training_is_deterministic(documents):
    # The trainer inside iterates over hash tables with another seed each time.
    vocabularies = {
        tuple(train_wordpiece(documents, 1500).get_vocabulary()) for _ in range(3)
    }
    assert len(vocabularies) == 1


def test_trained_vocabulary(documents):
    reserved = ["[unused0]", "<extra_id_0>"]
    tokenizer = train_wordpiece(documents, 1500, reserved_tokens=reserved)
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:9] == [*SPECIAL_TOKENS, *reserved]
    assert (
        len(set(vocabulary)) == len(vocabulary) == tokenizer.vocabulary_size() == 1500
    )
    assert (tokenizer.pad_token_id, tokenizer.end_token_id) == (0, 1)
    assert (tokenizer.unknown_token_id, tokenizer.start_token_id) == (2, 3)
    assert tokenizer.mask_token_id == 4
    assert tokenizer.special_token_ids == (0, 1, 3, 4, 5, 6)
    text = "the value of the attribute"
    assert tokenizer.detokenize(tokenizer.encode(text)) == text


def test_character_coverage():
    text = ["abcab" * 100 + " z"]
    assert "z" in train_wordpiece(text, 60, character_coverage=1.0).get_vocabulary()
    tokenizer = train_wordpiece(text, 60, character_coverage=0.99)
    assert "z" not in tokenizer.get_vocabulary()
    assert tokenizer.encode("z") == [tokenizer.unknown_token_id]


def test_training_errors():
    with pytest.raises(ValueError, match="no text"):
        train_wordpiece(["", " "], 100)
    with pytest.raises(ValueError, match=r"`vocabulary_size` must be at least 12"):
        train_wordpiece(["abc"], 8)
    with pytest.raises(ValueError, match="reserved_tokens"):
        train_wordpiece(["abc"], 100, reserved_tokens=["unused"])


def test_text_cannot_smuggle_special_tokens(tokenizer):
    for token in SPECIAL_TOKENS:
        ids = tokenizer.encode(f"a {token} b {token.lower()} {token}{token}")
        assert not set(ids) & set(tokenizer.special_token_ids)
    asked = TTATokenizer(tokenizer.get_vocabulary(), special_tokens_in_strings=True)
    ids = asked.encode("the [MASK] of [mask]")
    assert ids[1] == asked.mask_token_id and ids.count(asked.mask_token_id) == 1
    assert asked.word_ids("the [MASK][MASK]") == [0, 1, 2]


def test_word_ids_agree_with_hugging_face(tokenizer):
    ids, word_ids = tokenizer.encode_batch(ODD_TEXTS, return_word_ids=True)
    theirs = tokenizer.huggingface.encode_batch(ODD_TEXTS, add_special_tokens=False)
    assert ids == [encoding.ids for encoding in theirs]
    assert word_ids == [encoding.word_ids for encoding in theirs]
    assert [tokenizer.word_ids(text) for text in ODD_TEXTS] == word_ids


def test_existing_vocabularies(reference_data):
    folder = reference_data / "data" / "vocabularies"
    tta = TTATokenizer.from_vocabulary(folder / "tta.vocab-lower.sub-32k.txt")
    assert tta.vocabulary_size() == 29530
    assert (tta.start_token_id, tta.end_token_id, tta.mask_token_id) == (3, 1, 4)
    bert = TTATokenizer.from_vocabulary(str(folder / "bert-base-uncased.vocab.txt"))
    assert (bert.start_token_id, bert.end_token_id) == (101, 102)
    assert bert.special_token_ids == (0, 101, 102, 103)
    for tokenizer in (tta, bert):
        theirs = reference(tokenizer)
        for text in ODD_TEXTS:
            if "[" not in text:
                ids = theirs.encode(text, add_special_tokens=False).ids
                assert tokenizer.encode(text) == ids
    assert bert.encode("Hello, unaffable world!") == [
        *(7592, 1010, 14477, 20961, 3468, 2088, 999)
    ]


@pytest.mark.parametrize(
    "options", [{"split": False}, {"sequence_length": 8}, {"dtype": "string"}]
)
def test_refused_options(options):
    with pytest.raises(ValueError, match=f"takes no `{next(iter(options))}`"):
        TTATokenizer(SPECIAL_TOKENS, **options)


def test_bad_vocabularies():
    with pytest.raises(ValueError, match="holds 'a' twice, as ids 7 and 9"):
        TTATokenizer([*SPECIAL_TOKENS, "a", "b", "a"])
    with pytest.raises(ValueError, match=r"\[SOS\]"):
        TTATokenizer(["[PAD]", "[EOS]", "[UNK]", "[MASK]", "[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match="No vocabulary"):
        TTATokenizer().encode("text")


def test_bad_texts(tokenizer):
    with pytest.raises(ValueError, match="index 1 is not valid Unicode: character 4"):
        tokenizer.encode_batch(["fine", "bad \ud800"])
    with pytest.raises(TypeError, match=r"index 0 .* texts\[0\]=None"):
        tokenizer.encode_batch([None])


def test_without_tensorflow():
    code = (
        "import sys; sys.modules['tensorflow'] = None;"
        "sys.modules['tensorflow_text'] = None;"
        "from keras_tta.data import *;"
        "t = TTATokenizer([*SPECIAL_TOKENS, 'a', '##b']);"
        "assert t(['ab a', '']) == [[7, 8, 7], []];"
        "assert t.detokenize([7, 8, 7]) == 'ab a'"
    )
    environment = {"KERAS_BACKEND": "jax", "PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
