"""Hugging Face's BERT, in and out: the same function, or an error that says why."""

import json

import keras
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.models.heads import token_prediction_head
from keras_tta.presets import (
    PresetError,
    load_bert_transformers,
    save_bert_transformers,
)
from keras_tta.visibility import Causal

SIZES = {
    "vocabulary_size": 40,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 16,
}
TABLE = "bert.embeddings.word_embeddings.weight"
INPUTS = {
    "token_ids": np.array([[2, 17, 9, 33, 21, 3], [2, 8, 11, 3, 0, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
}
PAIRS = {**INPUTS, "segment_ids": np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])}


def random_model(**options):
    backbone = TransformerBackbone(**{**SIZES, **options})
    head = token_prediction_head(backbone)
    draw = np.random.default_rng(0)
    for weight in [*backbone.weights, *head.weights]:
        noise = 0.3 * draw.normal(size=weight.shape)
        weight.assign(noise + (weight.name == "gamma"))
    return backbone, head


def logits(backbone, head, inputs):
    return keras.ops.convert_to_numpy(head(backbone(inputs)))


@pytest.fixture
def folder(tmp_path):
    save_bert_transformers(tmp_path, *random_model(num_segments=2))
    return tmp_path


def rewrite(folder, change):
    """Do `change` to the dict of tensors."""
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load(path.read_bytes())
    change(tensors)
    path.write_bytes(safetensors.numpy.save(tensors, metadata={"format": "pt"}))


def reconfigure(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_a_round_trip_keeps_every_weight(folder):
    backbone, head = random_model(num_segments=2)
    again, again_head = load_bert_transformers(folder, single_segment=False)
    assert again.get_config().items() >= {**SIZES, "num_segments": 2}.items()
    pairs = zip(
        [*backbone.weights, *head.weights],
        [*again.weights, *again_head.weights],
        strict=True,
    )
    assert all(np.array_equal(np.array(a), np.array(b)) for a, b in pairs)


def test_one_segment_is_the_first_of_two(folder):
    pairs = {**INPUTS, "segment_ids": np.zeros_like(INPUTS["token_ids"])}
    expected = logits(*load_bert_transformers(folder, single_segment=False), pairs)
    backbone, head = load_bert_transformers(folder)
    assert set(backbone.input) == {"token_ids", "padding_mask"}
    assert np.abs(logits(backbone, head, INPUTS) - expected).max() < 1e-5


def test_a_model_without_segments_goes_out_and_comes_back(tmp_path):
    model = random_model()
    save_bert_transformers(tmp_path, *model)
    again = load_bert_transformers(tmp_path)
    assert np.array_equal(logits(*again, INPUTS), logits(*model, INPUTS))


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_half_precision_is_read(folder, dtype):
    """As the same numbers in float32, bit for bit."""

    def round_off(tensors):
        for name, tensor in tensors.items():
            tensors[name] = tensor.astype(dtype).astype("float32")

    def halve(tensors):
        for name, tensor in tensors.items():
            tensors[name] = tensor.astype(dtype)

    rewrite(folder, round_off)
    expected = logits(*load_bert_transformers(folder), INPUTS)
    rewrite(folder, halve)
    assert np.array_equal(logits(*load_bert_transformers(folder), INPUTS), expected)


def test_old_names_and_what_predicts_no_tokens(folder, caplog):
    def age(tensors):
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            old = old.replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["bert.pooler.dense.weight"] = np.ones((8, 8), "float32")
        tensors["cls.seq_relationship.bias"] = np.ones(2, "float32")
        tensors["cls.predictions.decoder.weight"] = tensors[TABLE]

    expected = logits(*load_bert_transformers(folder), INPUTS)
    rewrite(folder, age)
    with caplog.at_level("WARNING"):
        assert np.array_equal(logits(*load_bert_transformers(folder), INPUTS), expected)
    assert "Skipped the pooler: bert.pooler.dense.weight" in caplog.text
    assert "next-sentence classifier: cls.seq_relationship.bias" in caplog.text


def remove(tensors):
    del tensors["bert.encoder.layer.1.attention.self.value.bias"]


def reshape(tensors):
    tensors[TABLE] = tensors[TABLE][:-1]


def add(tensors):
    tensors["bert.encoder.layer.2.output.dense.bias"] = np.ones(8, "float32")


def untie(tensors):
    tensors["cls.predictions.decoder.weight"] = tensors[TABLE] + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove, r"layer\.1\.attention\.self\.value\.bias is missing"),
        (
            reshape,
            r"word_embeddings\.weight has shape \(39, 8\), the model's is \(40, 8",
        ),
        (add, r"layer\.2\.output\.dense\.bias is unknown"),
        (untie, r"decoder\.weight differs from bert\.embeddings\.word_embeddings"),
    ],
)
@pytest.mark.agnostic
def test_a_tensor_that_does_not_fit_is_named(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(PresetError, match=message):
        load_bert_transformers(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "roberta"}, "`model_type` must be 'bert'"),
        ({"hidden_act": "gelu_new"}, "`hidden_act` must be 'gelu'"),
        ({"is_decoder": True}, "`is_decoder` must be False"),
        ({"vocab_size": None}, "no number under vocab_size"),
        ({"num_hidden_layers": 10**9}, "1000000000 layers"),
        ({"num_attention_heads": 3}, "multiple of `num_heads`"),
        ({"vocab_size": 10**12}, r"word_embeddings\.weight has shape \(40, 8\)"),
    ],
)
@pytest.mark.agnostic
def test_a_config_that_is_no_bert_is_refused(folder, settings, message):
    reconfigure(folder, **settings)
    with pytest.raises(PresetError, match=message):
        load_bert_transformers(folder)


@pytest.mark.agnostic
def test_what_is_missing_or_broken_is_named(folder):
    (folder / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(PresetError, match="not a safetensors file"):
        load_bert_transformers(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no file `model.safetensors`"):
        load_bert_transformers(folder)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (TTABackbone(**SIZES), "Received: a TTABackbone"),
        (TransformerBackbone(**SIZES, visibility=Causal()), "visibility must be All"),
        (TransformerBackbone(**SIZES, embedding_dim=4), "embedding_dim must be 8"),
    ],
    ids=["static", "causal", "factorised"],
)
@pytest.mark.agnostic
def test_what_bert_cannot_hold_is_not_written(tmp_path, backbone, message):
    with pytest.raises(ValueError, match=message):
        save_bert_transformers(tmp_path, backbone, token_prediction_head(backbone))
    assert not list(tmp_path.iterdir())


# === Against transformers ===


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch")
    return pytest.importorskip(
        "transformers", reason="transformers is not installed: nothing to compare with."
    )


def their_logits(model, inputs):
    import torch

    names = {
        "token_ids": "input_ids",
        "padding_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    with torch.no_grad():
        model.eval()
        inputs = {names[k]: torch.as_tensor(v) for k, v in inputs.items()}
        return model(**inputs).logits.numpy()


def worst(ours, theirs):
    return np.abs(ours - theirs)[INPUTS["padding_mask"] == 1].max()


def test_their_model_is_read(transformers, tmp_path):
    import torch

    torch.manual_seed(0)
    theirs = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=40,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=16,
        )
    )
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    theirs.save_pretrained(tmp_path)
    expected = their_logits(theirs, PAIRS)
    ours = load_bert_transformers(tmp_path, single_segment=False)
    assert worst(logits(*ours, PAIRS), expected) < 1e-4
    expected = their_logits(theirs, INPUTS)
    assert worst(logits(*load_bert_transformers(tmp_path), INPUTS), expected) < 1e-4


def test_our_model_is_read_by_them(transformers, folder):
    theirs, loading = transformers.BertForMaskedLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    expected = logits(*random_model(num_segments=2), PAIRS)
    assert worst(their_logits(theirs, PAIRS), expected) < 1e-4


def test_a_failure_leaves_what_was_exported_before(folder, monkeypatch):
    files = {path: path.read_bytes() for path in folder.iterdir()}

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_bert_transformers(folder, *random_model())
    assert {path: path.read_bytes() for path in folder.iterdir()} == files
