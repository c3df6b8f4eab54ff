"""The authors' variables, by name, into our weights."""

import sys

import keras
import numpy as np
import pytest

from keras_tta.models import TTABackbone
from keras_tta.presets import assign_tta_variables, read_tta_checkpoint, tta_sizes
from keras_tta.pretraining import LanguageAutoencoder

WIDTH, HIDDEN, VOCABULARY, LENGTH, LAYERS = 4, 6, 9, 5, 2


def official_variables():
    """Every variable of a small official model, each filled with its own number."""
    shapes = {
        "bert/embeddings/word_embeddings": (VOCABULARY, WIDTH),
        "bert/embeddings/position_embeddings": (LENGTH, WIDTH),
        "cls/predictions/output_bias": (VOCABULARY,),
    }

    def dense(scope, width, units):
        shapes[f"{scope}/kernel"], shapes[f"{scope}/bias"] = (width, units), (units,)

    def norm(scope):
        shapes[f"{scope}/gamma"] = shapes[f"{scope}/beta"] = (WIDTH,)

    norm("bert/embeddings/LayerNorm")
    for layer in (f"bert/encoder/layer_{index}" for index in range(LAYERS)):
        for part in ("query", "key", "value"):
            dense(f"{layer}/attention/self/{part}", WIDTH, WIDTH)
        dense(f"{layer}/attention/output/dense", WIDTH, WIDTH)
        norm(f"{layer}/attention/output/LayerNorm")
        dense(f"{layer}/intermediate/dense", WIDTH, HIDDEN)
        dense(f"{layer}/output/dense", HIDDEN, WIDTH)
        norm(f"{layer}/output/LayerNorm")
    dense("bert/pooler/dense", WIDTH, WIDTH)
    dense("cls/predictions/transform/dense", WIDTH, WIDTH)
    norm("cls/predictions/transform/LayerNorm")
    return {
        name: np.full(shape, number, "float32")
        for number, (name, shape) in enumerate(shapes.items())
    }


@pytest.fixture
def variables():
    return official_variables()


@pytest.fixture
def model(variables):
    return LanguageAutoencoder(TTABackbone(**tta_sizes(variables), num_heads=2))


@pytest.mark.agnostic
def test_sizes_are_read_from_the_shapes(variables):
    assert tta_sizes(variables) == {
        "vocabulary_size": VOCABULARY,
        "num_layers": LAYERS,
        "hidden_dim": WIDTH,
        "intermediate_dim": HIDDEN,
        "max_sequence_length": LENGTH,
    }
    with pytest.raises(ValueError, match="word_embeddings`, and has none"):
        tta_sizes({})


def test_every_variable_arrives_once(variables, model):
    skipped = assign_tta_variables(variables, model.backbone, model.head)
    assert [len(names) for names in skipped.values()] == [2]
    numbers = np.concatenate(
        [np.unique(keras.ops.convert_to_numpy(w)) for w in model.trainable_weights]
    )
    expected = [
        array.flat[0] for name, array in variables.items() if "pooler" not in name
    ]
    assert sorted(numbers) == sorted(expected)


def test_keys_and_values_lie_side_by_side(variables, model):
    assign_tta_variables(variables, model.backbone, model.head)
    kernel = keras.ops.convert_to_numpy(model.backbone.encoder.key_value_dense.kernel)
    expected = [
        variables[f"bert/encoder/layer_{layer}/attention/self/{part}/kernel"]
        for layer in range(LAYERS)
        for part in ("key", "value")
    ]
    np.testing.assert_array_equal(kernel, np.concatenate(expected, axis=1))


def test_optimizer_state_is_counted_and_skipped(variables, model):
    variables["global_step"] = np.array(7)
    for name in list(variables):
        if "pooler" not in name and name != "global_step":
            variables[f"{name}/adam_m"] = variables[f"{name}/adam_v"] = np.zeros(1)
    skipped = assign_tta_variables(variables, model.backbone, model.head)
    weights = len(official_variables()) - 2
    assert len(skipped["the optimizer's state"]) == 2 * weights + 1


def test_all_that_does_not_fit_is_named_and_nothing_changes(variables, model):
    before = [keras.ops.convert_to_numpy(w).copy() for w in model.weights]
    del variables["bert/encoder/layer_1/attention/self/key/bias"]
    variables["bert/embeddings/token_type_embeddings"] = np.ones((2, WIDTH))
    variables["cls/predictions/output_bias"] = np.ones(VOCABULARY + 1)
    with pytest.raises(ValueError) as error:
        assign_tta_variables(variables, model.backbone, model.head)
    for complaint in (
        "layer_1/attention/self/key/bias is missing",
        "bert/embeddings/token_type_embeddings is unknown",
        "cls/predictions/output_bias has shape (10,), not (9,)",
    ):
        assert complaint in str(error.value)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(weight), value)


@pytest.mark.agnostic
def test_reading_without_tensorflow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="needs the package tensorflow"):
        read_tta_checkpoint("model.ckpt")


@pytest.mark.agnostic
def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    pytest.importorskip("tensorflow")
    with pytest.raises(FileNotFoundError, match="absent.ckpt"):
        read_tta_checkpoint(tmp_path / "absent.ckpt")
