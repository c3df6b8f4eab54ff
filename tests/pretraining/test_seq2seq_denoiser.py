"""Denoising with KerasHub's encoder-decoders: their logits, our corruption and loss."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_tta.layers.corruption import (
    BARTDenoising,
    MASSDenoising,
    SpanCorruption,
    TokenMasking,
)
from keras_tta.pretraining import Seq2SeqDenoiser
from keras_tta.training import AdamWeightDecay
from tests.leakage.gradients import weight_gradients

SIZES = {
    "vocabulary_size": 40,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "dropout": 0.0,
}
T = 12
# Full, short, one token, padding alone.
LENGTHS = np.array([12, 7, 1, 0])
BATCH = {
    "token_ids": np.random.default_rng(0).integers(5, 30, (4, T)).astype("int32"),
    "padding_mask": np.arange(T) < LENGTHS[:, None],
}
SPANS = SpanCorruption(40, num_sentinels=8, noise_density=0.4)
INFILLING = BARTDenoising(40, mask_token_id=4)
MASS = MASSDenoising(40, mask_token_id=4)


def numpy(x):
    return ops.convert_to_numpy(x)


def t5(**options):
    return keras_hub.models.T5Backbone(**{**SIZES, **options})


def bart(**options):
    sizes = {**SIZES, "max_sequence_length": 13, **options}
    return keras_hub.models.BartBackbone(**sizes)


def make(backbone=None, corruption=SPANS):
    backbone = backbone or t5()
    draw = np.random.default_rng(0)
    for weight in backbone.weights:
        noise = 0.5 * draw.normal(size=weight.shape)
        weight.assign(noise + (weight.name in ("gamma", "weight")))
    corruption = type(corruption).from_config(corruption.get_config())
    return Seq2SeqDenoiser(backbone, corruption, T)


def read_by(denoiser, batch=BATCH):
    """What the backbone reads where training is False, and the labels."""
    corrupted = denoiser.corruption.numpy(**batch)
    return {
        name: corrupted[name].astype("int32") for name in denoiser.backbone.input
    }, corrupted


def mean_cross_entropy(logits, corrupted):
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    labels = ops.convert_to_tensor(corrupted["labels"])[..., None]
    nats = -ops.take_along_axis(log_probs, labels, axis=-1)[..., 0]
    weights = ops.cast(corrupted["sample_weight"], "float32")
    return ops.sum(nats * weights) / ops.sum(weights), nats


BACKBONES = [
    (t5, {}, SPANS),
    (t5, {"tie_embedding_weights": False}, SPANS),
    (bart, {}, INFILLING),
]


@pytest.mark.parametrize(("backbone", "options", "corruption"), BACKBONES)
def test_the_loss_is_the_cross_entropy_of_kerashubs_logits(
    backbone, options, corruption
):
    denoiser = make(backbone(**options), corruption)
    denoiser.compile()
    logs = denoiser.evaluate(BATCH, verbose=0, return_dict=True)
    inputs, corrupted = read_by(denoiser)
    theirs = denoiser.seq2seq_lm(inputs)
    logits = numpy(denoiser.language_model(inputs))
    assert np.allclose(logits, numpy(theirs), atol=1e-4)

    expected, nats = mean_cross_entropy(theirs, corrupted)
    assert logs["loss"] == pytest.approx(float(expected), abs=1e-4)
    text = (corrupted["sample_weight"] == 1) & (corrupted["labels"] > 1)
    text &= corrupted["labels"] < (32 if corruption is SPANS else 40)
    assert 0 < text.sum() < corrupted["sample_weight"].sum()
    assert logs["tokens"] == text.sum()
    assert logs["nats_per_token"] == pytest.approx(numpy(nats)[text].mean(), abs=1e-4)
    assert logs["perplexity"] == pytest.approx(np.exp(logs["nats_per_token"]), 1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_the_gradients_are_those_of_kerashubs_logits(tied):
    denoiser = make(t5(tie_embedding_weights=tied))
    inputs, corrupted = read_by(denoiser)
    seq2seq_lm, variables = denoiser.seq2seq_lm, denoiser.backbone.trainable_variables

    def ours():
        targets = denoiser(BATCH, training=False)
        total, _, _ = denoiser.head.loss(
            targets["hidden"], targets["labels"], targets["weights"], training=True
        )
        return total / ops.sum(targets["weights"])

    def theirs():
        return mean_cross_entropy(seq2seq_lm(inputs), corrupted)[0]

    pairs = zip(
        weight_gradients(ours, variables),
        weight_gradients(theirs, variables),
        strict=True,
    )
    for our, their in pairs:
        assert np.allclose(our, their, atol=1e-5)


def test_mass_hides_slots_from_the_decoder_and_keeps_positions(tmp_path):
    denoiser = make(bart(), MASS)
    inputs, corrupted = read_by(denoiser)
    backbone = denoiser.backbone
    # The decoder's layers, one by one.
    embedded = numpy(backbone.token_embedding(inputs["decoder_token_ids"]))
    places = numpy(backbone.decoder_position_embedding.position_embeddings)
    x = embedded + places[corrupted["decoder_position_ids"]]
    x = backbone.decoder_transformer_layers[0](
        decoder_sequence=backbone.decoder_embeddings_layer_norm(x),
        encoder_sequence=backbone(inputs)["encoder_sequence_output"],
        decoder_padding_mask=inputs["decoder_padding_mask"],
        encoder_padding_mask=corrupted["cross_attention_mask"].astype("int32"),
    )
    used = corrupted["sample_weight"] == 1
    hidden = numpy(denoiser(BATCH)["hidden"])
    assert np.allclose(hidden[used], numpy(x)[used], atol=1e-5)
    plain = numpy(backbone(inputs)["decoder_sequence_output"])
    assert not np.allclose(hidden[used], plain[used], atol=1e-2)

    denoiser.save(tmp_path / "mass.keras")
    again = keras.saving.load_model(tmp_path / "mass.keras")
    assert np.allclose(numpy(again(BATCH)["hidden"]), hidden, atol=1e-6)


def test_training_learns_saves_and_loads(tmp_path):
    denoiser = make()
    denoiser.compile(keras.optimizers.Adam(3e-2))
    batch = {name: np.repeat(x[:2], 4, axis=0) for name, x in BATCH.items()}
    history = denoiser.fit(batch, batch_size=8, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0]
    assert history["num_clamped"] == [0.0] * 12

    expected = numpy(denoiser(BATCH)["hidden"])
    denoiser.save(tmp_path / "denoiser.keras")
    denoiser.save_to_preset(tmp_path / "preset")
    for again in (
        keras.saving.load_model(tmp_path / "denoiser.keras"),
        Seq2SeqDenoiser.from_preset(tmp_path / "preset"),
    ):
        assert again.corruption.get_config() == denoiser.corruption.get_config()
        assert np.allclose(numpy(again(BATCH)["hidden"]), expected, atol=1e-6)


@pytest.mark.parametrize(("backbone", "corruption"), [(t5, SPANS), (bart, INFILLING)])
def test_completions_are_greedy_choices_of_the_model_as_it_is_now(backbone, corruption):
    denoiser = make(backbone(), corruption)
    inputs, _ = read_by(denoiser)
    encoder = {name: inputs[name][:2] for name in inputs if "encoder" in name}

    def complete_as_predicted():
        completions = denoiser.complete(*encoder.values(), max_length=6)
        starts = np.zeros((2, 1), "int32")
        logits = denoiser.language_model(
            {
                **encoder,
                "decoder_token_ids": np.hstack([starts, completions[:, :-1]]),
                "decoder_padding_mask": np.ones((2, 6), "int32"),
            }
        )
        greedy = numpy(ops.argmax(logits, axis=-1))
        ended = np.cumsum(completions == 1, axis=1) - (completions == 1) > 0
        assert np.array_equal(completions, np.where(ended, 0, greedy))
        return completions

    before = complete_as_predicted()
    table = denoiser.backbone.token_embedding.embeddings
    table.assign(np.roll(numpy(table), 1, axis=0))
    assert not np.array_equal(complete_as_predicted(), before)


def test_mixed_precision_keeps_the_loss_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    denoiser = make()
    targets = denoiser(BATCH)
    assert keras.backend.standardize_dtype(targets["hidden"].dtype) == "bfloat16"
    inputs, corrupted = read_by(denoiser)
    expected, _ = mean_cross_entropy(denoiser.language_model(inputs), corrupted)
    del targets["num_clamped"]
    total, nats, _ = denoiser.head.loss(**targets)
    assert keras.backend.standardize_dtype(nats.dtype) == "float32"
    mean = float(total) / corrupted["sample_weight"].sum()
    assert mean == pytest.approx(float(expected), rel=1e-2)

    denoiser.compile(keras.optimizers.Adam(1e-3))
    table = denoiser.backbone.token_embedding.embeddings
    before = numpy(table).copy()
    denoiser.train_on_batch(BATCH)
    assert np.isfinite(numpy(table)).all() and not np.array_equal(before, numpy(table))


def test_what_is_clamped_is_reported():
    denoiser = make()
    denoiser.compile()
    batch = {**BATCH, "token_ids": BATCH["token_ids"].copy()}
    batch["token_ids"][0, :2] = (39, 38)  # Sentinels, which text does not hold.
    if keras.backend.backend() == "torch":
        with pytest.raises(ValueError, match="holds 39 in row 0 at position 0"):
            denoiser.evaluate(batch, verbose=0)
        return
    logs = denoiser.evaluate(batch, verbose=0, return_dict=True)
    assert logs["num_clamped"] == 2


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Seq2SeqDenoiser(keras.Sequential(), SPANS, T), "T5Backbone"),
        (lambda: Seq2SeqDenoiser(t5(), TokenMasking(40, 4), T), "encoder-decoder"),
        (lambda: Seq2SeqDenoiser(t5(), SpanCorruption(41, 8), T), "41 tokens"),
        (lambda: Seq2SeqDenoiser(bart(), INFILLING, 13), "reads 14 tokens"),
        (lambda: Seq2SeqDenoiser(t5(), SPANS, 0), "positive integer"),
        (lambda: make(t5(), MASS).complete([[4]], [[1]], max_length=2), "no start"),
    ],
)
def test_errors_say_what_to_mend(make_it, message):
    with pytest.raises(ValueError, match=message):
        make_it()


def test_each_backbone_has_the_optimizer_of_its_authors():
    denoiser = make()
    denoiser.compile()
    adafactor = denoiser.optimizer
    assert isinstance(adafactor, keras.optimizers.Adafactor)
    assert adafactor.relative_step and float(adafactor.learning_rate) == np.float32(
        0.01
    )
    denoiser.compile(learning_rate=0.5)
    assert float(denoiser.optimizer.learning_rate) == 0.5
    with pytest.raises(ValueError, match="brings its own settings.*total_steps"):
        denoiser.compile(total_steps=9)

    denoiser = make(bart())
    denoiser.compile(total_steps=100)
    assert isinstance(denoiser.optimizer, AdamWeightDecay)
    rates = [float(denoiser.optimizer._learning_rate(step)) for step in (0, 5, 100)]
    np.testing.assert_allclose(rates, [0, 4.75e-4, 0], atol=1e-8)
