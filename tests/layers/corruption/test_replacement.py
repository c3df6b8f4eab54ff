"""Samples of a generator: their distribution, their limits, their seeds."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers.corruption import TokenSampler
from keras_tta.layers.corruption.replacement import inverse_cdf

SIZE = 12
LOGITS = np.random.default_rng(0).normal(size=SIZE).astype("float32")
ROWS, LENGTH = 400, 10


class Logits(keras.layers.Layer):
    """Ignores what is given, and predicts as a head does, in float32."""

    def call(self, hidden):
        return ops.zeros_like(hidden, dtype="float32") + LOGITS


def numpy(x):
    return ops.convert_to_numpy(x)


def draw(sampler, rows=ROWS, training=None, label=5):
    """Samples at every position of rows that all differ, (rows, LENGTH)."""
    token_ids = np.arange(rows * LENGTH).reshape(rows, LENGTH)
    return numpy(
        sampler(
            np.broadcast_to(LOGITS, (rows, LENGTH, SIZE)).astype("float32"),
            np.broadcast_to(np.arange(LENGTH), (rows, LENGTH)),
            np.full((rows, LENGTH), label),
            token_ids=token_ids,
            padding_mask=np.ones_like(token_ids),
            training=training,
        )
    )


def softmax(logits, without=()):
    p = np.exp(logits.astype("float64"))
    p[list(without)] = 0
    return p / p.sum()


def chi_square(sampled, p):
    counts = np.bincount(sampled.ravel(), minlength=SIZE)
    assert not counts[p == 0].any()
    possible = p > 0
    expected = p[possible] * sampled.size
    return ((counts[possible] - expected) ** 2 / expected).sum()


@pytest.mark.parametrize(
    ("options", "p"),
    [
        ({"temperature": 0.5}, softmax(LOGITS / 0.5)),
        ({"special_token_ids": (0, 11)}, softmax(LOGITS, (0, 11))),
        ({"disallow_correct": True, "dtype": "bfloat16"}, softmax(LOGITS, (5,))),
    ],
    ids=["temperature", "specials", "disallow"],
)
def test_the_distribution_is_the_softmax(options, p):
    # Logits as they are: what a policy rounds is the head's business, not the draw's.
    sampler = TokenSampler(Logits(), **options)
    # The 99.99 % quantile of 11 degrees of freedom.
    assert chi_square(draw(sampler), p) < 37.4


def test_a_head_in_bfloat16_is_sampled_in_float32():
    # Half of bfloat16's uniforms would never reach the last of many equal tokens.
    size = 1000
    hidden = np.zeros((4, 500, size), "float32")
    sampler = TokenSampler(keras.layers.Identity(), dtype="bfloat16")
    ids = np.arange(2000).reshape(4, 500)
    places = np.broadcast_to(np.arange(500), (4, 500))
    sampled = numpy(sampler(hidden, places, ids, token_ids=ids, padding_mask=ids >= 0))
    assert len(np.unique(sampled)) > 800  # 865 = 1000 (1 - e^-2) are expected
    assert abs(sampled.mean() - 499.5) < 30


def test_training_draws_afresh_and_validation_alike():
    sampler = TokenSampler(keras.layers.Identity())
    fixed = draw(sampler, rows=2)
    first, second = (draw(sampler, rows=2, training=True) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.array_equal(draw(sampler, rows=2), fixed)
    assert not np.array_equal(
        draw(TokenSampler(keras.layers.Identity(), seed=1), 2), fixed
    )
    # A row's draws do not depend on the batch.
    assert np.array_equal(draw(sampler, rows=3)[:2], fixed)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24])
def test_the_ends_of_the_distribution_are_possible_tokens(uniform):
    size = 30_000
    logits = np.full((1, size), -3e4, "float32")
    logits[0, [7, 20_000]] = 0.0
    allowed = np.ones((1, size), bool)
    allowed[0, [0, size - 1]] = False
    sampled = inverse_cdf(logits, ops.convert_to_tensor([uniform], "float32"), allowed)
    assert int(sampled[0]) == (20_000 if uniform >= 0.5 else 7)
    # Large logits neither overflow nor reach what is not allowed.
    sampled = inverse_cdf(
        np.full((1, 3), 1e30, "float32"),
        ops.convert_to_tensor([uniform], "float32"),
        np.array([[False, True, False]]),
    )
    assert int(sampled[0]) == 1


def test_the_temperature_decays():
    sampler = TokenSampler(
        keras.layers.Identity(), temperature=2.0, temperature_decay_steps=10
    )
    draw(sampler, rows=1, training=True)
    assert np.isclose(float(sampler.temperature_now()), 1 + np.exp(-0.1))
    sampler.state.assign([0, 100])
    assert np.isclose(float(sampler.temperature_now()), 1 + np.exp(-10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "`temperature` of TokenSampler must be a number above 0"),
        ({"temperature_decay_steps": 0}, "positive integer"),
        ({"special_token_ids": (12,)}, r"0 to 11\. Received: special_token_ids=\[12\]"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        draw(TokenSampler(keras.layers.Identity(), **options), rows=1)


def test_the_config_round_trips():
    sampler = TokenSampler(keras.layers.Identity(), (0, 1), 1.5, 7, True, seed=3)
    config = sampler.get_config()
    assert TokenSampler.from_config(config).get_config() == config
