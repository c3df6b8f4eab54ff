"""Language autoencoding under several rules at once."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.data import TokenBatches
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.visibility import named_rule

SIZES = {
    "vocabulary_size": 20,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 8,
    "dropout": 0.0,
}
MIX = {"others": 0.5, "word_left_to_right": 0.25, "left": 0.25}
RANDOM = np.random.default_rng(0)
BATCH = {
    "token_ids": RANDOM.integers(5, 20, (32, 8)).astype("int32"),
    "padding_mask": np.arange(8) < RANDOM.integers(2, 9, (32, 1)),
    "word_ids": np.sort(RANDOM.integers(0, 5, (32, 8))).astype("int32"),
}


def make(**options):
    keras.utils.set_random_seed(0)
    return LanguageAutoencoder(TTABackbone(**SIZES), **options)


def test_every_row_reads_as_its_backbone_would_under_its_rule():
    pretrainer = make(visibility_mix=MIX)
    hidden = ops.convert_to_numpy(pretrainer(BATCH)["hidden"])
    used = []
    real = BATCH["padding_mask"]
    under = [
        ops.convert_to_numpy(
            pretrainer.backbone.with_visibility(named_rule(name))(BATCH)
        )
        for name in MIX
    ]
    for row in range(32):
        distances = [abs(x[row] - hidden[row])[real[row]].max() for x in under]
        used.append(int(np.argmin(distances)))
        assert min(distances) < 1e-5
    assert set(used) == {0, 1, 2}


def test_one_rule_in_the_mix_is_that_rule():
    plain, mixed = make(), make(visibility_mix={"others": 1.0})
    for a, b in zip(plain.trainable_weights, mixed.trainable_weights, strict=True):
        b.assign(a)
    np.testing.assert_allclose(
        ops.convert_to_numpy(mixed(BATCH)["hidden"]),
        ops.convert_to_numpy(plain(BATCH)["hidden"]),
        atol=1e-5,
    )


@pytest.mark.parametrize("packed", [False, True])
def test_it_trains_and_is_saved(packed, tmp_path):
    starts = np.arange(20) < 14
    rows = [RANDOM.integers(5, 20, RANDOM.integers(1, 6)).tolist() for _ in range(64)]
    batches = TokenBatches(rows, 16, 8, packed=packed, word_starts=starts)
    pretrainer = make(visibility_mix=MIX, packed=packed, seed=5)
    pretrainer.compile(keras.optimizers.Adam(0.01))
    losses = pretrainer.fit(batches, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    pretrainer.save_to_preset(tmp_path)
    loaded = LanguageAutoencoder.from_preset(tmp_path)
    assert loaded.visibility_mix == MIX and loaded.seed == 5
    again = LanguageAutoencoder.from_config(pretrainer.get_config())
    assert again.visibility_mix == MIX and again.packed == packed
    # What the mix has taught is used under the backbone's own rule.
    assert set(loaded.backbone.input) == {"token_ids", "padding_mask"}


def test_training_is_the_same_for_a_seed():
    def losses(seed):
        pretrainer = make(visibility_mix=MIX, seed=seed)
        pretrainer.compile(keras.optimizers.SGD(0.1))
        fitted = pretrainer.fit(
            BATCH, batch_size=32, epochs=3, shuffle=False, verbose=0
        )
        return fitted.history["loss"]

    first = losses(1)
    np.testing.assert_allclose(losses(1), first, rtol=1e-6)
    assert abs(np.subtract(losses(2), first)).max() > 1e-4


def test_names_and_shares_are_checked():
    with pytest.raises(ValueError, match="`visibility_mix` must name rules out of"):
        make(visibility_mix={"right": 1.0})
    with pytest.raises(ValueError, match="of which the sum is 1"):
        make(visibility_mix={"others": 0.5, "left": 0.4})
