"""A generator that learns to fool the discriminator, by REINFORCE.

Axes: B batch, K predictions a row, D model width.
"""

import keras
from keras import ops

from keras_tta.training.replicas import mean_loss


def policy_loss(
    head,
    baseline,
    hidden,
    sampled,
    rewards,
    weights,
    training,
    count=None,
    excluded_token_ids=(),
):
    """What lowers as the generator samples what the discriminator takes for original.

    A sample's reward R is the discriminator's loss at it, -log of the probability of
    the right answer. The gradient is that of `-(R - b) log p(sample)`, where the
    learned baseline is `b = -log sigmoid(w . h)`; `w` is fitted by the cross-entropy
    between `exp(-R)` and `sigmoid(w . h)`, which moves nothing else (Clark et al., ICLR
    2020, appendix F).

    Args:
        head: the generator's `TokenPredictionHead`.
        baseline: a `keras.layers.Dense(1)`.
        hidden: (B, K, D), the generator's at the sampled positions.
        sampled: int (B, K).
        rewards: float32 (B, K), nats.
        weights: float32 (B, K).
        training: whether gradients will be asked for.
        count: what adds up to the mean's denominator. Defaults to the weights.
        excluded_token_ids: tokens that are never sampled. Defaults to none.

    Returns:
        The mean, a scalar. Only its gradient means something.
    """
    rewards = ops.stop_gradient(rewards)
    logits = ops.cast(ops.squeeze(baseline(ops.stop_gradient(hidden)), -1), "float32")
    advantages = rewards - ops.softplus(-ops.stop_gradient(logits))
    total, *_ = head.loss(
        hidden,
        sampled,
        weights * advantages,
        training=training,
        excluded_token_ids=excluded_token_ids,
    )
    misfit = ops.softplus(logits) - ops.exp(-rewards) * logits
    total = total + ops.sum(weights * misfit)
    return mean_loss(total, weights if count is None else count)


def reward_baseline(generator):
    """The layer that predicts rewards from a generator's hidden states, built."""
    layer = keras.layers.Dense(
        1,
        kernel_initializer="zeros",
        dtype=generator.dtype_policy,
        name="reward_baseline",
    )
    layer.build(generator.output_shape)
    return layer


def check_policy_samples(objective):
    """Raise unless samples are those of the softmax that is trained."""
    sampler = objective.token_sampler
    fixed = {
        "temperature": (sampler.temperature, 1.0),
        "disallow_correct": (sampler.disallow_correct, False),
        "sampling_dropout": (objective.sampling_dropout, True),
    }
    for name, (received, wanted) in fixed.items():
        if received != wanted:
            raise ValueError(
                "With `adversarial=True` the generator is trained on its own samples: "
                f"{name} must be {wanted}. Received: {name}={received}"
            )
    if not objective.generator_weight:
        raise ValueError(
            "With `adversarial=True` the generator must learn: neither "
            "generator_weight=0.0 nor fixed counts."
        )
