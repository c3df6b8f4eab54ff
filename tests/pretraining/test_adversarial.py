"""REINFORCE: its gradient is that of the expected reward, its baseline fits rewards."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import TokenPredictionHead
from keras_tta.pretraining import ReplacedTokenDetection
from keras_tta.pretraining.adversarial import policy_loss
from tests.leakage.gradients import weight_gradients
from tests.pretraining.electra import (
    BATCH,
    DISCRIMINATOR,
    gradients,
    loss_of,
    make_masking,
    moved,
    networks,
    numpy,
)

V, D = 5, 4
REWARDS = np.array([[0.1, 2.0, 0.5, 1.0, 3.0]], "float32")


def make_parts():
    embedding = keras.layers.ReversibleEmbedding(V, D)
    embedding.build((None, None))
    head = TokenPredictionHead(embedding)
    baseline = keras.layers.Dense(1)
    for layer in (head, baseline):
        layer.build((None, None, D))
    draw = np.random.default_rng(0)
    for weight in (*embedding.weights, *head.weights, *baseline.weights):
        weight.assign(draw.normal(size=weight.shape))
    # One position as often as there are tokens, and once each of them.
    hidden = np.repeat(draw.normal(size=(1, 1, D)), V, axis=1).astype("float32")
    return head, baseline, hidden


@pytest.mark.parametrize("excluded", [(), (1, 3)])
def test_its_gradient_is_that_of_the_expected_reward(excluded):
    """Every token weighed by its probability: what a mean over many samples goes to."""
    head, baseline, hidden = make_parts()
    logits = numpy(head(hidden))[0, 0].astype("float64")
    p = np.exp(logits)
    p[list(excluded)] = 0
    p /= p.sum()
    sampled, weights = np.arange(V)[None], p[None].astype("float32")

    def loss():
        arrays = map(ops.convert_to_tensor, (hidden, sampled, REWARDS, weights))
        return policy_loss(
            head, baseline, *arrays, training=True, excluded_token_ids=excluded
        )

    of_bias, of_w, of_b = weight_gradients(
        loss, [head.bias, baseline.kernel, baseline.bias]
    )
    rewards = REWARDS[0].astype("float64")
    # d/d logits of sum p R, with the sign of a loss; the baseline drops out.
    np.testing.assert_allclose(of_bias, -p * (rewards - p @ rewards), atol=1e-5)
    # The cross-entropy between exp(-R) and sigmoid(w . h + b).
    logit = hidden[0, 0] @ numpy(baseline.kernel)[:, 0] + numpy(baseline.bias)[0]
    misfit = p @ (1 / (1 + np.exp(-logit)) - np.exp(-rewards))
    np.testing.assert_allclose(of_b, [misfit], atol=1e-5)
    np.testing.assert_allclose(of_w[:, 0], misfit * hidden[0, 0], atol=1e-5)


def test_its_value_on_hand_computed_numbers():
    """p = (1/2, 1/4, 1/4), the last is sampled, R = ln 4, sigmoid(w . h) = 1/2."""
    embedding = keras.layers.ReversibleEmbedding(3, 2, embeddings_initializer="zeros")
    embedding.build((None, None))
    head = TokenPredictionHead(embedding)
    baseline = keras.layers.Dense(1, kernel_initializer="zeros")
    head.build((None, None, 2))
    head.bias.assign(np.log([2.0, 1.0, 1.0]))
    one = ops.ones((1, 1))
    hidden, sampled = ops.ones((1, 1, 2)), ops.cast(2 * one, "int32")
    value = policy_loss(
        head, baseline, hidden, sampled, ops.log(4 * one), one, training=True
    )
    # -(R - b) log p, and -(1/4 log 1/2 + 3/4 log 1/2).
    assert abs(numpy(value) - (np.log(2) * np.log(4) + np.log(2))) < 1e-5


def make_electra(**options):
    return ReplacedTokenDetection(
        *networks(), make_masking(), tie="none", adversarial=True, **options
    )


def test_rewards_are_the_discriminators_losses_at_the_samples():
    electra = make_electra()
    targets = {name: numpy(x) for name, x in electra(BATCH).items()}
    read = {**BATCH, "token_ids": targets["corrupted_token_ids"]}
    logits = numpy(electra.detector(read))
    replaced = read["token_ids"] != BATCH["token_ids"]
    detection = np.log1p(np.exp(np.where(replaced, -logits, logits)))
    rewards = np.take_along_axis(detection, targets["masked_positions"], 1)
    logits = numpy(electra.generator_head(targets["hidden"])).astype("float64")
    chosen = np.take_along_axis(logits, targets["sampled_token_ids"][..., None], -1)
    # Specials are not sampled: the policy is the softmax of all else.
    logits = np.delete(logits, electra.token_sampler.special_token_ids, axis=-1)
    surprise = np.log(np.exp(logits).sum(-1)) - chosen[..., 0]
    # The baseline starts at zero: b = ln 2, a misfit of ln 2.
    loss = surprise * (rewards - np.log(2)) + np.log(2)
    weights = targets["weights"]
    expected = (loss * weights).sum() / weights.sum()
    expected += 50 * detection[BATCH["padding_mask"]].mean()
    assert abs(numpy(loss_of(electra)) - expected) < 1e-3


def test_it_teaches_the_generator_and_the_baseline(tmp_path):
    electra = make_electra()
    electra.discriminator_weight = 0.0
    assert moved(electra).isdisjoint(DISCRIMINATOR)
    kernel = electra.reward_baseline.kernel
    weights = [kernel, electra.generator_head.bias]
    assert all(x.any() for x in gradients(electra, weights))
    kernel.assign(np.arange(4.0)[:, None])
    electra.save(tmp_path / "electra.keras")
    again = keras.saving.load_model(tmp_path / "electra.keras")
    assert again.adversarial
    assert np.array_equal(numpy(again.reward_baseline.kernel), numpy(kernel))


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 2.0},
        {"disallow_correct": True},
        {"sampling_dropout": False},
        {"generator_weight": 0.0},
    ],
)
def test_samples_must_be_those_of_what_learns(options):
    with pytest.raises(ValueError, match="With `adversarial=True`"):
        make_electra(**options)
