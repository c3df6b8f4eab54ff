"""Several small batches and one update are one large batch, token by token."""

import keras
import numpy as np
import pytest

from keras_tta.data import TokenBatches
from keras_tta.layers import TokenMasking
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import (
    CausalLM,
    LanguageAutoencoder,
    MaskedLM,
    ReplacedTokenDetection,
)
from keras_tta.pretraining.gradient_accumulation import MicroBatches
from keras_tta.visibility import Causal

GROUP, LENGTH = 3, 8
BACKEND = keras.backend.backend()
# XLA takes seconds to compile a step; TensorFlow's own graphs do not.
QUICKLY = {"jit_compile": BACKEND == "jax"}
SLOW_WHERE_COMPILED = () if BACKEND == "torch" else pytest.mark.slow
SIZE = {
    "vocabulary_size": 20,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": LENGTH,
    "dropout": 0.0,
}
MASKING = {"vocabulary_size": 20, "mask_token_id": 4, "special_token_ids": (0, 1, 3)}
draw = np.random.default_rng(0)
# From one token a row to six: a mean of means would be another number.
SEQUENCES = [draw.integers(5, 20, 1 + i // 4) for i in range(24)]


def batches(batch_size=4, **options):
    return TokenBatches(SEQUENCES, batch_size, LENGTH, shuffle=False, **options)


def tta(**options):
    return LanguageAutoencoder(TTABackbone(**SIZE), **options)


def mlm(**options):
    masking = TokenMasking(**MASKING, mask_rate=0.4)
    return MaskedLM(TransformerBackbone(**SIZE), masking, **options)


def electra(**options):
    masking = TokenMasking(**MASKING, mask_rate=0.4, count_specials=True)
    generator = TransformerBackbone(
        **{**SIZE, "num_heads": 1, "hidden_dim": 4}, embedding_dim=8
    )
    discriminator = TransformerBackbone(**SIZE)
    return ReplacedTokenDetection(generator, discriminator, masking, **options)


def pair(make):
    """One that accumulates and one that does not, with the same weights."""
    models = make(), make()
    models[1].set_weights(models[0].get_weights())
    for model, steps in zip(models, (GROUP, None), strict=True):
        optimizer = keras.optimizers.SGD(
            0.03, momentum=0.9, gradient_accumulation_steps=steps
        )
        model.compile(optimizer, **QUICKLY)
    return models


def assert_same_weights(model, other):
    for weight, expected in zip(model.weights, other.weights, strict=True):
        if "seed_and_step" not in weight.path:
            result = keras.ops.convert_to_numpy(weight)
            expected = keras.ops.convert_to_numpy(expected)
            np.testing.assert_allclose(result, expected, atol=1e-6, err_msg=weight.path)


def set_step(model, step):
    """Corrupt the next batch as in training step `step`."""
    for weight in model.weights:
        if "seed_and_step" in weight.path:
            seed = keras.ops.convert_to_numpy(weight)[0]
            weight.assign(np.array([seed, step], weight.dtype))


def test_fit_on_small_batches_is_fit_on_large_ones():
    small, large = pair(tta)
    start = small.get_weights()
    histories = [
        model.fit(data, epochs=2, verbose=0).history
        for model, data in ((small, batches()), (large, batches(4 * GROUP)))
    ]
    for name in ("loss", "nats_per_token", "accuracy", "tokens"):
        np.testing.assert_allclose(histories[0][name], histories[1][name], rtol=1e-5)
    assert_same_weights(small, large)
    assert int(small.optimizer.iterations) == 4
    assert np.abs(small.get_weights()[0] - start[0]).max() > 1e-3


@pytest.mark.parametrize(
    "make", [mlm, pytest.param(electra, marks=SLOW_WHERE_COMPILED)]
)
def test_small_batches_are_a_large_one(make):
    small, large = pair(make)
    parts = MicroBatches(batches(), GROUP, small.loss_counts)
    for update in range(2):
        steps = range(GROUP * update, GROUP * (update + 1))
        for step in steps:
            set_step(small, update)
            small.train_on_batch(*parts.batch(step))
        set_step(large, update)
        whole = [parts.batch(step)[0] for step in steps]
        large.train_on_batch(
            {name: np.concatenate([x[name] for x in whole]) for name in whole[0]}
        )
    assert_same_weights(small, large)


@pytest.mark.parametrize("workers", [1, 2])
def test_denominators_are_the_groups(workers):
    options = {"bucket_lengths": (4, 6), "workers": workers}
    parts = MicroBatches(
        batches(**options), GROUP, lambda x: {"tokens": x["padding_mask"].sum(1)}
    )
    uneven = set()
    for group in range(5):
        steps = range(GROUP * group, GROUP * (group + 1))
        pairs = [parts.batch(step) for step in steps]
        for step, (x, _) in zip(steps, pairs, strict=True):
            (expected,) = batches(**options).batch(step)
            np.testing.assert_array_equal(x["token_ids"], expected["token_ids"])
        count = sum(x["padding_mask"].sum() for x, _ in pairs)
        for x, y in pairs:
            assert y["tokens"].shape == x["token_ids"].shape[:1]
            assert np.isclose(y["tokens"].sum() * GROUP, count)
        uneven |= {x["token_ids"].shape for x, _ in pairs}
    assert len(uneven) > 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"count_specials": True},
        {"max_predictions": 2, "mask_rate": 0.5},
        {"span_p": 0.3, "mask_rate": 0.3},
    ],
)
@pytest.mark.agnostic
def test_masked_tokens_are_counted_before_they_are_drawn(options):
    masking = TokenMasking(**MASKING, **options)
    (x,) = batches(24).batch(0)
    masked = masking.numpy(x["token_ids"], x["padding_mask"], key=3)
    np.testing.assert_array_equal(
        masking.count_masked(x["token_ids"], x["padding_mask"]),
        masked["sample_weight"].sum(axis=1),
    )


def causal(**options):
    backbone = TransformerBackbone(**SIZE, visibility=Causal())
    return CausalLM(backbone, **options)


@pytest.mark.parametrize("options", [{"packed": True}, {"normalization": "positions"}])
@pytest.mark.parametrize("make", [tta, causal, mlm])
def test_counts_are_those_of_the_graph(make, options):
    pretrainer = make(**options)
    (x,) = batches(packed="packed" in options).batch(0)
    weights = keras.Model(pretrainer.input, pretrainer.output["weights"])(x)
    weights = keras.ops.convert_to_numpy(weights).astype("float32")
    if pretrainer.normalization == "positions":
        weights = np.ones_like(weights)
    counts = pretrainer.loss_counts(x)["tokens"]
    np.testing.assert_array_equal(counts, weights.sum(axis=1))


def test_electra_counts_what_its_discriminator_reads():
    (x,) = batches(24).batch(0)
    counts = electra().loss_counts(x)
    real = x["padding_mask"].sum(axis=1)
    np.testing.assert_array_equal(counts["discriminator_tokens"], real)
    counts = electra(loss_positions="masked").loss_counts(x)
    np.testing.assert_array_equal(counts["discriminator_tokens"], counts["tokens"])


def test_what_would_be_a_mean_of_means_is_refused():
    pretrainer = tta()
    pretrainer.compile(total_steps=8, gradient_accumulation_steps=2)
    (x,) = batches().batch(0)
    with pytest.raises(ValueError, match="TokenBatches.*Received: a dict"):
        pretrainer.fit(x, verbose=0)
    with pytest.raises(ValueError, match="a batch comes with its share"):
        pretrainer.train_on_batch(x)
    with pytest.raises(ValueError, match="go on at batch 3.*first_step=0"):
        pretrainer.fit(batches(first_step=3), verbose=0)
    with pytest.raises(ValueError, match="without `sample_weight`"):
        y = {"tokens": np.ones(4, "float32")}
        pretrainer.train_on_batch(x, y, np.ones(4, "float32"))
    with pytest.raises(ValueError, match="either an optimizer or.*accumulation"):
        pretrainer.compile(keras.optimizers.SGD(), gradient_accumulation_steps=2)

    whole_words = TokenMasking(**MASKING, whole_word=True)
    pretrainer = MaskedLM(TransformerBackbone(**SIZE), whole_words)
    pretrainer.compile(gradient_accumulation_steps=2)
    starts = np.ones(20, bool)
    with pytest.raises(ValueError, match="only once words are drawn.*larger batches"):
        pretrainer.fit(batches(word_starts=starts), verbose=0)


def test_the_recipe_accumulates_and_is_saved():
    pretrainer = tta()
    pretrainer.compile(gradient_accumulation_steps=2)
    config = pretrainer.get_compile_config()
    other = tta()
    other.compile_from_config(config)
    assert other.optimizer.gradient_accumulation_steps == 2
