"""What is saved comes back: by ours, by KerasHub, elsewhere, and after a failure."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

from keras_tta.data import SPECIAL_TOKENS, TTABytePairTokenizer, TTATokenizer
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.presets import (
    PresetError,
    load_backbone,
    load_head,
    load_tokenizer,
    save_preset,
)
from keras_tta.presets import saving as saving_module
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.version import __version__
from keras_tta.visibility import HideWord, NotSelf, Window

VOCABULARY = [*SPECIAL_TOKENS, "the", "cat", "##s", "sat"]
INPUTS = {
    "token_ids": np.array([[3, 7, 8, 9, 10, 1], [3, 8, 10, 1, 0, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
}

# Runs on another backend, TensorFlow hidden unless that is the backend.
ELSEWHERE = """
import json, sys
import numpy as np

folder, tensorflow = sys.argv[1:]
if tensorflow == "hidden":
    sys.modules.update(tensorflow=None, tensorflow_text=None)
import keras
import keras_tta
import keras_hub

arrays = np.load(folder + "/arrays.npz")
inputs = {k: arrays[k] for k in ("token_ids", "padding_mask")}
pretrainer = keras_tta.pretraining.LanguageAutoencoder.from_preset(folder + "/saved")
logits = keras.ops.convert_to_numpy(pretrainer.language_model(inputs))
theirs = keras_hub.models.Backbone.from_preset(folder + "/saved")
hidden = keras.ops.convert_to_numpy(theirs(inputs))
tokenizer = keras_hub.models.Tokenizer.from_preset(folder + "/saved")

pretrainer.compile(optimizer="sgd")
pretrainer.fit(inputs, batch_size=2, verbose=0)
pretrainer.save_to_preset(folder + "/again")
again = keras_tta.pretraining.LanguageAutoencoder.from_preset(folder + "/again")
same = [
    float(np.abs(keras.ops.convert_to_numpy(a - b)).max())
    for a, b in zip(again.weights, pretrainer.weights) if "seed" not in a.path
]
print(json.dumps({
    "logits": float(np.abs(logits - arrays["logits"]).max()),
    "hidden": float(np.abs(hidden - arrays["hidden"]).max()),
    "ids": [int(i) for i in tokenizer("the cats sat")],
    "moved": float(np.abs(
        keras.ops.convert_to_numpy(again.language_model(inputs)) - logits).max()),
    "same": max(same),
    "backend": keras.backend.backend(),
    "tensorflow": sys.modules.get("tensorflow") is not None,
}))
"""


def make_pretrainer(**options):
    backbone = TTABackbone(
        vocabulary_size=len(VOCABULARY),
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=12,
        **options,
    )
    pretrainer = LanguageAutoencoder(
        backbone, special_token_ids=(0, 1, 3), normalization="positions"
    )
    # Fresh biases and norms are zeros and ones, which any mix-up would leave alike.
    generator = np.random.default_rng(0)
    for weight in pretrainer.trainable_weights:
        weight.assign(generator.normal(size=weight.shape) * 0.5)
    return pretrainer


def logits_of(pretrainer):
    return keras.ops.convert_to_numpy(pretrainer.language_model(INPUTS))


@pytest.fixture(scope="module")
def pretrainer():
    return make_pretrainer()


@pytest.fixture(scope="module")
def saved(pretrainer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "saved"
    pretrainer.save_to_preset(
        folder, tokenizer=TTATokenizer(VOCABULARY), figures={"nats per token": 2.5}
    )
    return folder


def test_a_pretrainer_comes_back_with_all_its_settings(pretrainer, saved):
    loaded = LanguageAutoencoder.from_preset(saved)
    np.testing.assert_array_equal(logits_of(loaded), logits_of(pretrainer))
    assert loaded.special_token_ids == (0, 1, 3)
    assert loaded.normalization == "positions"
    assert loaded.tokenizer.encode("the cats sat") == [7, 8, 9, 10]
    overridden = LanguageAutoencoder.from_preset(saved, normalization="tokens")
    assert overridden.normalization == "tokens"


def test_its_tokenizer_is_saved_with_it_again(saved, tmp_path):
    LanguageAutoencoder.from_preset(saved).save_to_preset(tmp_path / "again")
    assert load_tokenizer(tmp_path / "again").get_vocabulary() == VOCABULARY


def test_backbone_and_head_come_back_alone(pretrainer, saved):
    backbone = load_backbone(saved)
    head = load_head(saved, backbone)
    logits = keras.ops.convert_to_numpy(head(backbone(INPUTS)))
    np.testing.assert_allclose(logits, logits_of(pretrainer), atol=1e-6)


def test_kerashub_loads_backbone_and_tokenizer(pretrainer, saved):
    backbone = keras_hub.models.Backbone.from_preset(str(saved))
    assert type(backbone) is TTABackbone
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(backbone(INPUTS)),
        keras.ops.convert_to_numpy(pretrainer.backbone(INPUTS)),
        atol=1e-6,
    )
    tokenizer = keras_hub.models.Tokenizer.from_preset(str(saved))
    assert type(tokenizer) is TTATokenizer
    assert tokenizer.encode("cats") == [8, 9]


@pytest.mark.parametrize(
    "backbone_class", [TTABackbone, TransformerBackbone, keras_hub.models.T5Backbone]
)
def test_a_tokenizer_comes_back_whatever_the_backbone(backbone_class, tmp_path):
    backbone = backbone_class(
        vocabulary_size=len(VOCABULARY),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    save_preset(tmp_path, backbone, tokenizer=TTATokenizer(VOCABULARY))
    for cls in (keras_hub.models.Tokenizer, TTATokenizer):
        tokenizer = cls.from_preset(str(tmp_path))
        assert type(tokenizer) is TTATokenizer
        assert tokenizer.encode("cats") == [8, 9]
    with pytest.raises(TypeError, match="is a TTATokenizer, no TTABytePairTokenizer"):
        TTABytePairTokenizer.from_preset(tmp_path)


def test_the_layout_is_kerashubs_and_names_our_version(saved):
    assert sorted(path.name for path in saved.iterdir()) == [
        "README.md",
        "assets",
        "config.json",
        "metadata.json",
        "model.weights.h5",
        "pretrainer.json",
        "token_prediction_head.json",
        "token_prediction_head.safetensors",
        "tokenizer.json",
    ]
    metadata = json.loads((saved / "metadata.json").read_text())
    assert metadata["keras_tta_version"] == __version__
    assert metadata["keras_hub_version"]


def test_composed_rules_come_back(tmp_path):
    rule = NotSelf() & (Window(3) | HideWord("right"))
    save_preset(tmp_path / "saved", make_pretrainer(visibility=rule).backbone)
    assert load_backbone(tmp_path / "saved").visibility == rule


def test_dtype_is_the_current_policy_or_the_one_asked_for(saved):
    assert load_backbone(saved, dtype="bfloat16").variable_dtype == "bfloat16"
    keras.config.set_dtype_policy("mixed_bfloat16")
    loaded = LanguageAutoencoder.from_preset(saved)
    assert loaded.backbone.dtype_policy.name == "mixed_bfloat16"
    assert loaded.head.dtype_policy.name == "mixed_bfloat16"
    assert load_backbone(saved, dtype="float32").compute_dtype == "float32"


def test_weights_kept_in_bfloat16_come_back(saved, tmp_path):
    half = load_backbone(saved, dtype="bfloat16")
    save_preset(tmp_path / "half", half)
    loaded = load_backbone(tmp_path / "half", dtype="float32")
    for ours, theirs in zip(loaded.weights, half.weights, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(ours),
            keras.ops.convert_to_numpy(keras.ops.cast(theirs, "float32")),
        )


def test_without_a_head_there_is_no_objective(pretrainer, tmp_path):
    save_preset(tmp_path / "bare", pretrainer.backbone)
    with pytest.raises(FileNotFoundError, match="holds no head `token_prediction"):
        LanguageAutoencoder.from_preset(tmp_path / "bare")


def test_another_objectives_preset_is_refused(pretrainer, tmp_path):
    save_preset(
        tmp_path / "saved",
        pretrainer.backbone,
        heads={"token_prediction_head": pretrainer.head},
        objective={"registered_name": "keras_tta>Another", "config": {}},
    )
    with pytest.raises(PresetError, match="saved by keras_tta>Another"):
        LanguageAutoencoder.from_preset(tmp_path / "saved")


def test_a_head_of_other_settings_is_refused(saved, pretrainer, tmp_path):
    head = pretrainer.head
    save_preset(tmp_path / "saved", pretrainer.backbone, heads={head.name: head})
    path = tmp_path / "saved" / "token_prediction_head.json"
    path.write_text(path.read_text().replace("1e-12", "0.5"))
    with pytest.raises(PresetError, match="layer_norm_epsilon': 0.5"):
        LanguageAutoencoder.from_preset(tmp_path / "saved")
    assert load_head(tmp_path / "saved", pretrainer.backbone).layer_norm_epsilon == 0.5


def test_a_vocabulary_too_large_is_refused(pretrainer, tmp_path):
    tokenizer = TTATokenizer([*VOCABULARY, "one", "more"])
    with pytest.raises(ValueError, match="13 tokens, the backbone an embedding for 11"):
        pretrainer.save_to_preset(tmp_path / "saved", tokenizer=tokenizer)
    assert not (tmp_path / "saved").exists()


def test_saving_again_replaces_the_preset_and_nothing_else(saved, tmp_path):
    folder = tmp_path / "run"
    first = LanguageAutoencoder.from_preset(saved)
    first.save_to_preset(folder)
    (folder / "loss.csv").write_text("step,loss\n")
    save_preset(folder, first.backbone)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "README.md",
        "config.json",
        "loss.csv",
        "metadata.json",
        "model.weights.h5",
    ]


@pytest.mark.parametrize("broken", ["writing", "syncing", "moving"])
def test_a_failure_leaves_what_was_saved_before(
    broken, pretrainer, tmp_path, monkeypatch
):
    folder = tmp_path / "saved"
    pretrainer.save_to_preset(folder)
    files = {path: path.read_bytes() for path in folder.iterdir()}
    other = make_pretrainer()
    other.head.bias.assign(np.ones(len(VOCABULARY)))

    def full(*_):
        raise OSError("No space left on device")

    def full_at_the_end(path, target):
        if path.name == "config.json" and path.parent.name.startswith(".new"):
            full()
        return rename(path, target)

    rename = Path.rename
    if broken == "writing":
        monkeypatch.setattr(saving_module, "save_safetensors", full)
    elif broken == "syncing":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "rename", full_at_the_end)
    with pytest.raises(OSError, match="No space left") as error:
        other.save_to_preset(folder)
    found = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert found == files
    if broken == "moving":
        (complete,) = folder.glob(".new-*")
        assert str(complete) in error.value.__notes__[0]
        monkeypatch.undo()
        loaded = LanguageAutoencoder.from_preset(complete)
        np.testing.assert_array_equal(logits_of(loaded), logits_of(other))


def test_the_model_card_says_how_to_load_and_its_code_runs(saved, monkeypatch):
    card = (saved / "README.md").read_text()
    assert "| nats per token | 2.5 |" in card and "| vocabulary_size | 11 |" in card
    (code,) = re.findall("```python\n(.*?)```", card, re.DOTALL)
    assert code.startswith("import keras_tta\n")
    monkeypatch.chdir(saved)
    names = {}
    exec(code, names)
    assert type(names["pretrainer"]) is LanguageAutoencoder


def test_kerashub_uploads_it_up_to_the_network(saved, monkeypatch):
    import huggingface_hub
    import kagglehub

    sent = []
    monkeypatch.setattr(kagglehub, "model_upload", lambda *args: sent.append(args))
    keras_hub.upload_preset("kaggle://someone/tta/keras/tiny", str(saved))
    assert sent == [("someone/tta/keras/tiny", str(saved))]

    repository = huggingface_hub.RepoUrl("https://huggingface.co/someone/tiny")
    monkeypatch.setattr(huggingface_hub, "create_repo", lambda **_: repository)
    monkeypatch.setattr(huggingface_hub, "file_exists", lambda **_: True)
    monkeypatch.setattr(huggingface_hub, "upload_folder", lambda **k: sent.append(k))
    keras_hub.upload_preset("hf://someone/tiny", str(saved))
    assert sent[1] == {"repo_id": "someone/tiny", "folder_path": str(saved)}


def test_another_backend_agrees_and_tensorflow_is_not_needed(pretrainer, saved):
    backends = {"tensorflow": "jax", "jax": "torch", "torch": "tensorflow"}
    backend = backends[keras.backend.backend()]
    if not find_spec(backend):
        pytest.skip(f"{backend} is not installed")
    np.savez(
        saved.parent / "arrays.npz",
        logits=logits_of(pretrainer),
        hidden=keras.ops.convert_to_numpy(pretrainer.backbone(INPUTS)),
        **INPUTS,
    )
    needed = backend == "tensorflow"
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            ELSEWHERE,
            str(saved.parent),
            "there" if needed else "hidden",
        ],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["backend"] == backend and report["tensorflow"] == needed
    assert report["logits"] < 1e-5 and report["hidden"] < 1e-5
    assert report["ids"] == [7, 8, 9, 10]
    assert report["same"] == 0.0 and report["moved"] > 0.0
