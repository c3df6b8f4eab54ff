"""The authors' checkpoint gives the authors' numbers."""

import keras
import numpy as np
import pytest

from keras_tta.presets import load_tokenizer
from keras_tta.pretraining import LanguageAutoencoder, convert_tta_checkpoint

TOKENS = ("[PAD]", "[EOS]", "[UNK]", "[SOS]", "[MASK]", "[CLS]", "[SEP]")


@pytest.fixture(scope="module")
def golden(reference_data):
    return np.load(reference_data / "golden" / "tta_official" / "reference.npz")


@pytest.fixture(scope="module")
def variables(golden):
    return {
        name.removeprefix("var/"): golden[name]
        for name in golden
        if name.startswith("var/")
    }


def worst_log_probability(pretrainer, golden):
    """The largest difference on real positions."""
    inputs = {name: golden[name] for name in ("token_ids", "padding_mask")}
    logits = pretrainer.language_model(inputs)
    log_probs = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits))
    real = golden["padding_mask"] == 1
    return np.abs(log_probs - golden["log_probs"])[real].max()


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    # In another order than the published one, so that ids must be found by name.
    tokens = [*reversed(TOKENS), *(f"w{index}" for index in range(61 - len(TOKENS)))]
    path.write_text("\n".join(tokens) + "\n")
    return path


def test_log_probabilities_from_arrays(variables, golden):
    pretrainer = convert_tta_checkpoint(variables, num_heads=4)
    assert worst_log_probability(pretrainer, golden) < 1e-4
    assert pretrainer.special_token_ids == (0, 1, 3, 4)
    assert pretrainer.tokenizer is None


def test_log_probabilities_from_the_checkpoint(reference_data, golden, tmp_path):
    pytest.importorskip("tensorflow")
    checkpoint = reference_data / "golden" / "tta_official" / "model.ckpt"
    pretrainer = convert_tta_checkpoint(checkpoint, num_heads=4)
    pretrainer.save_to_preset(tmp_path / "saved")
    loaded = LanguageAutoencoder.from_preset(tmp_path / "saved")
    assert worst_log_probability(loaded, golden) < 1e-4


def test_special_tokens_are_found_by_name(variables, vocabulary, tmp_path):
    pretrainer = convert_tta_checkpoint(variables, 4, vocabulary)
    assert pretrainer.special_token_ids == (0, 1, 2, 3, 5, 6)
    assert pretrainer.backbone.mask_token_id == 2
    assert pretrainer.tokenizer.encode("w0 w53 x") == [7, 60, 4]
    pretrainer.save_to_preset(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode("w0 w53 x") == [7, 60, 4]


def test_a_vocabulary_of_another_length_is_refused(variables, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(TOKENS) + "\n")
    with pytest.raises(ValueError, match="7 tokens, the checkpoint's .* 61 rows"):
        convert_tta_checkpoint(variables, 4, path)


def test_what_is_skipped_is_said(variables, caplog):
    with caplog.at_level("WARNING"):
        convert_tta_checkpoint(variables, 4)
    assert "Skipped 2 variables: the pooler" in caplog.text
