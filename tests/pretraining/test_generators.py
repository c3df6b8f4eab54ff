"""Two networks that differ, that were frozen, or that have learnt before."""

import keras
import numpy as np
import pytest

from keras_tta.models import TransformerBackbone
from keras_tta.presets import load_backbone
from keras_tta.pretraining import MaskedLM, ReplacedTokenDetection
from keras_tta.visibility import NotSelf
from tests.pretraining.electra import (
    BATCH,
    figures_of,
    loss_of,
    make_electra,
    make_masking,
    nats,
    networks,
    numpy,
)

SEGMENTS = np.repeat([[0, 0, 0, 1, 1, 1, 1, 1]], 5, axis=0)
INPUTS = {**BATCH, "segment_ids": SEGMENTS}


def with_settings(network, **settings):
    config = {**network.get_config(), "name": None, **settings}
    return TransformerBackbone(**config)


def with_segments(network):
    network = with_settings(network, num_segments=2)
    draw = np.random.default_rng(3)
    for weight in network.weights:
        noise = 0.3 * draw.normal(size=weight.shape)
        weight.assign(noise + (weight.name == "gamma"))
    return network


def test_a_generator_may_read_fewer_inputs():
    generator, discriminator = networks()
    electra = ReplacedTokenDetection(
        generator, with_segments(discriminator), make_masking(), tie="none"
    )
    targets = electra(INPUTS)
    masked = electra.masking.numpy(**BATCH)
    logits = electra.generator_language_model(
        {"token_ids": masked["token_ids"], "padding_mask": BATCH["padding_mask"]}
    )
    at = np.arange(5)[:, None], masked["masked_positions"]
    expected = nats(numpy(logits)[at], masked["labels"])
    found = nats(electra.generator_head(targets["hidden"]), masked["labels"])
    assert np.abs(found - expected).max() < 1e-5


def test_a_generator_reads_no_more_than_the_discriminator():
    generator, discriminator = networks()
    with pytest.raises(ValueError, match="The generator reads `segment_ids` and"):
        ReplacedTokenDetection(
            with_segments(generator), discriminator, make_masking(), tie="none"
        )


@pytest.mark.parametrize("tie", ["none", "embeddings", "disentangled"])
def test_segments_are_saved_and_loaded(tie, tmp_path):
    electra = ReplacedTokenDetection(
        *map(with_segments, networks()), make_masking(), tie=tie
    )
    if tie == "disentangled":
        # Begun alike, and trained apart.
        table = electra.generator.embeddings.segment_embedding.embeddings
        table.assign(numpy(table) + 1)
    electra.save_to_preset(tmp_path)
    again = ReplacedTokenDetection.from_preset(tmp_path)
    for name in ("generator_language_model", "detector"):
        outputs = [numpy(getattr(model, name)(INPUTS)) for model in (electra, again)]
        assert np.abs(outputs[0] - outputs[1]).max() < 1e-5


def test_what_was_frozen_learns_again(tmp_path):
    electra = make_electra(generator_weight=0.0)
    electra.save_to_preset(tmp_path)
    generator = load_backbone(tmp_path / "generator")
    wanted = len(networks()[0].trainable_weights)
    assert len(generator.trainable_weights) == wanted
    again = ReplacedTokenDetection.from_preset(
        tmp_path, generator_weight=1.0, tie="embeddings"
    )
    assert len(again.discriminator.trainable_weights) == len(
        networks()[1].trainable_weights
    )


def test_frozen_layers_stay_frozen_and_freeze_no_others():
    generator, discriminator = networks()
    generator.trainable = False
    sibling = generator.with_visibility(NotSelf())
    assert not sibling.trainable_weights
    shared = generator.with_embeddings(discriminator.embeddings)
    assert not shared.encoder.trainable_weights
    assert discriminator.embeddings.trainable_weights


def test_learnt_tables_are_not_thrown_away():
    first = MaskedLM(networks()[0], make_masking())
    discriminator = networks(noise=0.0)[1]
    for tie in (None, "tokens", "embeddings", "disentangled"):
        with pytest.raises(ValueError, match="a MaskedLM, has learnt"):
            ReplacedTokenDetection(first, discriminator, make_masking(), tie=tie)
    learnt = first.backbone.embeddings.get_weights()
    discriminator.embeddings.set_weights(learnt)
    electra = ReplacedTokenDetection(first, discriminator, make_masking())
    assert electra.tie == "embeddings"
    models = electra.generator_language_model, first.language_model
    assert np.abs(np.subtract(*(numpy(model(BATCH)) for model in models))).max() < 1e-5


def test_embeddings_of_another_epsilon_are_refused():
    generator, discriminator = networks()
    generator = with_settings(generator, layer_norm_epsilon=1e-5)
    with pytest.raises(ValueError, match="layer_norm_epsilon=1e-12, this model"):
        ReplacedTokenDetection(generator, discriminator, make_masking())


def test_samples_are_without_the_dropout_of_shared_embeddings():
    generator, discriminator = networks()
    discriminator = with_settings(discriminator, dropout=0.5)
    electra = ReplacedTokenDetection(
        generator, discriminator, make_masking(), sampling_dropout=False
    )
    batch = {name: np.repeat(x[:1], 5, 0) for name, x in BATCH.items()}
    rows = numpy(electra(batch, training=True)["corrupted_token_ids"])
    assert len(np.unique(rows, axis=0)) == 1


def test_rows_are_weighed_and_positions_are_not():
    for width in (make_electra().output["labels"].shape[1], 8):
        electra = make_electra()
        electra.compile()
        with pytest.raises(ValueError, match=r"one weight for each row, shape \(B,\)"):
            electra.test_on_batch(BATCH, sample_weight=np.ones((5, width), "float32"))
    weights = np.array([1.0, 0.0, 0.0, 0.0, 0.0], "float32")
    one = electra.test_on_batch(BATCH, sample_weight=weights, return_dict=True)
    row = {name: np.repeat(x[:1], 5, 0) for name, x in BATCH.items()}
    assert abs(one["loss"] - float(numpy(loss_of(electra, batch=row)))) < 1e-3


def test_every_weight_of_the_loss_counts():
    figures = figures_of(make_electra(generator_weight=2.0, discriminator_weight=3.0))
    expected = 2 * figures["nats_per_token"] + 3 * figures["discriminator_loss"]
    assert abs(figures["loss"] - expected) < 1e-4


def test_the_first_position_is_a_position():
    """Rows without [SOS]: samples are written at position 0 as at any other."""
    draw = np.random.default_rng(0)
    batch = {
        "token_ids": draw.integers(7, 20, (5, 8)).astype("int32"),
        "padding_mask": np.ones((5, 8), bool),
    }
    electra = make_electra(masking=make_masking(mask_rate=1.0), disallow_correct=True)
    assert (numpy(electra(batch)["corrupted_token_ids"]) != batch["token_ids"]).all()


@pytest.mark.agnostic
def test_positions_count_where_gradients_accumulate():
    electra = make_electra(normalization="positions", loss_positions="masked")
    counts = electra.loss_counts(BATCH)
    masked = electra.masking.numpy(**BATCH)["sample_weight"].sum(axis=1)
    assert counts["discriminator_tokens"].tolist() == masked.tolist()
    assert counts["tokens"].tolist() == [electra.output["labels"].shape[1]] * 5


def test_float16_of_the_model_alone_is_scaled():
    backbones = [with_settings(x, dtype="mixed_float16") for x in networks()]
    electra = ReplacedTokenDetection(*backbones, make_masking())
    electra.compile("sgd")
    assert isinstance(electra.optimizer, keras.optimizers.LossScaleOptimizer)
    electra.compile(total_steps=4)
    assert isinstance(electra.optimizer, keras.optimizers.LossScaleOptimizer)
    electra.fit(BATCH, epochs=2, verbose=0)
    electra.compile("sgd", auto_scale_loss=False)
    assert not isinstance(electra.optimizer, keras.optimizers.LossScaleOptimizer)
