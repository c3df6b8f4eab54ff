"""Derivatives on every backend."""

import keras
import numpy as np

# Keras compiles by itself on these; PyTorch runs eagerly unless told otherwise.
JIT = (False,) if keras.backend.backend() == "torch" else (False, True)


def jacobian(function, jit=False):
    """The derivative of `function(x, *constants)` with respect to `x`.

    Args:
        function: takes tensors, returns a tensor.
        jit: compile, with XLA.

    Returns:
        A function of NumPy arrays that gives a NumPy array, the axes of the result
        before those of `x`.
    """
    derive = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}
    derivative = derive[keras.backend.backend()](function, jit)

    def call(*arrays):
        tensors = map(keras.ops.convert_to_tensor, arrays)
        return keras.ops.convert_to_numpy(derivative(*tensors))

    return call


def _jax(function, jit):
    import jax

    derivative = jax.jacrev(function)
    return jax.jit(derivative) if jit else derivative


def _tensorflow(function, jit):
    import tensorflow as tf

    def at_once(x, *constants):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = function(x, *constants)
        return tape.jacobian(result, x)

    def one_by_one(x, *constants):
        # Tracing `jacobian` takes longer than these few passes.
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            result = function(x, *constants)
            parts = tf.unstack(tf.reshape(result, [-1]))
        rows = [tape.gradient(part, x) for part in parts]
        return tf.reshape(tf.stack(rows), [*result.shape, *x.shape])

    return tf.function(at_once, jit_compile=True) if jit else one_by_one


def _torch(function, jit):
    import torch

    assert not jit

    def derivative(x, *constants):
        return torch.autograd.functional.jacobian(
            lambda x: function(x, *constants), x, vectorize=True
        )

    return derivative


def project(hidden):
    """Hidden states (L, B, T, D) as (L, T): to be differentiated in fewer passes.

    Features are weighed by one vector drawn at random: zeros stay zeros, and other
    derivatives do not cancel. Rows are summed: a row that saw another row's tokens
    would be found where nobody is to see them.
    """
    weights = np.random.default_rng(0).normal(size=hidden.shape[-1])
    hidden = keras.ops.cast(hidden, "float32")
    hidden = keras.ops.multiply(hidden, weights.astype("float32"))
    return keras.ops.sum(hidden, axis=(1, 3))


def support(derivative):
    """Where the derivative of `project(...)` by x (B, S, D) is not exactly zero.

    Returns (L, B, T, S).
    """
    assert np.all(np.isfinite(derivative))
    return np.any(derivative != 0, axis=-1).swapaxes(1, 2)


def weight_gradients(function, weights):
    """The derivatives of `function()`, a scalar, with respect to Keras variables."""
    derive = {
        "jax": jax_weight_gradients,
        "tensorflow": _tensorflow_weight_gradients,
        "torch": _torch_weight_gradients,
    }
    gradients = derive[keras.backend.backend()](function, weights)
    return [keras.ops.convert_to_numpy(gradient) for gradient in gradients]


def jax_weight_gradients(function, weights):
    import jax

    def stateless(values):
        mapping = list(zip(weights, values, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function()

    return jax.jit(jax.grad(stateless))([weight.value for weight in weights])


def _tensorflow_weight_gradients(function, weights):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        result = function()
    gradients = tape.gradient(
        result,
        [weight.value for weight in weights],
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return [tf.convert_to_tensor(gradient) for gradient in gradients]


def _torch_weight_gradients(function, weights):
    import torch

    values = [weight.value for weight in weights]
    return torch.autograd.grad(function(), values, materialize_grads=True)
