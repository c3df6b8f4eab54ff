"""A Hugging Face BERT becomes an objective with a tokenizer."""

import json

import keras
import numpy as np
import pytest

from keras_tta.data import TTABytePairTokenizer, TTATokenizer
from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.models.heads import token_prediction_head
from keras_tta.presets import save_bert_transformers
from keras_tta.pretraining import MaskedLM, convert_bert_transformers
from keras_tta.tasks import TextScorer

TOKENS = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "Cat",
]
BATCH = {
    "token_ids": np.array([[3, 6, 7, 4], [3, 8, 4, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]]),
}


@pytest.fixture
def model():
    backbone = TransformerBackbone(
        vocabulary_size=len(TOKENS),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=8,
    )
    head = token_prediction_head(backbone)
    draw = np.random.default_rng(0)
    for weight in [*backbone.weights, *head.weights]:
        weight.assign(draw.normal(size=weight.shape))
    return backbone, head


@pytest.fixture
def folder(model, tmp_path):
    save_bert_transformers(tmp_path / "bert", *model)
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return tmp_path / "bert"


def test_it_predicts_what_bert_predicts(model, folder, tmp_path):
    backbone, head = model
    expected = keras.ops.convert_to_numpy(head(backbone(BATCH)))
    pretrainer = convert_bert_transformers(folder)
    assert type(pretrainer) is MaskedLM
    pretrainer.save_to_preset(tmp_path / "saved")
    for loaded in (pretrainer, MaskedLM.from_preset(tmp_path / "saved")):
        logits = keras.ops.convert_to_numpy(loaded.language_model(BATCH))
        assert np.abs(logits - expected).max() < 1e-5
        assert loaded.tokenizer.encode("The CAT") == [6, 7]


def test_special_tokens_are_found_by_name(folder):
    masking = convert_bert_transformers(folder).masking
    assert masking.mask_token_id == 5
    assert sorted(masking.special_token_ids) == [0, 3, 4, 5]


def test_a_text_is_read_between_berts_special_tokens(folder):
    pretrainer = convert_bert_transformers(folder)
    (score,) = TextScorer(pretrainer).token_scores("cat")
    masked = np.array([[3, 5, 4]])
    logits = pretrainer.language_model(
        {"token_ids": masked, "padding_mask": np.ones_like(masked)}
    )
    expected = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))[0, 1, 7]
    assert abs(score.log_probability - expected) < 1e-4


def test_case_is_as_the_tokenizers_config_says(folder):
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({"do_lower_case": False}))
    assert convert_bert_transformers(folder).tokenizer.encode("the Cat") == [6, 8]


def test_without_a_vocabulary_the_masking_must_be_given(folder):
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match="pass `masking`"):
        convert_bert_transformers(folder)
    masking = TokenMasking(len(TOKENS), 5, (0, 3, 4))
    pretrainer = convert_bert_transformers(folder, masking, sequence_length=4)
    assert pretrainer.masking is masking and pretrainer.tokenizer is None
    pretrainer.compile()
    assert pretrainer.evaluate(BATCH, verbose=0, return_dict=True)["loss"] > 0


def test_a_tokenizer_goes_out_and_comes_back(model, tmp_path):
    tokenizer = TTATokenizer.from_vocabulary(TOKENS, lowercase=False)
    save_bert_transformers(tmp_path / "out", *model, tokenizer)
    returned = convert_bert_transformers(tmp_path / "out").tokenizer
    assert {**returned.get_config(), "name": tokenizer.name} == tokenizer.get_config()
    assert returned.get_vocabulary() == TOKENS

    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "the Cat cat caf\u00e9 \u4e2d"
    assert theirs(text)["input_ids"] == [3, *tokenizer.encode(text), 4]


def test_a_tokenizer_of_no_word_pieces_does_not_go_out(model, tmp_path):
    with pytest.raises(ValueError, match="reads word pieces"):
        save_bert_transformers(tmp_path / "out", *model, TTABytePairTokenizer())
    assert not (tmp_path / "out").exists()
