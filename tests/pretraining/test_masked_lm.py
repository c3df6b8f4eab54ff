"""The masked language model: what is predicted, from what, and what it costs."""

import json

import keras
import numpy as np
import pytest

from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.presets import PresetError
from keras_tta.pretraining import LanguageAutoencoder, MaskedLM

SIZES = {
    "vocabulary_size": 20,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 8,
}
# Full, short, one word, specials alone, padding alone.
LENGTHS = np.array([8, 5, 3, 2, 0])
BATCH = {
    "token_ids": np.random.default_rng(0).integers(7, 20, (5, 8)).astype("int32"),
    "padding_mask": np.arange(8) < LENGTHS[:, None],
}
BATCH["token_ids"][:, 0] = 3
BATCH["token_ids"][np.arange(4), LENGTHS[:4] - 1] = 1
BATCH["token_ids"][~BATCH["padding_mask"]] = 0


def make_masking(**options):
    return TokenMasking(20, 4, (0, 1, 3), **{"mask_rate": 0.4, **options})


def make_pretrainer(masking=None, dropout=0.0, **options):
    backbone = TransformerBackbone(**SIZES, dropout=dropout)
    draw = np.random.default_rng(0)
    for weight in backbone.weights:
        noise = 0.4 * draw.normal(size=weight.shape)
        weight.assign(noise + (weight.name == "gamma"))
    return MaskedLM(backbone, masking or make_masking(), **options)


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def evaluate(pretrainer, batch=BATCH):
    pretrainer.compile()
    return pretrainer.evaluate(batch, verbose=0, return_dict=True)


def test_only_masked_positions_reach_the_head():
    pretrainer = make_pretrainer()
    targets = pretrainer(BATCH)
    masked = pretrainer.masking.numpy(**BATCH)
    # round(0.4 * 8) slots; 6, 3 and 1 words.
    assert targets["hidden"].shape == (5, 3, 8)
    weights = numpy(targets["weights"])
    assert weights.sum(axis=1).tolist() == [2, 1, 1, 0, 0]
    assert np.array_equal(numpy(targets["labels"]), masked["labels"])
    rows = np.arange(5)[:, None]
    positions = masked["masked_positions"]
    used = weights == 1
    originals = BATCH["token_ids"][rows, positions]
    assert np.array_equal(numpy(targets["labels"])[used], originals[used])
    hidden = numpy(pretrainer.backbone({**BATCH, "token_ids": masked["token_ids"]}))
    expected = hidden[rows, positions]
    assert np.allclose(numpy(targets["hidden"]), expected, atol=1e-5)


def test_the_loss_is_the_mean_cross_entropy_of_masked_tokens():
    pretrainer = make_pretrainer()
    masked = pretrainer.masking.numpy(**BATCH)
    logits = numpy(
        pretrainer.language_model({**BATCH, "token_ids": masked["token_ids"]})
    ).astype("float64")
    nats = np.log(np.exp(logits).sum(-1))
    nats -= np.take_along_axis(logits, BATCH["token_ids"][..., None], -1)[..., 0]
    expected = nats[masked["dense_sample_weight"] == 1].mean()
    figures = evaluate(pretrainer)
    assert abs(figures["loss"] - expected) < 1e-4
    assert abs(figures["nats_per_token"] - expected) < 1e-4
    assert abs(figures["pseudo_perplexity"] / np.exp(expected) - 1) < 1e-4
    assert figures["tokens"] == 4


def test_sample_weights():
    pretrainer = make_pretrainer()
    pretrainer.compile()
    with pytest.raises(ValueError, match=r"shape \(B, 3\). Received: .* \(5, 6\)"):
        pretrainer.test_on_batch(BATCH, sample_weight=np.ones((5, 6), "float32"))
    weights = np.array([1.0, 0.5, 0.0, 1.0, 1.0], "float32")
    figures, whole = (
        pretrainer.test_on_batch(BATCH, sample_weight=x, return_dict=True)["loss"]
        for x in (weights, np.repeat(weights[:, None], 3, axis=1))
    )
    assert figures == whole != evaluate(pretrainer)["loss"]


def test_validation_masks_alike_and_training_afresh():
    pretrainer = make_pretrainer()
    first = evaluate(pretrainer)
    assert evaluate(pretrainer) == first
    drawn = [numpy(pretrainer(BATCH, training=True)["labels"]) for _ in range(4)]
    assert any(not np.array_equal(drawn[0], other) for other in drawn[1:])
    assert evaluate(pretrainer) == first


@pytest.mark.parametrize("row", [3, 4], ids=["specials", "padding"])
def test_nothing_to_predict_costs_nothing(row):
    batch = {name: ids[[row, row]] for name, ids in BATCH.items()}
    pretrainer = make_pretrainer()
    assert evaluate(pretrainer, batch)["loss"] == 0
    before = [numpy(w) for w in pretrainer.trainable_variables]
    pretrainer.compile("sgd")
    history = pretrainer.fit(batch, verbose=0).history
    assert history["loss"] == [0]
    pairs = zip(before, pretrainer.trainable_variables, strict=True)
    assert all(np.array_equal(a, numpy(b)) for a, b in pairs)


def test_a_step_of_training_moves_every_weight():
    pretrainer = make_pretrainer(dropout=0.1)
    before = [numpy(w) for w in pretrainer.trainable_variables]
    pretrainer.compile(keras.optimizers.SGD(1.0))
    pretrainer.fit(BATCH, verbose=0)
    unmoved = [
        w.path
        for a, w in zip(before, pretrainer.trainable_variables, strict=True)
        if np.array_equal(a, numpy(w))
    ]
    assert not unmoved


def test_it_learns_what_can_be_learnt():
    # Every token says what all the others are.
    ids = (7 + np.arange(16) % 4)[:, None] * np.ones((1, 8), int)
    batch = {"token_ids": ids, "padding_mask": np.ones((16, 8), bool)}
    wide = {**SIZES, "num_layers": 1, "num_heads": 4, "hidden_dim": 32}
    backbone = TransformerBackbone(**wide, dropout=0.0)
    pretrainer = MaskedLM(backbone, make_masking(mask_share=1.0, random_share=0.0))
    pretrainer.compile(keras.optimizers.Adam(2e-2))
    pretrainer.fit(batch, epochs=30, verbose=0)
    assert pretrainer.evaluate(batch, verbose=0, return_dict=True)["accuracy"] > 0.9


def test_packed_sequences_do_not_mix():
    pretrainer = make_pretrainer(
        make_masking(mask_rate=0.9, random_share=0.0), packed=True
    )
    row = {
        "token_ids": np.array([[3, 9, 8, 1, 3, 11, 15, 1]]),
        "padding_mask": np.ones((1, 8), bool),
        "segment_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2]]),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 3]]),
    }
    assert set(pretrainer.input) == set(row)
    assert set(pretrainer.backbone.input) == {"token_ids", "padding_mask"}
    hidden = numpy(pretrainer(row)["hidden"])
    # The first sequence is read the same with nothing beside it.
    masked = pretrainer.masking.numpy(row["token_ids"], row["padding_mask"])
    alone = {
        "token_ids": masked["token_ids"],
        "padding_mask": row["segment_ids"] == 1,
    }
    positions = masked["masked_positions"][0]
    inside = np.flatnonzero((positions < 4) & (masked["sample_weight"][0] == 1))
    assert len(inside)
    expected = numpy(pretrainer.backbone(alone))[0, positions[inside]]
    assert np.allclose(hidden[0, inside], expected, atol=1e-5)


def test_whole_words_ask_for_word_ids():
    pretrainer = make_pretrainer(make_masking(whole_word=True), sequence_length=6)
    assert pretrainer.input["word_ids"].shape == (None, 6)
    batch = {name: ids[:1, :6] for name, ids in BATCH.items()}
    batch["word_ids"] = np.array([[0, 1, 1, 2, 2, 2]])
    labels = numpy(pretrainer(batch)["labels"])
    assert np.count_nonzero(labels) == 2


def test_presets_keep_the_masking(tmp_path):
    masking = make_masking(
        mask_share=1.0, random_share=0.0, seed=7, static_copies=3, max_predictions=2
    )
    pretrainer = make_pretrainer(masking, sequence_length=7)
    pretrainer.save_to_preset(tmp_path)
    again = MaskedLM.from_preset(tmp_path)
    assert again.masking.get_config() == masking.get_config()
    batch = {name: ids[:, :7] for name, ids in BATCH.items()}
    assert evaluate(again, batch) == evaluate(pretrainer, batch)
    other = MaskedLM.from_preset(tmp_path, masking=make_masking())
    assert other.masking.static_copies is None
    with pytest.raises(PresetError, match="saved by keras_tta>MaskedLM, not"):
        LanguageAutoencoder.from_preset(tmp_path)


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "masking",
    [
        {"registered_name": "keras_tta>TransformerBackbone", "config": SIZES},
        {"class_name": "Lambda", "config": {}},
        {"registered_name": "keras_tta>TokenMasking", "config": {"seed": 1}},
    ],
)
def test_presets_build_no_strange_masking(tmp_path, masking):
    make_pretrainer().save_to_preset(tmp_path)
    path = tmp_path / "pretrainer.json"
    objective = json.loads(path.read_text())
    objective["config"]["masking"] = masking
    path.write_text(json.dumps(objective))
    with pytest.raises(PresetError, match=r"pretrainer\.json"):
        MaskedLM.from_preset(tmp_path)


def test_a_saved_model_goes_on_where_it_stopped(tmp_path):
    pretrainer = make_pretrainer()
    pretrainer.compile()
    pretrainer.fit(BATCH, verbose=0)
    pretrainer.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert numpy(again.masking.state).tolist() == [0, 1]
    labels = [numpy(m(BATCH, training=True)["labels"]) for m in (pretrainer, again)]
    assert np.array_equal(*labels)
    assert np.array_equal(labels[0], again.masking.numpy(**BATCH, key=(0, 2))["labels"])


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    pretrainer = make_pretrainer()
    pretrainer.compile()
    history = pretrainer.fit(BATCH, verbose=0).history
    assert np.isfinite(history["loss"][0])
    logits = pretrainer.language_model(BATCH)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


@pytest.mark.agnostic
@pytest.mark.parametrize(
    ("masking", "options", "message"),
    [
        (None, {}, "must be a `keras_tta.layers.corruption.TokenMasking`"),
        (make_masking(mask_rate=0.0), {}, "hides nothing"),
        (TokenMasking(21, 4), {}, "knows 21 tokens, the backbone 20"),
        (make_masking(), {"sequence_length": 9}, "max_sequence_length, 8"),
        (make_masking(), {"sequence_length": 0}, "positive integer"),
    ],
)
def test_what_does_not_fit_is_refused(masking, options, message):
    with pytest.raises(ValueError, match=message):
        MaskedLM(TransformerBackbone(**SIZES), masking, **options)


def test_the_recipe_is_berts():
    pretrainer = make_pretrainer()
    pretrainer.compile(total_steps=1_000_000)
    schedule = pretrainer.optimizer._learning_rate.get_config()
    assert schedule["peak_learning_rate"] == 1e-4
    assert schedule["warmup_steps"] == 10_000


def test_the_normalization_is_kept():
    pretrainer = make_pretrainer(normalization="positions")
    assert MaskedLM.from_config(pretrainer.get_config()).normalization == "positions"
    with pytest.raises(ValueError, match="normalization='sum'"):
        make_pretrainer(normalization="sum")
