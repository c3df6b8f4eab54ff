"""The contextual backbone: inputs, siblings, padding, packing, presets."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_tta.models import TransformerBackbone
from keras_tta.presets import load_backbone, save_preset
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.visibility import All, Causal, NotSelf, SameSegment

SIZES = {
    "vocabulary_size": 20,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 8,
}
INPUTS = {
    "token_ids": np.array([[3, 7, 8, 9, 1, 0], [3, 8, 1, 0, 0, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]),
}


def make_backbone(**options):
    backbone = TransformerBackbone(**{**SIZES, **options})
    draw = np.random.default_rng(0)
    for weight in backbone.weights:
        noise = 0.4 * draw.normal(size=weight.shape)
        weight.assign(noise + (weight.name == "gamma"))
    return backbone


def run(backbone, inputs=INPUTS):
    return keras.ops.convert_to_numpy(backbone(inputs))


def test_the_config_makes_the_same_model():
    backbone = make_backbone(
        embedding_dim=4, num_segments=2, dropout=0.2, visibility=Causal()
    )
    again = TransformerBackbone.from_config(backbone.get_config())
    assert again.get_config() == backbone.get_config()
    assert set(again.input) == {"token_ids", "padding_mask", "segment_ids"}
    kernel = again.get_layer("embedding_projection").kernel
    assert tuple(kernel.shape) == (4, 8)


@pytest.mark.parametrize("rule", [All(), Causal()])
def test_padding_changes_nothing(rule):
    backbone = make_backbone(visibility=rule)
    real = INPUTS["padding_mask"] == 1
    other = {**INPUTS, "token_ids": np.where(real, INPUTS["token_ids"], 15)}
    assert np.allclose(run(backbone)[real], run(backbone, other)[real], atol=1e-6)
    nothing = {**INPUTS, "padding_mask": np.zeros_like(real)}
    assert np.isfinite(run(backbone, nothing)).all()


@pytest.mark.parametrize("options", [{}, {"embedding_dim": 4}])
def test_siblings_share_all_layers(options):
    backbone = make_backbone(**options)
    causal = backbone.with_visibility(Causal())
    assert backbone.with_visibility(Causal()) is causal
    assert causal.with_visibility(All()) is backbone
    assert {id(w) for w in causal.weights} == {id(w) for w in backbone.weights}
    assert np.abs(run(causal) - run(backbone)).max() > 1e-3


def test_packed_sequences_are_read_as_if_alone():
    backbone = make_backbone()
    packed = backbone.with_visibility(All() & SameSegment())
    row = {
        "token_ids": np.array([[3, 7, 8, 1, 3, 9, 1, 0]]),
        "padding_mask": np.array([[1] * 7 + [0]]),
        "segment_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 0]]),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 0]]),
    }
    output = run(packed, row)
    for part in (slice(0, 4), slice(4, 7)):
        alone = {name: row[name][:, part] for name in INPUTS}
        assert np.allclose(run(backbone, alone), output[:, part], atol=1e-5)


def test_segment_ids_cannot_mean_two_things():
    with pytest.raises(ValueError, match="packed rows use num_segments=0"):
        make_backbone(num_segments=2, visibility=All() & SameSegment())
    backbone = make_backbone(num_segments=2)
    with pytest.raises(ValueError, match="packed rows use num_segments=0"):
        backbone.with_visibility(All() & SameSegment())


@pytest.mark.parametrize("options", [{}, {"embedding_dim": 4, "visibility": Causal()}])
def test_presets_load_by_ours_and_by_kerashub(tmp_path, options):
    backbone = make_backbone(**options)
    save_preset(tmp_path, backbone)
    for loaded in (
        load_backbone(tmp_path),
        keras_hub.models.Backbone.from_preset(str(tmp_path)),
    ):
        assert type(loaded) is TransformerBackbone
        assert np.allclose(run(loaded), run(backbone), atol=1e-6)


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    backbone = TransformerBackbone(**SIZES, embedding_dim=4)
    output = backbone(INPUTS)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert {w.dtype for w in backbone.weights} == {"float32"}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="multiple of `num_heads`"):
        make_backbone(num_heads=3)
    with pytest.raises(ValueError, match="at most max_sequence_length=8"):
        run(make_backbone(), {name: np.ones((1, 9), "int32") for name in INPUTS})


def test_no_language_autoencoder_is_built_on_it():
    with pytest.raises(ValueError, match="static keys and values"):
        LanguageAutoencoder(make_backbone(visibility=NotSelf()))
