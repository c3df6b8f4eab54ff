"""Language autoencoding: its loss, its figures and its siblings."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import heads
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.visibility import All, Causal, HideWord, NotSelf
from tests.layers.tensor_sizes import largest_tensor

SIZES = {
    "vocabulary_size": 12,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 6,
    "dropout": 0.0,
}
SPECIAL_TOKEN_IDS = (0, 1, 3, 4)
# Rows of 4, 3, 2 and 0 tokens; ordinary ones are 2, 1, 0 and 0.
TOKEN_IDS = np.array(
    [[3, 7, 9, 1, 0], [3, 2, 1, 0, 0], [3, 1, 0, 0, 0], [0, 0, 0, 0, 0]], "int32"
)
BATCH = {"token_ids": TOKEN_IDS, "padding_mask": TOKEN_IDS != 0}


def make(rule=None, dtype=None, **options):
    pretrainer = LanguageAutoencoder(
        TTABackbone(**SIZES, visibility=rule, dtype=dtype), **options
    )
    draw = np.random.default_rng(0)
    for weight in pretrainer.trainable_weights:
        weight.assign(weight + 0.3 * draw.normal(size=weight.shape))
    pretrainer.compile("sgd")
    return pretrainer


@pytest.fixture(scope="module")
def pretrainer():
    return make()


def by_hand(pretrainer, batch=BATCH):
    """Nats of every token, and whether it was the most probable, in NumPy."""
    logits = ops.convert_to_numpy(pretrainer.language_model(batch)).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    nats = -np.take_along_axis(log_probs, batch["token_ids"][..., None], axis=-1)
    return nats[..., 0], logits.argmax(axis=-1) == batch["token_ids"]


def test_figures_by_hand(pretrainer):
    """The loss counts [SOS] and [EOS], as the authors do; no other figure does."""
    figures = pretrainer.evaluate(BATCH, batch_size=4, verbose=0, return_dict=True)
    nats, correct = by_hand(pretrainer)
    real = BATCH["padding_mask"]
    ordinary = ~np.isin(TOKEN_IDS, SPECIAL_TOKEN_IDS)
    assert ordinary.sum() == 3
    expected = {
        "loss": nats[real].mean(),
        "nats_per_token": nats[ordinary].mean(),
        "accuracy": correct[ordinary].mean(),
        "pseudo_perplexity": np.exp(nats[ordinary].mean()),
        "tokens": 3,
    }
    assert figures.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(figures[name], value, rtol=1e-5, err_msg=name)


def test_figures_weigh_tokens_not_batches(pretrainer):
    """Batches of 2 and 1 ordinary tokens, and of none."""
    figures = pretrainer.evaluate(BATCH, batch_size=1, verbose=0, return_dict=True)
    whole = pretrainer.evaluate(BATCH, batch_size=4, verbose=0, return_dict=True)
    for name in ("nats_per_token", "accuracy", "pseudo_perplexity", "tokens"):
        np.testing.assert_allclose(figures[name], whole[name], rtol=1e-5)


def test_figures_of_nothing_are_finite(pretrainer):
    nothing = {name: np.zeros_like(x) for name, x in BATCH.items()}
    figures = pretrainer.evaluate(nothing, verbose=0, return_dict=True)
    assert figures["tokens"] == 0 and figures["loss"] == 0
    assert all(np.isfinite(value) for value in figures.values())


def test_official_normalization(pretrainer):
    """Padding counts in the denominator."""
    official = make(normalization="positions")
    official.set_weights(pretrainer.get_weights())
    loss = official.test_on_batch(BATCH, return_dict=True)["loss"]
    nats, _ = by_hand(pretrainer)
    expected = nats[BATCH["padding_mask"]].sum() / TOKEN_IDS.size
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_sample_weights(pretrainer):
    weights = np.array([1.0, 0.5, 0.0, 1.0], "float32")
    figures = pretrainer.test_on_batch(BATCH, sample_weight=weights, return_dict=True)
    nats, _ = by_hand(pretrainer)
    weights = weights[:, None] * BATCH["padding_mask"]
    expected = (nats * weights).sum() / weights.sum()
    np.testing.assert_allclose(figures["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("way", ["fit", "evaluate"])
def test_sample_weights_that_keras_would_drop_are_refused(pretrainer, way):
    with pytest.raises(ValueError, match="sample_weight.*without `y`"):
        getattr(pretrainer, way)(BATCH, sample_weight=np.ones(4), verbose=0)


def test_specials_are_told():
    pretrainer = make(special_token_ids=(0, 7))
    figures = pretrainer.test_on_batch(BATCH, return_dict=True)
    assert figures["tokens"] == 8


def test_a_word_that_is_its_own_answer_is_not_seen(pretrainer):
    """Its nats do not fall when it stands for itself: the model cannot copy."""
    nats, _ = by_hand(pretrainer)
    masked = {**BATCH, "token_ids": TOKEN_IDS.copy()}
    masked["token_ids"][0, 1] = 4
    logits = ops.convert_to_numpy(pretrainer.language_model(masked))[0, 1]
    expected = np.log(np.exp(logits).sum()) - logits[7]
    np.testing.assert_allclose(nats[0, 1], expected, rtol=1e-5)


def test_siblings_share_the_weights(pretrainer):
    graph = {id(w) for w in pretrainer.trainable_weights}
    assert {id(w) for w in pretrainer.language_model.trainable_weights} == graph
    assert {id(w) for w in pretrainer.backbone.trainable_weights} < graph
    assert pretrainer.language_model is pretrainer.language_model
    assert len(graph) == len(pretrainer.trainable_weights)


def test_the_training_graph_ends_before_the_logits(pretrainer):
    outputs = pretrainer(BATCH)
    assert set(outputs) == {"hidden", "labels", "weights"}
    np.testing.assert_array_equal(ops.convert_to_numpy(outputs["labels"]), TOKEN_IDS)
    hidden = pretrainer.backbone(BATCH)
    np.testing.assert_array_equal(
        *map(ops.convert_to_numpy, (outputs["hidden"], hidden))
    )
    logits = pretrainer.language_model(BATCH)
    assert tuple(logits.shape) == (4, 5, 12)


def test_no_tensor_of_all_logits_in_training(pretrainer, monkeypatch):
    batch, length = 16, 6
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", 2 * batch)
    pretrainer = LanguageAutoencoder(TTABackbone(**{**SIZES, "vocabulary_size": 99}))
    inputs = {
        "token_ids": np.full((batch, length), 7, "int32"),
        "padding_mask": np.ones((batch, length), bool),
    }

    def loss():
        targets = pretrainer(inputs, training=True)
        weights = targets["weights"]
        return pretrainer.head.loss(
            targets["hidden"], targets["labels"], weights, True
        )[0]

    largest = largest_tensor(loss, pretrainer.trainable_weights, pretrainer.head)
    assert largest == 2 * batch * 99 < batch * length * 99


def test_packed_rows_teach_what_rows_apart_do(pretrainer):
    packed = make(packed=True)
    packed.set_weights(pretrainer.get_weights())
    row = {
        "token_ids": np.array([[3, 7, 9, 1, 3, 1], [3, 2, 1, 0, 0, 0]]),
        "padding_mask": np.array([[1] * 6, [1, 1, 1, 0, 0, 0]]),
        "segment_ids": np.array([[1, 1, 1, 1, 2, 2], [1, 1, 1, 0, 0, 0]]),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1], [0, 1, 2, 0, 0, 0]]),
    }
    figures = packed.evaluate(row, verbose=0, return_dict=True)
    expected = pretrainer.evaluate(BATCH, verbose=0, return_dict=True)
    for name, value in expected.items():
        np.testing.assert_allclose(figures[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("rule", [All(), Causal(), NotSelf() | Causal()], ids=repr)
def test_rules_that_show_self_are_refused(rule):
    with pytest.raises(ValueError, match="rule that hides self.*Received: visib"):
        make(rule)


def test_contextual_keys_are_refused():
    backbone = TransformerBackbone(**SIZES, visibility=NotSelf())
    with pytest.raises(ValueError, match="static keys and values"):
        LanguageAutoencoder(backbone)


def test_arguments_out_of_range(pretrainer):
    with pytest.raises(ValueError, match="'tokens', 'positions'.*='padding'"):
        make(normalization="padding")
    with pytest.raises(ValueError, match="has its own loss"):
        LanguageAutoencoder(pretrainer.backbone).compile(loss="mse")
    with pytest.raises(ValueError, match="makes its own labels"):
        pretrainer.test_on_batch(BATCH, TOKEN_IDS)


def test_config_round_trip():
    pretrainer = make(
        NotSelf() & HideWord(),
        special_token_ids=[0, 5],
        normalization="positions",
        name="objective",
    )
    again = LanguageAutoencoder.from_config(pretrainer.get_config())
    assert again.get_config() == pretrainer.get_config()
    assert again.special_token_ids == (0, 5)
    assert again.backbone.visibility == NotSelf() & HideWord()


def test_mixed_precision_is_near(pretrainer):
    mixed = make(dtype="mixed_bfloat16")
    mixed.set_weights(pretrainer.get_weights())
    loss, expected = (
        model.test_on_batch(BATCH, return_dict=True)["loss"]
        for model in (mixed, pretrainer)
    )
    assert abs(loss - expected) < 0.03 * expected
    assert mixed.language_model.output.dtype == "float32"
    assert {w.dtype for w in mixed.trainable_weights} == {"float32"}
    assert keras.backend.standardize_dtype(mixed.backbone(BATCH).dtype) == "bfloat16"
