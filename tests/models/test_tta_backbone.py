"""The backbone: one set of layers, any rule, the same numbers however it is fed."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import SharedKVEncoder, TTAEmbedding, VisibilityMask
from keras_tta.models import TTABackbone
from keras_tta.visibility import All, Causal, HideWord, NotSelf, SameSegment, Window

SIZES = {
    "vocabulary_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 8,
}
TOKEN_IDS = np.array([[3, 7, 9, 12, 1, 0, 0, 0], [3, 8, 1, 0, 0, 0, 0, 0]])
BATCH = {"token_ids": TOKEN_IDS, "padding_mask": TOKEN_IDS != 0}


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def make(**options):
    backbone = TTABackbone(**{**SIZES, **options})
    draw = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(weight + 0.4 * draw.normal(size=weight.shape))
    return backbone


@pytest.fixture(scope="module")
def backbone():
    return make()


def test_the_arguments_it_is_given_reach_its_layers():
    backbone = make(dropout=0.3, query="position", layer_norm_epsilon=1e-6)
    parts = (backbone.embeddings, backbone.encoder, *backbone.encoder.blocks)
    assert {part.dropout for part in parts} == {0.3}
    assert {part.layer_norm_epsilon for part in parts} == {1e-6}
    assert backbone.embeddings.query == "position"
    assert backbone.encoder.num_layers == SIZES["num_layers"]
    assert isinstance(backbone, keras_hub.models.Backbone)
    assert TTABackbone(**SIZES).dropout == 0.1
    assert TTABackbone(**SIZES).visibility == NotSelf()


def test_siblings_share_their_weights_and_are_made_once(backbone):
    left = backbone.with_visibility(Causal(strict=True))
    assert left.visibility == Causal(strict=True)
    assert {id(w) for w in left.weights} == {id(w) for w in backbone.weights}
    assert len(left.weights) == len(backbone.weights)
    assert backbone.with_visibility(Causal(strict=True)) is left
    assert backbone.with_visibility(NotSelf()) is backbone
    assert left.with_visibility(NotSelf()) is backbone
    window = left.with_visibility(NotSelf() & Window(2))
    assert backbone.with_visibility(NotSelf() & Window(2)) is window
    # A sibling may be saved by itself and is no layer of its siblings.
    assert left.get_config()["visibility"]["class_name"] == "Causal"
    assert not any(isinstance(layer, TTABackbone) for layer in backbone.layers)


def test_siblings_learn_together(backbone):
    before = numpy(backbone.with_visibility(All())(BATCH))
    bias = backbone.encoder.blocks[-1].output_norm.beta
    value = numpy(bias)
    bias.assign(value + 1)
    after = numpy(backbone.with_visibility(All())(BATCH))
    bias.assign(value)
    np.testing.assert_allclose(after, before + 1, rtol=1e-4, atol=1e-5)


def test_siblings_are_in_their_familys_dtype():
    mixed = make(dtype="mixed_bfloat16").with_visibility(All())
    assert mixed.dtype_policy.name == "mixed_bfloat16"
    assert keras.backend.standardize_dtype(mixed(BATCH).dtype) == "bfloat16"


@pytest.mark.parametrize(
    "rule, names",
    [
        (NotSelf(), []),
        (HideWord(), ["word_ids"]),
        (NotSelf() & SameSegment(), ["position_ids", "segment_ids"]),
    ],
    ids=repr,
)
def test_inputs_are_what_the_rule_needs(backbone, rule, names):
    inputs = backbone.with_visibility(rule).input
    assert set(inputs) == {"token_ids", "padding_mask", *names}


def test_it_is_its_layers(backbone):
    """Composed by hand in the functional API, they give the same."""
    token_ids = keras.Input((None,), dtype="int32")
    padding_mask = keras.Input((None,), dtype="bool")
    visible = VisibilityMask(NotSelf())(padding_mask)
    embeddings = TTAEmbedding(16, 8, 8)
    encoder = SharedKVEncoder(2, 2, 12)
    hidden = encoder(*embeddings(token_ids), visible)
    model = keras.Model([token_ids, padding_mask], hidden)
    for ours, theirs in (
        (embeddings, backbone.embeddings),
        (encoder, backbone.encoder),
    ):
        pairs = zip(ours.trainable_weights, theirs.trainable_weights, strict=True)
        for weight, value in pairs:
            weight.assign(value)
    result = numpy(model([TOKEN_IDS, TOKEN_IDS != 0]))
    np.testing.assert_array_equal(result, numpy(backbone(BATCH)))


def test_padding_masks_of_any_dtype(backbone):
    expected = numpy(backbone(BATCH))
    for dtype in ("int32", "float32", "uint8"):
        mask = BATCH["padding_mask"].astype(dtype)
        np.testing.assert_array_equal(
            numpy(backbone({**BATCH, "padding_mask": mask})), expected
        )


def test_padding_and_batch_mates_change_nothing(backbone):
    whole = numpy(backbone(BATCH))
    cut = numpy(backbone({name: x[:, :5] for name, x in BATCH.items()}))
    np.testing.assert_allclose(cut, whole[:, :5], rtol=1e-4, atol=1e-5)
    swapped = numpy(backbone({name: x[::-1] for name, x in BATCH.items()}))
    np.testing.assert_allclose(swapped[::-1], whole, rtol=1e-4, atol=1e-5)
    other = {**BATCH, "token_ids": np.where(TOKEN_IDS == 0, 9, TOKEN_IDS)}
    np.testing.assert_array_equal(numpy(backbone(other)), whole)


@pytest.mark.parametrize("rule", [NotSelf(), Causal(strict=True), HideWord()], ids=repr)
def test_packed_rows_are_rows_apart(backbone, rule):
    words = np.array([[0, 1, 1, 2, 3], [0, 1, 2, 9, 9]])
    rows = {
        "token_ids": TOKEN_IDS[:, :5],
        "padding_mask": TOKEN_IDS[:, :5] != 0,
        "word_ids": words,
    }
    apart = backbone.with_visibility(rule)
    apart = numpy(apart({name: rows[name] for name in apart.input}))
    packed = {
        "token_ids": np.array([[3, 7, 9, 12, 1, 3, 8, 1]] * 2),
        "padding_mask": np.ones((2, 8), bool),
        "segment_ids": np.array([[1, 1, 1, 1, 1, 2, 2, 2]] * 2),
        "position_ids": np.array([[0, 1, 2, 3, 4, 0, 1, 2]] * 2),
        "word_ids": np.array([[0, 1, 1, 2, 3, 0, 1, 2]] * 2),
    }
    together = backbone.with_visibility(rule & SameSegment())
    together = numpy(together({name: packed[name] for name in together.input}))[0]
    expected = np.concatenate([apart[0], apart[1, :3]])
    np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-5)


def test_rows_that_are_all_padding_are_finite(backbone):
    nothing = {name: np.zeros_like(x) for name, x in BATCH.items()}
    assert np.isfinite(numpy(backbone(nothing))).all()


TOO_LONG = {"token_ids": np.ones((2, 9), "int32"), "padding_mask": np.ones((2, 9))}


@pytest.mark.parametrize("way", ["__call__", "predict", "predict_on_batch", "fit"])
def test_too_long_is_one_clear_error(way):
    backbone = make()
    arguments = {"predict": {"verbose": 0}, "fit": {"y": np.ones(2), "verbose": 0}}
    backbone.compile("sgd", "mse")
    message = "input has 9 positions, the model takes at most max_sequence_length=8"
    with pytest.raises(ValueError, match=message):
        getattr(backbone, way)(TOO_LONG, **arguments.get(way, {}))


def test_config_round_trip():
    rule = (NotSelf() & Window(3)) | HideWord("right")
    backbone = make(
        visibility=rule, query="position", dropout=0.2, mask_token_id=2, name="base"
    )
    config = backbone.get_config()
    again = TTABackbone.from_config(config)
    assert again.get_config() == config
    assert again.visibility == rule and again.name == "base"
    for weight, value in zip(again.weights, backbone.weights, strict=True):
        weight.assign(value)
    batch = {**BATCH, "word_ids": np.array([[0, 1, 1, 2, 3, 4, 4, 4]] * 2)}
    np.testing.assert_array_equal(numpy(again(batch)), numpy(backbone(batch)))


def test_a_saved_backbone_is_the_same(tmp_path):
    backbone = make(dtype="mixed_bfloat16", visibility=NotSelf() & Window(1))
    backbone.save(tmp_path / "backbone.keras")
    again = keras.saving.load_model(tmp_path / "backbone.keras")
    assert type(again) is TTABackbone
    assert again.dtype_policy.name == "mixed_bfloat16"
    assert again.visibility == NotSelf() & Window(1)
    np.testing.assert_array_equal(numpy(again(BATCH)), numpy(backbone(BATCH)))


def test_mixed_precision_is_near(backbone):
    mixed = TTABackbone(**SIZES, dtype="mixed_bfloat16")
    for weight, value in zip(mixed.weights, backbone.weights, strict=True):
        weight.assign(value)
    expected, result = numpy(backbone(BATCH)), numpy(mixed(BATCH))
    assert np.abs(result - expected).mean() < 0.03 * np.abs(expected).mean()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_heads": 3}, "multiple of `num_heads`.*hidden_dim=8, num_heads=3"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"vocabulary_size": 4.0}, "vocabulary_size=4.0"),
        ({"dropout": 1}, "dropout=1"),
        ({"query": "both"}, "'mask', 'position'"),
        ({"visibility": "all"}, "must be a visibility rule"),
        ({"mask_token_id": 16}, "0 to 15"),
    ],
)
def test_arguments_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        TTABackbone(**{**SIZES, **options})


def test_an_initializer_is_given_by_name():
    with pytest.raises(ValueError, match="must be the name of a Keras initializer"):
        TTABackbone(
            vocabulary_size=30,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
            kernel_initializer=keras.initializers.Zeros(),
        )
