"""Training by `fit`: from every source of data, by every optimizer, and on."""

from unittest.mock import patch

import keras
import numpy as np
import pytest

from keras_tta.data import TokenBatches
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.training import AdamWeightDecay

BACKEND = keras.backend.backend()
# XLA takes seconds to compile a step; TensorFlow's own graphs do not.
QUICKLY = {"jit_compile": BACKEND == "jax"}

BATCH_SIZE, STEPS = 4, 3
draw = np.random.default_rng(0)
LENGTHS = draw.integers(0, 6, (BATCH_SIZE * STEPS, 1))
PADDING_MASK = np.arange(5) < LENGTHS
DATA = {
    "token_ids": (draw.integers(5, 12, PADDING_MASK.shape) * PADDING_MASK).astype(
        "int32"
    ),
    "padding_mask": PADDING_MASK,
}


def make(dtype=None, dropout=0.0):
    keras.utils.set_random_seed(1)
    return LanguageAutoencoder(
        TTABackbone(
            vocabulary_size=12,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=12,
            max_sequence_length=5,
            dropout=dropout,
            dtype=dtype,
        )
    )


def fit(pretrainer, x=DATA, **options):
    if isinstance(x, dict):
        options = {"batch_size": BATCH_SIZE, "shuffle": False, **options}
    return pretrainer.fit(x, verbose=0, **options).history


def batches():
    for start in range(0, len(LENGTHS), BATCH_SIZE):
        yield {name: x[start : start + BATCH_SIZE] for name, x in DATA.items()}


def from_numpy():
    return DATA


def from_tf_data():
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(DATA).batch(BATCH_SIZE)


def from_grain():
    grain = pytest.importorskip("grain")
    rows = [{name: x[i] for name, x in DATA.items()} for i in range(len(LENGTHS))]
    return grain.MapDataset.source(rows).batch(BATCH_SIZE)


def from_grain_iterator():
    return from_grain().to_iter_dataset()


def from_py_dataset():
    class Rows(keras.utils.PyDataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            return list(batches())[index]

    return Rows()


def from_torch():
    data = pytest.importorskip("torch.utils.data")
    rows = [{name: x[i] for name, x in DATA.items()} for i in range(len(LENGTHS))]
    return data.DataLoader(rows, batch_size=BATCH_SIZE)


def from_generator():
    return ((batch,) for batch in batches())


def slow_on_jax(test):
    """JAX without jit compiles every operation by itself."""
    return pytest.mark.slow(test) if BACKEND == "jax" else test


@pytest.fixture(scope="module")
def plain():
    """A pretrainer on a plain optimizer without state, and its weights."""
    pretrainer = make()
    pretrainer.compile(keras.optimizers.SGD(0.5))
    return pretrainer, pretrainer.get_weights()


@pytest.mark.parametrize(
    "source",
    [
        from_tf_data,
        from_grain,
        from_grain_iterator,
        from_py_dataset,
        from_torch,
        from_generator,
    ],
)
def test_every_source_teaches_the_same(plain, source):
    pretrainer, start = plain
    results = []
    for data in (DATA, source()):
        pretrainer.set_weights(start)
        history = fit(pretrainer, data)
        results.append((history, pretrainer.get_weights()))
    (history, weights), (other_history, other_weights) = results
    assert history["tokens"] == [PADDING_MASK.sum()]
    for name, value in history.items():
        np.testing.assert_allclose(other_history[name], value, rtol=1e-5)
    for ours, theirs in zip(weights, other_weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_every_weight_learns(plain):
    pretrainer, start = plain
    pretrainer.set_weights(start)
    fit(pretrainer)
    for weight, before in zip(pretrainer.weights, start, strict=True):
        after = keras.ops.convert_to_numpy(weight)
        assert not np.array_equal(after, before), weight.path


def test_validation(plain):
    pretrainer, start = plain
    pretrainer.set_weights(start)
    validation = from_torch()
    history = fit(pretrainer, validation_data=validation)
    figures = pretrainer.evaluate(validation, verbose=0, return_dict=True)
    for name in ("nats_per_token", "accuracy", "pseudo_perplexity", "tokens"):
        np.testing.assert_allclose(history[f"val_{name}"], figures[name], rtol=1e-5)


def test_the_official_recipe_on_the_length_of_fit():
    pretrainer = make()
    pretrainer.compile(learning_rate=2e-3, warmup=0.5, **QUICKLY)
    assert isinstance(pretrainer.optimizer, AdamWeightDecay)
    assert pretrainer.optimizer.weight_decay == 0.01
    assert pretrainer.optimizer.global_clipnorm == 1.0
    rates = []

    class Rates(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

    fit(pretrainer, epochs=2, callbacks=[Rates()])
    warm, total = STEPS, 2 * STEPS
    expected = [step / warm for step in range(warm)]
    expected += [1 - step / total for step in range(warm, total)]
    np.testing.assert_allclose(rates, 2e-3 * np.array(expected), rtol=1e-4)
    assert float(pretrainer.optimizer.learning_rate) == 0.0

    # A second `fit` begins anew; one that is told what was done goes on.
    assert schedule_of_fit(pretrainer, epochs=1) == (total, STEPS)
    assert schedule_of_fit(pretrainer, epochs=4, initial_epoch=2) == (0, 4 * STEPS)


def schedule_of_fit(pretrainer, x=DATA, **options):
    """Start and length of the schedule that `fit` makes, without training."""
    with patch.object(keras.Model, "fit") as training:
        training.return_value.history = {}
        fit(pretrainer, x, **options)
    assert training.called
    schedule = pretrainer.optimizer._learning_rate
    return schedule.start_step, schedule.total_steps


def test_a_schedule_of_a_length_of_ones_own():
    pretrainer = make()
    pretrainer.compile(total_steps=100, warmup=10)
    assert pretrainer.optimizer._learning_rate.warmup_steps == 10
    assert schedule_of_fit(pretrainer, epochs=7) == (0, 100)
    assert schedule_of_fit(pretrainer, from_generator()) == (0, 100)


def test_a_schedule_of_unknown_length_is_refused():
    pretrainer = make()
    pretrainer.compile()
    message = "steps_per_epoch.*total_steps.*optimizer of your own"
    for data in (from_generator(), from_grain_iterator()):
        with pytest.raises(ValueError, match=message):
            fit(pretrainer, data)
    with pytest.raises(ValueError, match=message):
        pretrainer.train_on_batch(next(batches()))
    schedule = schedule_of_fit(pretrainer, from_generator(), steps_per_epoch=2)
    assert schedule == (0, 2)


@pytest.mark.parametrize(
    "source, options",
    [
        (from_numpy, {}),
        (from_numpy, {"validation_split": 0.25, "steps": 3}),
        (from_tf_data, {}),
        (from_grain, {}),
        (from_py_dataset, {}),
        (from_torch, {}),
    ],
)
def test_the_schedule_is_as_long_as_the_data(source, options):
    pretrainer = make()
    pretrainer.compile()
    steps = options.pop("steps", STEPS)
    schedule = schedule_of_fit(pretrainer, source(), epochs=2, **options)
    assert schedule == (0, 2 * steps)


def test_any_optimizer():
    pretrainer = make()
    before = pretrainer.get_weights()
    pretrainer.compile(keras.optimizers.Muon(0.01), **QUICKLY)
    history = fit(pretrainer, from_generator())
    assert np.isfinite(history["loss"]).all()
    for weight, start in zip(pretrainer.weights, before, strict=True):
        after = keras.ops.convert_to_numpy(weight)
        assert not np.array_equal(after, start), weight.path


@slow_on_jax
def test_low_precision_weights_are_refused():
    with pytest.raises(ValueError, match="half precision.*mixed_bfloat16"):
        make("bfloat16").compile()


def test_mixed_precision_trains():
    pretrainer = make("mixed_bfloat16", dropout=0.1)
    pretrainer.compile(learning_rate=1e-2, **QUICKLY)
    history = fit(pretrainer, epochs=4)
    assert history["nats_per_token"][-1] < history["nats_per_token"][0]
    assert {weight.dtype for weight in pretrainer.trainable_weights} == {"float32"}


@slow_on_jax
def test_training_is_the_same_without_jit(plain):
    pretrainer, start = plain
    pretrainer.set_weights(start)
    expected = fit(pretrainer)
    other = make()
    other.set_weights(start)
    other.compile(keras.optimizers.SGD(0.5), jit_compile=False)
    for name, value in fit(other).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4)


def test_a_saved_pretrainer_trains_on(tmp_path):
    """Weights, optimizer, schedule and step: as if it had never stopped."""
    pretrainer = make()
    pretrainer.compile(total_steps=4 * STEPS, learning_rate=1e-2, **QUICKLY)
    fit(pretrainer)
    pretrainer.save(tmp_path / "pretrainer.keras")
    again = keras.saving.load_model(tmp_path / "pretrainer.keras")
    assert type(again) is LanguageAutoencoder
    assert_same_optimizer(again, pretrainer)
    assert again.optimizer._learning_rate.total_steps == 4 * STEPS
    histories = [fit(model) for model in (pretrainer, again)]
    for name, value in histories[0].items():
        np.testing.assert_allclose(histories[1][name], value, rtol=1e-5)
    pairs = zip(pretrainer.get_weights(), again.get_weights(), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-7)


def test_a_saved_pretrainer_keeps_an_optimizer_of_ones_own(tmp_path):
    pretrainer = make()
    pretrainer.compile(keras.optimizers.Adam(3e-3))
    pretrainer.optimizer.build(pretrainer.trainable_variables)
    for variable in pretrainer.optimizer.variables:
        variable.assign(keras.ops.full(variable.shape, STEPS, variable.dtype))
    pretrainer.optimizer.learning_rate = 3e-3
    pretrainer.save(tmp_path / "pretrainer.keras")
    again = keras.saving.load_model(tmp_path / "pretrainer.keras")
    assert_same_optimizer(again, pretrainer)


def assert_same_optimizer(again, pretrainer):
    ours, theirs = pretrainer.optimizer, again.optimizer
    assert type(ours) is type(theirs)
    # Keras numbers the names.
    assert {**theirs.get_config(), "name": ""} == {**ours.get_config(), "name": ""}
    assert int(theirs.iterations) == STEPS
    for variable, expected in zip(theirs.variables, ours.variables, strict=True):
        result = keras.ops.convert_to_numpy(variable)
        np.testing.assert_array_equal(result, keras.ops.convert_to_numpy(expected))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.full((2, 5), 12)}, r"token_ids\[0, 0\]=12, and 9 more"),
        ({"token_ids": np.full((2, 5), -1)}, r"token_ids\[0, 0\]=-1"),
        ({"token_ids": np.ones((2, 6))}, "at most max_sequence_length=5"),
        ({"token_ids": np.ones(5)}, r"shape \(B, T\)"),
    ],
)
def test_bad_arrays_are_refused_before_they_cost_the_weights(plain, change, message):
    pretrainer, _ = plain
    for use in (pretrainer.fit, pretrainer.evaluate):
        with pytest.raises(ValueError, match=message):
            use({"padding_mask": np.ones((2, 5)), **change}, verbose=0)


def test_a_mask_is_a_mask_whatever_its_numbers():
    pretrainer = make()
    pretrainer.compile(total_steps=1, **QUICKLY)
    expected = pretrainer.evaluate(DATA, batch_size=BATCH_SIZE, verbose=0)
    x = {**DATA, "padding_mask": -3 * DATA["padding_mask"].astype("int32")}
    found = pretrainer.evaluate(x, batch_size=BATCH_SIZE, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX multiplies no float16 on CPUs.")
@pytest.mark.parametrize("options", [{}, {"total_steps": 2 * STEPS}])
def test_the_recipe_in_float16(options):
    keras.config.set_dtype_policy("mixed_float16")
    pretrainer = make()
    pretrainer.compile(jit_compile=False, **options)
    fit(pretrainer, epochs=2)
    schedule = pretrainer.optimizer.inner_optimizer._learning_rate
    assert schedule.get_config()["total_steps"] == 2 * STEPS


@pytest.mark.skipif(BACKEND == "jax", reason="JAX multiplies no float16 on CPUs.")
def test_a_schedule_of_unknown_length_is_refused_in_float16():
    keras.config.set_dtype_policy("mixed_float16")
    pretrainer = make()
    pretrainer.compile()
    with pytest.raises(ValueError, match="how long the training is"):
        pretrainer.train_on_batch(next(batches()))


def test_batches_in_training_are_not_validated_on():
    rows = [[7, 8, 9]] * 8
    batches = TokenBatches(rows, batch_size=4, sequence_length=5)
    pretrainer = make()
    pretrainer.compile(**QUICKLY)
    with pytest.raises(ValueError, match="another `TokenBatches`"):
        pretrainer.fit(batches, validation_data=batches, verbose=0)
