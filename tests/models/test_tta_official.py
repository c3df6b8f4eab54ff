"""With the authors' weights, the authors' numbers after every layer."""

import json

import numpy as np
import pytest
from keras import ops

from keras_tta.models import TTABackbone
from keras_tta.presets import assign_tta_variables
from keras_tta.pretraining import LanguageAutoencoder


@pytest.fixture(scope="module")
def golden(reference_data):
    return np.load(reference_data / "golden" / "tta_official" / "reference.npz")


@pytest.fixture(scope="module")
def pretrainer(golden):
    pretrainer = LanguageAutoencoder(TTABackbone(**json.loads(str(golden["config"]))))
    variables = {
        name.removeprefix("var/"): golden[name]
        for name in golden
        if name.startswith("var/")
    }
    assign_tta_variables(variables, pretrainer.backbone, pretrainer.head)
    return pretrainer


def assert_near(result, expected, golden, tolerance=1e-4):
    real = golden["padding_mask"] == 1
    difference = ops.convert_to_numpy(ops.cast(result, "float32")) - expected
    assert np.abs(difference)[real].max() < tolerance


def test_every_layer(golden, pretrainer):
    backbone = pretrainer.backbone
    visible = backbone.get_layer("visibility")(golden["padding_mask"])
    query, key_value = backbone.embeddings(golden["token_ids"])
    layers = backbone.encoder.layer_outputs(query, key_value, visible)
    assert f"layer_{len(layers)}" not in golden
    for index, result in enumerate(layers):
        assert_near(result, golden[f"layer_{index}"], golden)
    inputs = {name: golden[name] for name in ("token_ids", "padding_mask")}
    assert_near(backbone(inputs), golden[f"layer_{index}"], golden)


def test_log_probabilities(golden, pretrainer):
    inputs = {name: golden[name] for name in ("token_ids", "padding_mask")}
    logits = pretrainer.language_model(inputs)
    assert_near(ops.log_softmax(logits), golden["log_probs"], golden)
    logits = pretrainer.language_model.predict_on_batch(inputs)
    assert_near(ops.log_softmax(logits), golden["log_probs"], golden)


def test_the_loss_with_the_official_normalization(golden, pretrainer):
    """Specials count, and so, in the denominator, does padding."""
    inputs = {name: golden[name] for name in ("token_ids", "padding_mask")}
    nats = -np.take_along_axis(
        golden["log_probs"], golden["token_ids"][..., None], axis=-1
    )[..., 0]
    expected = np.sum(nats * golden["padding_mask"]) / nats.size
    official = LanguageAutoencoder(pretrainer.backbone, normalization="positions")
    official.head.set_weights(pretrainer.head.get_weights())
    official.compile("sgd")
    loss = official.test_on_batch(inputs, return_dict=True)["loss"]
    assert abs(loss - expected) < 1e-4


def test_the_test_can_fail(golden, pretrainer):
    """Another number of heads is another model, with the same weights."""
    config = {**json.loads(str(golden["config"])), "num_heads": 2}
    other = TTABackbone(**config)
    other.set_weights(pretrainer.backbone.get_weights())
    inputs = {name: golden[name] for name in ("token_ids", "padding_mask")}
    with pytest.raises(AssertionError):
        assert_near(other(inputs), golden["layer_2"], golden, tolerance=1e-2)
