"""Presets from strangers: nothing runs, nothing outside is read, no memory is taken."""

import json
import os
import pickle
import shutil
import sys

import h5py
import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
from keras_tta.models import TTABackbone
from keras_tta.presets import (
    PresetError,
    load_backbone,
    load_head,
    load_tokenizer,
)
from keras_tta.presets.loading import load_objective
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.visibility import NotSelf, Window

WEIGHTS = "model.weights.h5"
TABLE = "layers/tta_embedding/token_embedding/vars/0"
HEAD = "token_prediction_head"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "honest"
    backbone = TTABackbone(
        vocabulary_size=9,
        num_layers=1,
        num_heads=2,
        hidden_dim=4,
        intermediate_dim=8,
        max_sequence_length=6,
        visibility=NotSelf() & Window(2),
    )
    LanguageAutoencoder(backbone).save_to_preset(
        folder, tokenizer=TTATokenizer([*SPECIAL_TOKENS, "a", "##b"])
    )
    return folder


@pytest.fixture
def preset(honest, tmp_path):
    return shutil.copytree(honest, tmp_path / "preset")


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.txt"
    path.write_bytes(np.ones((9, 4), "float32").tobytes())
    return path


def edit(preset, name, change):
    """Rewrite a JSON file of a preset."""
    path = preset / name
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# === Configurations ===


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ('{"config": NaN}', "NaN is not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not valid JSON"),
        (" " * (1 << 20) + "{}", "such a file has at most 1,048,576"),
        ("\ud800", "not valid JSON"),
    ],
    ids=["cut", "nan", "list", "deep", "large", "bytes"],
)
@pytest.mark.agnostic
def test_only_small_json_is_read(preset, text, reason):
    (preset / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(PresetError, match=f"config.json: .*{reason}"):
        load_backbone(preset)


@pytest.mark.parametrize(
    "name",
    [
        "Lambda",
        "keras_tta>TTATokenizer",
        "keras_hub>BertBackbone",
        "keras_tta>LanguageAutoencoder",
        None,
        ["keras_tta>TTABackbone"],
    ],
)
@pytest.mark.agnostic
def test_only_our_backbones_are_built(preset, name):
    edit(preset, "config.json", lambda data: data.update(registered_name=name))
    with pytest.raises(PresetError, match="Accepted: .*keras_tta>TTABackbone"):
        load_backbone(preset)


def test_the_module_a_config_names_is_not_imported(preset, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)

    def lay_traps(data):
        data.update(module="trap", class_name="TTABackbone")
        rules = data["config"]["visibility"]["config"]["rules"]
        rules[0].update(module="trap", class_name="Trap")

    edit(preset, "config.json", lay_traps)
    assert load_backbone(preset).visibility == NotSelf() & Window(2)
    assert "trap" not in sys.modules


@pytest.mark.parametrize(
    "rule",
    [
        {
            "module": "keras.layers",
            "class_name": "TFSMLayer",
            "config": {"filepath": "/"},
            "registered_name": None,
        },
        {"class_name": "__lambda__", "config": {"value": "4wEAAAA="}},
        {"registered_name": "keras_tta>TTABackbone", "config": {}},
        {"registered_name": "keras_tta>Window", "config": [1]},
        {"registered_name": "keras_tta>Window", "config": {"size": {"a": 1}}},
        {"registered_name": "keras_tta>Window", "config": {"size": "x"}},
        {"registered_name": "keras_tta>Window", "config": {"colour": 1}},
    ],
)
def test_nothing_but_visibility_rules_stands_in_a_config(preset, rule):
    def plant(data):
        data["config"]["visibility"]["config"]["rules"][1] = rule

    edit(preset, "config.json", plant)
    with pytest.raises(PresetError, match="config.json: "):
        load_backbone(preset)


@pytest.mark.agnostic
def test_rules_nest_within_reason(preset):
    def nest(data):
        for _ in range(40):
            inner = data["config"]["visibility"]
            data["config"]["visibility"] = {
                "registered_name": "keras_tta>And",
                "config": {"rules": [inner]},
            }

    edit(preset, "config.json", nest)
    with pytest.raises(PresetError, match="nested more than"):
        load_backbone(preset)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"hidden_dim": 2**40}, "token_embedding/vars/0 has shape"),
        ({"vocabulary_size": 2**62}, "token_embedding/vars/0 has shape"),
        ({"num_layers": 2**40}, "layers, but the weights are"),
        ({"num_layers": 2}, "feed_forward_block_1/.* is missing"),
        ({"num_heads": 3}, "must be a multiple"),
        ({"hidden_dim": "4"}, "nothing can be built"),
        ({"sibling": "x"}, "nothing can be built"),
    ],
)
def test_sizes_that_the_weights_do_not_bear_out_take_no_memory(preset, sizes, reason):
    edit(preset, "config.json", lambda data: data["config"].update(sizes))
    with pytest.raises(PresetError, match=reason):
        load_backbone(preset)
    # Keras allocates what is left pending when it next leaves a stateless scope.
    with keras.StatelessScope():
        pass


@pytest.mark.parametrize(
    "objective",
    [
        {"registered_name": 1, "config": {}},
        {"registered_name": "keras_tta>LanguageAutoencoder"},
        {"registered_name": "x", "config": {"a": {"class_name": "__lambda__"}}},
        {"registered_name": "x", "config": {"a": [{"class_name": "__lambda__"}]}},
    ],
)
@pytest.mark.agnostic
def test_an_objective_is_a_name_and_plain_values(preset, objective):
    (preset / "pretrainer.json").write_text(json.dumps(objective))
    with pytest.raises(PresetError, match="pretrainer.json"):
        load_objective(preset)


# === Weights ===


def external_link(file, secret):
    file[TABLE] = h5py.ExternalLink(str(secret), "/x")


def soft_link(file, secret):
    file[TABLE] = h5py.SoftLink("/layers/tta_embedding/norm/vars/0")


def external_storage(file, secret):
    file.create_dataset(TABLE, (9, 4), "float32", external=[(str(secret), 0, 144)])


def virtual(file, secret):
    layout = h5py.VirtualLayout((9, 4), "float32")
    layout[:] = h5py.VirtualSource(str(secret), "x", (9, 4))
    file.create_virtual_dataset(TABLE, layout)


def compressed(file, secret):
    file.create_dataset(TABLE, (2**20, 2**20), "float32", chunks=(1, 4), fillvalue=1)


def unwritten(file, secret):
    file.create_dataset(TABLE, (9, 4), "float32")


def cycle(file, secret):
    file[TABLE] = file["layers"]


def integers(file, secret):
    file[TABLE] = np.zeros((9, 4), "int32")


def strings(file, secret):
    file[TABLE] = np.full((9, 4), b"x")


def datatype(file, secret):
    file[TABLE] = np.dtype("float32")


def null(file, secret):
    file[TABLE] = h5py.Empty("float32")


def misfit(file, secret):
    file[TABLE] = np.zeros((4, 9), "float32")


def missing(file, secret):
    pass


def unknown(file, secret):
    file[TABLE] = np.zeros((9, 4), "float32")
    file["layers/extra/vars/0"] = np.zeros(1, "float32")


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (external_link, f"{TABLE} is a link"),
        (soft_link, f"{TABLE} is a link"),
        (external_storage, f"{TABLE} is stored in another file"),
        (virtual, f"{TABLE} is stored in another file"),
        (compressed, f"{TABLE} is not stored plainly"),
        (unwritten, f"{TABLE} is not stored plainly"),
        (cycle, f"{TABLE} is also in another place"),
        (integers, f"{TABLE} has type int32"),
        (strings, f"{TABLE} has type"),
        (datatype, f"{TABLE} is not an array"),
        (null, f"{TABLE} is not an array"),
        (misfit, rf"{TABLE} has shape \(4, 9\), the model's is \(9, 4\)"),
        (missing, f"{TABLE} is missing"),
        (unknown, "layers/extra/vars/0 is unknown"),
    ],
)
def test_weights_are_plain_arrays_that_fit(preset, secret, plant, reason):
    with h5py.File(preset / WEIGHTS, "a") as file:
        del file[TABLE]
        plant(file, secret)
    with pytest.raises(PresetError, match=f"{WEIGHTS}: .*\n?.*{reason}"):
        load_backbone(preset)


class Trap:
    def __reduce__(self):
        return sys.exit, ("unpickled",)


@pytest.mark.agnostic
def test_pickles_are_not_weights(preset):
    (preset / WEIGHTS).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(PresetError, match=f"{WEIGHTS}: not a readable HDF5 file"):
        load_backbone(preset)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: tensors.pop("bias"), "bias is missing"),
        (lambda tensors: tensors.update(more=np.ones(1)), "more is unknown"),
        (
            lambda tensors: tensors.update(bias=np.ones(3, "float32")),
            r"bias has shape \(3,\), the model's is \(9,\)",
        ),
        (lambda tensors: tensors.update(bias=np.ones(9)), "bias is F64, not F32"),
    ],
    ids=["missing", "unknown", "misfit", "double"],
)
def test_a_heads_tensors_fit(preset, change, reason):
    path = preset / f"{HEAD}.safetensors"
    tensors = safetensors.numpy.load(path.read_bytes())
    change(tensors)
    path.write_bytes(safetensors.numpy.save(tensors))
    with pytest.raises(PresetError, match=f"{HEAD}.safetensors: .*\n?.*{reason}"):
        LanguageAutoencoder.from_preset(preset)


def test_pickles_are_not_heads(preset):
    (preset / f"{HEAD}.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(PresetError, match="not a safetensors file"):
        LanguageAutoencoder.from_preset(preset)


# === Files ===


@pytest.mark.parametrize(
    "name",
    ["config.json", WEIGHTS, f"{HEAD}.json", f"{HEAD}.safetensors", "pretrainer.json"],
)
def test_links_are_refused(preset, tmp_path, name):
    os.rename(preset / name, tmp_path / "elsewhere")
    (preset / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PresetError, match=f"{name}: links are refused"):
        LanguageAutoencoder.from_preset(preset)


@pytest.mark.agnostic
def test_a_folder_of_assets_that_is_a_link_is_refused(preset, tmp_path):
    os.rename(preset / "assets", tmp_path / "assets")
    (preset / "assets").symlink_to(tmp_path / "assets")
    with pytest.raises(PresetError, match="assets: links are refused"):
        load_tokenizer(preset)


@pytest.mark.parametrize("name", ["../secret", "/etc/hosts", "a/../../secret", ""])
@pytest.mark.agnostic
def test_names_lead_nowhere_else(preset, name):
    with pytest.raises(PresetError, match="plain names"):
        load_head(preset, None, name)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocabulary", "/etc/passwd"),
        ("vocabulary", ["[PAD]"]),
        ("config_file", "../tokenizer.json"),
        ("config_file", "/etc/tokenizer.json"),
    ],
)
@pytest.mark.agnostic
def test_a_vocabulary_comes_from_inside_the_preset(preset, key, value):
    edit(preset, "tokenizer.json", lambda data: data["config"].update({key: value}))
    with pytest.raises(PresetError, match=f"tokenizer.json: `{key}` must be"):
        load_tokenizer(preset)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"a\nb\n", "oov_token"), (b"\xff\xfe\x00", "nothing can be built")],
)
@pytest.mark.agnostic
def test_a_vocabulary_that_makes_no_tokenizer_is_named(preset, content, reason):
    (preset / "assets/tokenizer/vocabulary.txt").write_bytes(content)
    with pytest.raises(PresetError, match=f"vocabulary.txt: .*{reason}"):
        load_tokenizer(preset)


@pytest.mark.parametrize(
    "name", ["config.json", WEIGHTS, f"{HEAD}.json", f"{HEAD}.safetensors"]
)
def test_a_missing_file_is_named(preset, name):
    (preset / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no file `{name}`"):
        LanguageAutoencoder.from_preset(preset)


@pytest.mark.agnostic
def test_hubs_and_absent_folders_are_told_apart(tmp_path):
    with pytest.raises(PresetError, match="local_dir"):
        load_backbone("hf://someone/something")
    with pytest.raises(FileNotFoundError, match="no preset folder"):
        load_backbone(tmp_path / "absent")
    (tmp_path / "config.json").mkdir()
    with pytest.raises(PresetError, match="not a regular file"):
        load_backbone(tmp_path)


def test_the_honest_preset_loads(honest):
    assert LanguageAutoencoder.from_preset(honest).tokenizer.encode("ab") == [7, 8]
