"""A step whose gradients are no numbers changes nothing, and is told."""

import keras
import numpy as np
import pytest

from keras_tta.training import AdamWeightDecay, NonFiniteGuard, TrainingCheckpoint

BACKEND = keras.backend.backend()
STEPS = 20


class Numbers(keras.utils.PyDataset):
    """Batches of numbers; those of some steps are NaN."""

    def __init__(self, bad=(), steps=range(STEPS)):
        super().__init__()
        self.bad, self.steps = bad, steps

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, index):
        step = self.steps[index]
        x = np.random.default_rng(step).normal(size=(4, 3)).astype("float32")
        y = x.sum(axis=1, keepdims=True)
        return (x * np.nan if step in self.bad else x), y


def make_model(optimizer, jit_compile="auto", policy=None):
    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(4, dtype=policy)
    model = keras.Sequential([keras.Input((3,)), hidden, keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse", jit_compile=jit_compile)
    return model


def fit(model, data, *callbacks, epochs=1):
    history = model.fit(
        data, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks]
    )
    return model.get_weights(), history.history


OPTIMIZERS = [
    lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    lambda: keras.optimizers.SGD(0.01, use_ema=True),
    lambda: AdamWeightDecay(0.01),
]


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS, ids=["sgd", "ema", "ours"])
def test_a_skipped_step_was_never_made(make_optimizer):
    bad = {3, 4, 11}
    good = Numbers(steps=[step for step in range(STEPS) if step not in bad])
    expected, _ = fit(make_model(make_optimizer()), good)
    model = make_model(make_optimizer())
    with pytest.warns(UserWarning, match="gradients of 3 steps .*: 3, 4, 11"):
        found, history = fit(model, Numbers(bad), NonFiniteGuard(patience=50))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    assert history["skipped_steps"] == [3]
    assert int(model.optimizer.iterations) == STEPS


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "torch", reason="Keras compiles PyTorch unasked never.")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_with_and_without_compilation(jit_compile):
    model = make_model(AdamWeightDecay(0.01), jit_compile)
    with pytest.warns(UserWarning, match="gradients of 2 steps .*: 3, 11"):
        weights, _ = fit(model, Numbers({3, 11}), NonFiniteGuard(patience=50))
    assert all(np.isfinite(weight).all() for weight in weights)


def test_in_half_precision():
    model = make_model(AdamWeightDecay(0.01), policy="mixed_bfloat16")
    with pytest.warns(UserWarning, match="gradients of 1 steps .*: 3"):
        weights, _ = fit(model, Numbers({3}), NonFiniteGuard())
    assert all(np.isfinite(weight).all() for weight in weights)


def test_accumulated_gradients_stay_numbers():
    model = make_model(keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))
    with pytest.warns(UserWarning, match="gradients of 1 steps .*: 3"):
        weights, history = fit(model, Numbers({3}), NonFiniteGuard(), epochs=1)
    assert history["skipped_steps"] == [1]
    assert all(np.isfinite(weight).all() for weight in weights)
    # The other batch of its group counts half, as it would have beside one of zeros.
    zeros = make_model(keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))
    data = Numbers()
    get = data.__class__.__getitem__

    class Zeros(Numbers):
        def __getitem__(self, index):
            x, y = get(self, index)
            return (x * 0, y * 0) if index == 3 else (x, y)

    expected, _ = fit(zeros, Zeros())
    for a, b in zip(weights[:1], expected[:1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_a_sound_training_is_left_alone():
    expected, _ = fit(make_model("adam"), Numbers())
    found, history = fit(make_model("adam"), Numbers(), NonFiniteGuard())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert history["skipped_steps"] == [0]


def test_spoilt_metrics_begin_anew():
    with pytest.warns(UserWarning, match="gradients of 1 steps"):
        _, history = fit(
            make_model("adam"), Numbers({3}), NonFiniteGuard(patience=5), epochs=2
        )
    assert np.isfinite(history["loss"]).all()
    assert history["skipped_steps"] == [1, 1]


def test_after_many_in_a_row_training_goes_back_and_past_them(tmp_path):
    model = make_model(keras.optimizers.SGD(0.01))
    checkpoint = TrainingCheckpoint(tmp_path, every_steps=1)
    fit(model, Numbers(), checkpoint)
    (saved,) = tmp_path.glob("step-*")

    spoilt = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: model.layers[0].kernel.assign(
            np.full((3, 4), np.nan)
        )
    )
    guard = NonFiniteGuard(checkpoint, patience=4)
    with pytest.warns(UserWarning, match="those of step 20 again"):
        weights, history = fit(model, Numbers(), checkpoint, spoilt, guard, epochs=2)
    assert history["skipped_steps"] == [4]
    assert int(model.optimizer.iterations) == 2 * STEPS
    # The state of step 20, and the steps of the epoch past the first four.
    again = make_model(keras.optimizers.SGD(0.01))
    fit(again, Numbers())
    expected, _ = fit(again, Numbers(steps=range(4, STEPS)))
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_what_does_not_recover_stops(tmp_path):
    model = make_model("adam")
    checkpoint = TrainingCheckpoint(tmp_path, every_steps=1)
    guard = NonFiniteGuard(checkpoint, patience=4)
    with pytest.raises(FloatingPointError, match="steps in a row had gradients"):
        with pytest.warns(UserWarning):
            fit(model, Numbers(range(10, 40)), checkpoint, guard)


def test_what_it_cannot_guard_is_refused():
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="leave the guard out"):
        fit(make_model(optimizer), Numbers(), NonFiniteGuard())
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    for patience in (0, 1.5):
        with pytest.raises(ValueError, match="`patience` .* positive integer"):
            NonFiniteGuard(patience=patience)
    with pytest.raises(ValueError, match="must be the `TrainingCheckpoint`.*'folder'"):
        NonFiniteGuard("folder")
