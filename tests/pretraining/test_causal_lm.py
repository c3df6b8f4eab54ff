"""The causal language model: every next token from those up to now."""

import keras
import numpy as np
import pytest

from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import CausalLM
from keras_tta.visibility import (
    All,
    Causal,
    HideWord,
    NotSelf,
    SameSegment,
    Visibility,
    Window,
)

SIZES = {
    "vocabulary_size": 30,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 8,
    "dropout": 0.0,
}
# Published with GPT-2's preprocessor: the row, its labels, its weights.
TOKEN_IDS = np.array([[1, 4, 16, 26, 25, 18, 1, 0]])
LABELS = [[4, 16, 26, 25, 18, 1, 0, 0]]
WEIGHTS = [[1, 1, 1, 1, 1, 1, 0, 0]]
ROW = {"token_ids": TOKEN_IDS, "padding_mask": TOKEN_IDS != 0}
PACKED = {
    "token_ids": np.array([[3, 7, 8, 1, 3, 9, 1, 0]]),
    "padding_mask": np.array([[1] * 7 + [0]]),
    "segment_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0]]),
    "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 0]]),
}


def make_pretrainer(rule=None, backbone_class=TransformerBackbone, **options):
    backbone = backbone_class(**SIZES, visibility=rule or Causal())
    draw = np.random.default_rng(0)
    for weight in backbone.weights:
        noise = 0.4 * draw.normal(size=weight.shape)
        weight.assign(noise + (weight.name == "gamma"))
    return CausalLM(backbone, **options)


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def nats(pretrainer, inputs):
    """Of each position, weights 0 left out: (B, T)."""
    targets = pretrainer(inputs)
    _, nats, _ = pretrainer.head.loss(**targets)
    return numpy(nats) * numpy(targets["weights"])


def test_labels_are_shifted_once():
    targets = make_pretrainer()(ROW)
    assert numpy(targets["labels"]).tolist() == LABELS
    assert numpy(targets["weights"]).tolist() == WEIGHTS


@pytest.mark.parametrize("backbone_class", [TransformerBackbone, TTABackbone])
def test_the_loss_is_the_mean_cross_entropy_of_next_tokens(backbone_class):
    pretrainer = make_pretrainer(backbone_class=backbone_class)
    logits = numpy(pretrainer.language_model(ROW)).astype("float64")[0, :6]
    expected = np.log(np.exp(logits).sum(-1)) - logits[np.arange(6), LABELS[0][:6]]
    pretrainer.compile()
    figures = pretrainer.evaluate(ROW, verbose=0, return_dict=True)
    assert abs(figures["loss"] - expected.mean()) < 1e-4
    # The first and the last of them are special, 4 and 1.
    ordinary = expected[1:5].mean()
    assert abs(figures["nats_per_token"] - ordinary) < 1e-4
    assert abs(figures["perplexity"] / np.exp(ordinary) - 1) < 1e-4
    assert figures["tokens"] == 4 and "pseudo_perplexity" not in figures


@pytest.mark.parametrize("backbone_class", [TransformerBackbone, TTABackbone])
def test_no_token_is_predicted_from_itself_or_later_ones(backbone_class):
    pretrainer = make_pretrainer(backbone_class=backbone_class)
    before = numpy(pretrainer(ROW)["hidden"])
    for position in range(1, 7):
        changed = TOKEN_IDS.copy()
        changed[0, position] += 3
        after = numpy(pretrainer({**ROW, "token_ids": changed})["hidden"])
        difference = np.abs(after - before)[0].max(axis=-1) > 1e-6
        # The output before it predicts the token.
        assert not difference[:position].any() and difference[position]


def test_packed_sequences_cost_what_they_cost_alone():
    pretrainer = make_pretrainer(packed=True)
    assert set(pretrainer.input) == set(PACKED)
    packed = nats(pretrainer, PACKED)
    assert np.count_nonzero(packed) == 3 + 2
    alone = CausalLM(pretrainer.backbone)
    alone.head.set_weights(pretrainer.head.get_weights())
    for part in (slice(0, 4), slice(4, 7)):
        inputs = {name: PACKED[name][:, part] for name in ROW}
        assert np.allclose(nats(alone, inputs), packed[:, part], atol=1e-5)


def test_a_rule_of_segments_is_respected_without_packed():
    pretrainer = make_pretrainer(Causal() & SameSegment())
    weights = numpy(pretrainer(PACKED)["weights"])
    assert weights.tolist() == [[1, 1, 1, 0, 1, 1, 0, 0]]


@pytest.mark.parametrize("length", [1, 2])
def test_short_rows(length):
    pretrainer = make_pretrainer()
    pretrainer.compile()
    row = {name: ids[:, :length] for name, ids in ROW.items()}
    history = pretrainer.fit(row, verbose=0).history
    assert (history["loss"][0] == 0) == (length == 1)


def test_padding_on_the_left_predicts_nothing():
    mask = np.array([[0, 0, 1, 1, 1, 1, 1, 0]])
    targets = make_pretrainer()({**ROW, "padding_mask": mask})
    assert numpy(targets["weights"]).tolist() == [[0, 0, 1, 1, 1, 1, 0, 0]]


class Peeking(Visibility):
    """Shows the future, but only far away."""

    def visible(self, query, key):
        return key.position - query.position != 3


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "rule",
    [
        All(),
        NotSelf(),
        Causal() | Window(1),
        SameSegment(),
        HideWord("right"),
        HideWord("all"),
        HideWord("all") & SameSegment(),
        Causal() | (NotSelf() & SameSegment()),
        Peeking() & (Causal() | Window(7)),
    ],
    ids=str,
)
def test_a_rule_that_sees_the_future_is_refused(rule):
    with pytest.raises(ValueError, match="sees a later one"):
        make_pretrainer(rule)


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "rule",
    [
        Causal(strict=True),
        Causal() & Window(2),
        Causal() & SameSegment(),
        Causal() & (All() | HideWord()),
    ],
    ids=str,
)
def test_a_rule_that_does_not_is_taken(rule):
    assert make_pretrainer(rule).backbone.visibility == rule


def test_it_learns_what_can_be_learnt():
    # Every token says what the next one is.
    batch = {
        "token_ids": 7 + (np.arange(16)[:, None] + np.arange(8)) % 4,
        "padding_mask": np.ones((16, 8), bool),
    }
    wide = {**SIZES, "num_layers": 1, "num_heads": 4, "hidden_dim": 32}
    pretrainer = CausalLM(TransformerBackbone(**wide, visibility=Causal()))
    pretrainer.compile(keras.optimizers.Adam(2e-2))
    pretrainer.fit(batch, epochs=20, verbose=0)
    assert pretrainer.evaluate(batch, verbose=0, return_dict=True)["accuracy"] > 0.9


def test_presets(tmp_path):
    pretrainer = make_pretrainer(special_token_ids=(0, 1), packed=True)
    pretrainer.save_to_preset(tmp_path)
    again = CausalLM.from_preset(tmp_path)
    assert again.packed and again.special_token_ids == (0, 1)
    assert np.allclose(nats(again, PACKED), nats(pretrainer, PACKED), atol=1e-5)
    config = CausalLM.from_config(pretrainer.get_config()).get_config()
    assert config == pretrainer.get_config()


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    pretrainer = make_pretrainer()
    pretrainer.compile()
    history = pretrainer.fit(ROW, verbose=0).history
    assert np.isfinite(history["loss"][0])
