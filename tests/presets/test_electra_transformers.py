"""Hugging Face's ELECTRA, in and out: the same logits, or an error that says why."""

import json
import shutil

import keras
import numpy as np
import pytest

from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.models.heads import replaced_token_head, token_prediction_head
from keras_tta.presets import PresetError, save_electra_transformers
from keras_tta.pretraining import (
    ReplacedTokenDetection,
    convert_electra_transformers,
)

SHARED = {"vocabulary_size": 20, "max_sequence_length": 8, "embedding_dim": 8}
INPUTS = {
    "token_ids": np.array([[3, 9, 8, 12, 1, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 0]]),
}
NETWORKS = ("discriminator", "generator")


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def networks():
    generator = TransformerBackbone(
        num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=6, **SHARED
    )
    discriminator = TransformerBackbone(
        num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=12, **SHARED
    )
    return generator, discriminator


@pytest.mark.parametrize("network", NETWORKS)
def test_logits_are_those_of_transformers(reference_data, network, tmp_path):
    folder = reference_data / "golden" / "electra_transformers"
    reference = np.load(folder / "reference.npz")
    names = ("token_ids", "padding_mask", "segment_ids")
    inputs = {name: reference[name] for name in names}
    real = inputs["padding_mask"] == 1
    model = convert_electra_transformers(folder / network, single_segment=False)
    model.export_to_transformers(tmp_path)
    again = convert_electra_transformers(tmp_path, single_segment=False)
    for ours in (model, again):
        logits = numpy(ours(inputs))
        assert np.abs(logits - reference[f"{network}_logits"])[real].max() < 1e-4
        hidden = numpy(ours.backbone(inputs))
        expected = reference[f"{network}_sequence_output"]
        assert np.abs(hidden - expected)[real].max() < 1e-4


@pytest.mark.parametrize("tie", ["embeddings", "none"])
def test_both_networks_go_out_and_come_back(tie, tmp_path):
    masking = TokenMasking(20, 4, (0, 1, 3))
    electra = ReplacedTokenDetection(*networks(), masking, tie=tie)
    electra.export_to_transformers(tmp_path)
    again = convert_electra_transformers(tmp_path, masking)
    assert again.tie == tie
    for name in ("detector", "generator_language_model"):
        logits = [numpy(getattr(model, name)(INPUTS)) for model in (electra, again)]
        assert np.abs(logits[0] - logits[1]).max() < 1e-5
    with pytest.raises(ValueError, match="give `masking`"):
        convert_electra_transformers(tmp_path)
    with pytest.raises(ValueError, match="leave out `masking`"):
        convert_electra_transformers(tmp_path / "generator", masking)


def test_two_networks_may_be_made_one(tmp_path):
    masking = TokenMasking(20, 4, (0, 1, 3))
    _, discriminator = networks()
    electra = ReplacedTokenDetection(None, discriminator, masking)
    electra.export_to_transformers(tmp_path)
    again = convert_electra_transformers(tmp_path, masking, tie="all")
    assert again.generator is again.discriminator
    logits = [numpy(x.language_model(INPUTS)) for x in (electra, again)]
    assert np.abs(logits[0] - logits[1]).max() < 1e-5


@pytest.fixture
def folder(tmp_path):
    generator, discriminator = networks()
    save_electra_transformers(
        tmp_path / "generator", generator, token_prediction_head(generator)
    )
    save_electra_transformers(
        tmp_path / "discriminator", discriminator, replaced_token_head(discriminator)
    )
    return tmp_path


@pytest.mark.agnostic
def test_a_generator_under_a_discriminators_config_is_named(folder):
    config = json.loads((folder / "discriminator" / "config.json").read_text())
    config["architectures"] = ["ElectraForMaskedLM"]
    (folder / "generator" / "config.json").write_text(json.dumps(config))
    with pytest.raises(PresetError, match="hidden_size 4, .* says 8.*generator is"):
        convert_electra_transformers(folder / "generator")


@pytest.mark.agnostic
def test_a_discriminator_has_no_output_to_tie(folder):
    for network in NETWORKS:
        path = folder / network / "config.json"
        config = {**json.loads(path.read_text()), "tie_word_embeddings": False}
        path.write_text(json.dumps(config))
    convert_electra_transformers(folder / "discriminator")
    with pytest.raises(PresetError, match="`tie_word_embeddings` must be True"):
        convert_electra_transformers(folder / "generator")


@pytest.mark.agnostic
def test_weights_of_another_kind_are_named(folder):
    path = folder / "generator" / "model.safetensors"
    path.rename(path.with_name("pytorch_model.bin"))
    with pytest.raises(FileNotFoundError, match="It has pytorch_model.bin. To write"):
        convert_electra_transformers(folder / "generator")


@pytest.mark.agnostic
def test_heads_of_the_other_network_are_named(folder):
    # Else a head would be random and nobody would know.
    shutil.copy(
        folder / "generator" / "model.safetensors",
        folder / "discriminator" / "model.safetensors",
    )
    config = json.loads((folder / "generator" / "config.json").read_text())
    config["architectures"] = ["ElectraForPreTraining"]
    (folder / "discriminator" / "config.json").write_text(json.dumps(config))
    with pytest.raises(PresetError, match="discriminator_predictions.* is missing"):
        convert_electra_transformers(folder / "discriminator")
    config["architectures"] = ["ElectraModel"]
    (folder / "discriminator" / "config.json").write_text(json.dumps(config))
    with pytest.raises(PresetError, match="`architectures` must name one of"):
        convert_electra_transformers(folder / "discriminator")


@pytest.mark.parametrize("network", NETWORKS)
def test_transformers_reads_what_is_written(folder, network):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    architecture = {
        "discriminator": transformers.ElectraForPreTraining,
        "generator": transformers.ElectraForMaskedLM,
    }[network]
    theirs, loading = architecture.from_pretrained(
        folder / network, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    with torch.no_grad():
        expected = theirs.eval()(
            input_ids=torch.as_tensor(INPUTS["token_ids"]),
            attention_mask=torch.as_tensor(INPUTS["padding_mask"]),
        ).logits.numpy()
    logits = numpy(convert_electra_transformers(folder / network)(INPUTS))
    assert np.abs(logits - expected)[INPUTS["padding_mask"] == 1].max() < 1e-4
