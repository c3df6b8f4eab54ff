import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.training import WarmupLinearDecay


def rates(schedule, steps):
    return [float(ops.convert_to_numpy(schedule(step))) for step in steps]


def test_the_warm_up_overrides_the_decay():
    schedule = WarmupLinearDecay(1.0, warmup_steps=10, total_steps=100)
    expected = [0.0, 0.1, 0.9, 0.9, 0.5, 0.01, 0.0, 0.0]
    steps = [0, 1, 9, 10, 50, 99, 100, 1000]
    np.testing.assert_allclose(rates(schedule, steps), expected, atol=1e-7)


def test_the_official_readme_values():
    schedule = WarmupLinearDecay(1e-4, warmup_steps=50_000, total_steps=2_000_000)
    before, after = rates(schedule, [49_999, 50_000])
    assert before == pytest.approx(1e-4 * 49_999 / 50_000)
    assert after == pytest.approx(9.75e-5)


def test_the_warm_up_multiplies_the_decay():
    schedule = WarmupLinearDecay(
        1.0, warmup_steps=10, total_steps=100, warmup="multiply"
    )
    expected = [0.0, 0.1 * 0.99, 0.9 * 0.91, 0.9, 0.5, 0.0, 0.0]
    np.testing.assert_allclose(
        rates(schedule, [0, 1, 9, 10, 50, 100, 101]), expected, atol=1e-7
    )


@pytest.mark.parametrize("warmup", ["override", "multiply"])
def test_no_warm_up(warmup):
    schedule = WarmupLinearDecay(1.0, 0, 4, warmup=warmup)
    np.testing.assert_allclose(rates(schedule, [0, 1, 4]), [1.0, 0.75, 0.0])


def test_a_later_start():
    schedule = WarmupLinearDecay(1.0, 2, 4, start_step=2**24)
    steps = [2**24 - 1, 2**24, 2**24 + 1, 2**24 + 2, 2**24 + 3, 2**24 + 4]
    np.testing.assert_allclose(rates(schedule, steps), [0.0, 0.0, 0.5, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_optimizer_follows_it(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("Keras does not compile PyTorch unasked; it takes half a minute.")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((1, 1))])
    # The gradient of this loss is always 1: the weight sums the rates.
    model.compile(
        keras.optimizers.SGD(WarmupLinearDecay(1.0, 2, 8)),
        loss=lambda y, prediction: prediction,
        jit_compile=jit_compile,
    )
    model.fit(np.ones((8, 1)), np.ones((8, 1)), batch_size=1, verbose=0)
    expected = 0 + 1 / 2 + (6 + 5 + 4 + 3 + 2 + 1) / 8
    assert -float(model.get_weights()[0][0, 0]) == pytest.approx(expected, abs=1e-6)


def test_config_round_trip():
    schedule = WarmupLinearDecay(1e-3, 5, 50, start_step=2, warmup="multiply", name="s")
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    assert type(again) is WarmupLinearDecay
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((-1.0, 1, 10), "peak_learning_rate"),
        ((1.0, 1, 0), "total_steps"),
        ((1.0, -1, 10), "warmup_steps"),
        ((1.0, 11, 10), "warmup_steps"),
        ((1.0, 1, 10, -1), "start_step"),
        ((1.0, 1, 10, 0, "cosine"), "warmup"),
    ],
)
def test_bad_numbers_are_named(arguments, named):
    with pytest.raises(ValueError, match=f"`{named}`.* must.*Received: {named}="):
        WarmupLinearDecay(*arguments)
