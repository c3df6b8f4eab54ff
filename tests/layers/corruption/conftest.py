"""Every masker gives the same integers by every entry point, backend and jit mode."""

import keras
import numpy as np
import pytest
from keras import ops

NAMES = ("token_ids", "padding_mask", "word_ids")


def rows(seed=0, batch=8, length=32, vocabulary_size=100, lowest=5):
    """Random rows of every length class, with their padding and words."""
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(lowest, vocabulary_size, (batch, length))
    real = np.concatenate([[0, 1, 2, 3, length], rng.integers(0, length, batch)])
    padding_mask = np.arange(length) < real[:batch, None]
    word_ids = np.cumsum(rng.random((batch, length)) < 0.5, axis=-1)
    return {
        "token_ids": np.where(padding_mask, token_ids, 0).astype("int32"),
        "padding_mask": padding_mask,
        "word_ids": word_ids.astype("int32"),
    }


def compiled(layer, training):
    """The layer as one compiled function of its inputs, as `fit` would compile it."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(
            lambda inputs: layer(**inputs, training=training), jit_compile=True
        )
    if keras.backend.backend() == "jax":
        import jax

        def call(inputs, state):
            return layer.stateless_call([], state, **inputs, training=training)

        def step(inputs):
            state = [v.value for v in layer.non_trainable_variables]
            outputs, state = jax.jit(call)(inputs, state)
            for variable, value in zip(
                layer.non_trainable_variables, state, strict=True
            ):
                variable.assign(value)
            return outputs

        return step
    return lambda inputs: layer(**inputs, training=training)


def assert_equal(outputs, expected):
    assert set(outputs) >= set(expected)
    for name, array in expected.items():
        got = ops.convert_to_numpy(outputs[name])
        assert got.dtype == array.dtype, name
        np.testing.assert_array_equal(got, array, err_msg=name)


@pytest.fixture
def random_rows():
    return rows


@pytest.fixture
def assert_doors_agree():
    """Checks the compiled layer, `tf_map` and the declared shapes against `numpy`.

    The eager layer runs too with `eager=True`; JAX takes seconds for that.
    """

    def check(masker, inputs, eager=False):
        names = masker._input_names()
        inputs = {name: inputs[name] for name in names if name in inputs}
        fixed = masker.numpy(**inputs, key=masker.seed)
        fresh = masker.numpy(**inputs, key=(masker.seed, 1))
        symbols = {
            k: keras.Input(v.shape[1:], None, v.dtype) for k, v in inputs.items()
        }
        spec = {k: (v.shape[1:], v.dtype) for k, v in masker(**symbols).items()}
        assert spec == {k: (v.shape[1:], v.dtype.name) for k, v in fixed.items()}

        tensors = {k: ops.convert_to_tensor(v) for k, v in inputs.items()}
        assert_equal(compiled(masker, training=True)(tensors), fresh)
        assert ops.convert_to_numpy(masker.state).tolist() == [masker.seed, 1]
        if eager:
            assert_equal(masker(**tensors), fixed)

        clone = type(masker).from_config(masker.get_config())
        assert_equal(clone.numpy(**inputs), fixed)

        tf = pytest.importorskip("tensorflow")
        rows = tf.data.Dataset.from_tensor_slices(inputs)
        fresh_rows = rows.map(masker.tf_map((masker.seed, 1))).batch(99)
        assert_equal({k: v.numpy() for k, v in next(iter(fresh_rows)).items()}, fresh)
        fixed_batches = rows.batch(99).map(masker.tf_map())
        assert_equal(
            {k: v.numpy() for k, v in next(iter(fixed_batches)).items()}, fixed
        )

    return check
