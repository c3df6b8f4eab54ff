"""Replace MLM and All-Tokens MLM: ELECTRA's inputs, the answers of a masked LM."""

import keras
import numpy as np
import pytest

from keras_tta.pretraining import CorrectiveLM
from tests.pretraining.electra import (
    BATCH,
    DISCRIMINATOR,
    SIZE,
    figures_of,
    make_masking,
    moved,
    nats,
    networks,
    numpy,
)

REPLACE_MLM = {"copy": False, "loss_positions": "masked"}
ALL_TOKENS_MLM = {"copy": False}
COPYING = {}
ABLATIONS = (REPLACE_MLM, ALL_TOKENS_MLM, COPYING)


def make(**options):
    pretrainer = CorrectiveLM(*networks(), make_masking(), **options)
    draw = np.random.default_rng(1)
    table = pretrainer.head.token_embedding.weights
    for weight in pretrainer.head.weights:
        if all(weight is not x for x in table):
            weight.assign(0.5 * draw.normal(size=weight.shape))
    return pretrainer


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_loss_and_figures_are_those_of_the_equations(ablation):
    pretrainer = make(discriminator_weight=3.0, **ablation)
    masked = pretrainer.masking.numpy(**BATCH)
    chosen = masked["dense_sample_weight"] == 1
    reading = {**BATCH, "token_ids": masked["token_ids"]}
    original = BATCH["token_ids"]
    generator = nats(pretrainer.generator_language_model(reading), original)
    read = numpy(pretrainer(BATCH)["corrupted_token_ids"])
    logits = numpy(pretrainer.language_model({**BATCH, "token_ids": read}))
    if ablation is COPYING:
        hidden = numpy(pretrainer.backbone({**BATCH, "token_ids": read}))
        dense = pretrainer.head.copy_dense
        gate = hidden @ numpy(dense.kernel)[:, 0] + numpy(dense.bias)
        copied = 1 / (1 + np.exp(-gate[..., None].astype("float64")))
        states = numpy(pretrainer.head.transform(hidden)).astype("float64")
        table = numpy(pretrainer.backbone.token_embedding.embeddings)
        weights = np.exp(states @ table.T + numpy(pretrainer.head.bias))
        softmax = weights / weights.sum(-1, keepdims=True)
        mixture = (1 - copied) * softmax + copied * np.eye(SIZE)[read]
        np.testing.assert_allclose(np.exp(logits), mixture, rtol=1e-3, atol=1e-5)
    corrected = nats(logits, original)
    right = logits.argmax(-1) == original
    counted = chosen if ablation is REPLACE_MLM else BATCH["padding_mask"]
    replaced = counted & (read != original)
    figures = figures_of(pretrainer)
    expected = {
        "loss": generator[chosen].mean() + 3 * corrected[counted].mean(),
        "nats_per_token": generator[chosen].mean(),
        "discriminator_loss": corrected[counted].mean(),
        "discriminator_accuracy": right[counted].mean(),
        "corrected_share": right[replaced].mean(),
        "replaced_share": replaced.sum() / counted.sum(),
    }
    for name, value in expected.items():
        assert abs(figures[name] - value) < 2e-4, name


@pytest.mark.parametrize("copy", [False, True])
def test_only_the_shared_embeddings_bring_its_gradient_to_the_generator(copy):
    pretrainer = make(copy=copy)
    pretrainer.generator_weight = 0.0
    assert moved(pretrainer) == DISCRIMINATOR | {
        "generator table",
        "generator positions",
    }


@pytest.mark.parametrize("copy", [False, True])
def test_it_is_saved_and_loaded(copy, tmp_path):
    pretrainer = make(copy=copy)
    pretrainer.save(tmp_path / "model.keras")
    pretrainer.save_to_preset(tmp_path / "preset")
    expected = numpy(pretrainer.language_model(BATCH))
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        CorrectiveLM.from_preset(tmp_path / "preset"),
    ):
        assert again.copy == copy
        assert np.allclose(numpy(again.language_model(BATCH)), expected, atol=1e-5)


def test_what_goes_out_to_transformers(tmp_path):
    make(copy=False).export_to_transformers(tmp_path / "plain")
    parts = sorted(path.name for path in (tmp_path / "plain").iterdir())
    assert parts == ["discriminator", "generator"]
    with pytest.raises(ValueError, match="its head must be 'TokenPredictionHead'"):
        make().export_to_transformers(tmp_path / "copying")
    assert not (tmp_path / "copying").exists()


def test_it_trains():
    pretrainer = make()
    pretrainer.compile(keras.optimizers.SGD(0.1))
    losses = pretrainer.fit(BATCH, epochs=5, verbose=0).history["discriminator_loss"]
    assert losses[-1] < losses[0]
