import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.training import AdamWeightDecay, WarmupLinearDecay

DECAYED = (True, False, True)


def reference_steps(weights, gradients, rates, weight_decay=0.01, clip=1.0):
    """The official update in float64: what every backend is held against."""
    weights = [w.astype("float64") for w in weights]
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for step_gradients, rate in zip(gradients, rates, strict=True):
        norm = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in step_gradients))
        for i, g in enumerate(step_gradients):
            g = g.astype("float64") * min(1.0, clip / norm)
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            update = m[i] / (np.sqrt(v[i]) + 1e-6)
            if DECAYED[i]:
                update += weight_decay * weights[i]
            weights[i] -= rate * update
    return weights


def make_variables():
    rng = np.random.default_rng(0)
    values = [
        rng.normal(size=shape).astype("float32") for shape in ((4, 3), (3,), (5,))
    ]
    names = ("kernel", "bias", "embeddings")
    variables = [
        keras.Variable(value, name=name)
        for value, name in zip(values, names, strict=True)
    ]
    gradients = [
        [rng.normal(scale=scale, size=w.shape).astype("float32") for w in values]
        for scale in (3.0, 0.01, 1.0, 0.1, 2.0, 0.3)
    ]
    return values, variables, gradients


def test_updates_are_the_official_ones():
    values, variables, gradients = make_variables()
    schedule = WarmupLinearDecay(1e-2, warmup_steps=2, total_steps=6)
    optimizer = AdamWeightDecay(schedule)
    for step in gradients:
        optimizer.apply([ops.convert_to_tensor(g) for g in step], variables)
    rates = [0.0, 0.5e-2, 1e-2 * 4 / 6, 1e-2 * 3 / 6, 1e-2 * 2 / 6, 1e-2 / 6]
    expected = reference_steps(values, gradients, rates)
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(variable), value, atol=2e-6)


def test_bias_correction_is_adams():
    values, variables, gradients = make_variables()
    ours = AdamWeightDecay(1e-2, weight_decay=0.0, bias_correction=True)
    theirs = keras.optimizers.Adam(1e-2, epsilon=1e-12, global_clipnorm=1.0)
    ours.epsilon = 1e-12
    copies = [keras.Variable(value) for value in values]
    for step in gradients:
        step = [ops.convert_to_tensor(g) for g in step]
        ours.apply(step, variables)
        theirs.apply(step, copies)
    for variable, copy in zip(variables, copies, strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(variable), ops.convert_to_numpy(copy), atol=2e-6
        )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_makes_the_official_updates(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("Keras does not compile PyTorch unasked; it takes half a minute.")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
    w, b = rng.normal(size=(3, 1)), np.zeros(1)
    inputs = keras.Input((3,))
    dense = keras.layers.Dense(1)
    model = keras.Model(inputs, dense(inputs))
    dense.set_weights([w, b])
    model.compile(AdamWeightDecay(0.1), loss="mse", jit_compile=jit_compile)
    model.fit(x, y, batch_size=8, epochs=5, verbose=0)

    # The gradients of a least-squares fit, made by hand from the reference's weights.
    gradients = []
    for _ in range(5):
        w_now, b_now = reference_steps([w, b], gradients, [0.1] * len(gradients))
        error = 2 * (x @ w_now + b_now - y) / 8
        gradients.append([x.T @ error, error.sum(0)])
    for value, expected in zip(
        dense.get_weights(),
        reference_steps([w, b], gradients, [0.1] * 5),
        strict=True,
    ):
        np.testing.assert_allclose(value, expected, atol=1e-5)


def test_repeated_ids_are_summed_before_clipping_and_squaring():
    inputs = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(4, 2, embeddings_initializer="ones")
    model = keras.Model(inputs, ops.sum(embedding(inputs)))
    optimizer = AdamWeightDecay(0.1, weight_decay=None)
    model.compile(optimizer, loss=lambda y, prediction: prediction)
    model.train_on_batch(np.array([[1, 1, 1, 2]]), np.zeros((1,)))
    # Row 1's gradient is 3 and row 2's is 1, in each of two columns: norm sqrt(20).
    gradient = np.array([0, 3, 1, 0]) / np.sqrt(20)
    velocity = ops.convert_to_numpy(optimizer.variables[-1])
    np.testing.assert_allclose(velocity[:, 0], 0.001 * gradient**2, rtol=1e-5)


def test_normalisation_weights_and_biases_do_not_decay():
    inputs = keras.Input((3,))
    outputs = keras.layers.LayerNormalization()(inputs)
    outputs = keras.layers.RMSNormalization()(outputs)
    model = keras.Model(inputs, keras.layers.Dense(2, bias_initializer="ones")(outputs))
    before = model.get_weights()
    optimizer = AdamWeightDecay(1.0, weight_decay=0.5)
    variables = model.trainable_variables
    optimizer.apply([ops.zeros(v.shape) for v in variables], variables)
    for variable, value in zip(variables, before, strict=True):
        expected = 0.5 * value if variable.name == "kernel" else value
        np.testing.assert_allclose(ops.convert_to_numpy(variable), expected, atol=1e-6)


def test_nothing_left_to_decay():
    bias = keras.Variable(np.ones(2, "float32"), name="bias")
    AdamWeightDecay(1.0).apply([ops.zeros((2,))], [bias])
    np.testing.assert_array_equal(ops.convert_to_numpy(bias), np.ones(2))


def test_accumulated_gradients_make_one_step_of_their_mean():
    values, variables, gradients = make_variables()
    optimizer = AdamWeightDecay(1e-2, gradient_accumulation_steps=2)
    for step in gradients:
        optimizer.apply([ops.convert_to_tensor(g) for g in step], variables)
    means = [
        [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        for first, second in zip(gradients[::2], gradients[1::2], strict=True)
    ]
    expected = reference_steps(values, means, [1e-2] * 3)
    for variable, value in zip(variables, expected, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(variable), value, atol=2e-6)


def test_moving_average_follows_the_weights():
    _, variables, gradients = make_variables()
    optimizer = AdamWeightDecay(1e-2, use_ema=True, ema_momentum=0.5)
    average = None
    for step in gradients:
        optimizer.apply([ops.convert_to_tensor(g) for g in step], variables)
        now = ops.convert_to_numpy(variables[0])
        average = now if average is None else 0.5 * average + 0.5 * now
    optimizer.finalize_variable_values(variables)
    np.testing.assert_allclose(ops.convert_to_numpy(variables[0]), average, atol=1e-6)


def small_model(optimizer=None):
    inputs = keras.Input((3,))
    outputs = keras.layers.LayerNormalization()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    model.compile(optimizer or AdamWeightDecay(1e-2, no_decay=("bias",)), loss="mse")
    return model


def test_training_goes_on_after_loading(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 1))
    model = small_model()
    model.fit(x, y, epochs=3, batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.no_decay == ("bias",)
    assert int(ops.convert_to_numpy(loaded.optimizer.iterations)) == 3
    for each in (model, loaded):
        each.fit(x, y, epochs=3, batch_size=8, verbose=0)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


def test_config_round_trip():
    schedule = WarmupLinearDecay(1e-3, 5, 50, start_step=2, warmup="multiply")
    optimizer = AdamWeightDecay(
        schedule, weight_decay=0.1, beta_1=0.8, beta_2=0.99, epsilon=1e-5, no_decay="b"
    )
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is AdamWeightDecay
    assert keras.optimizers.serialize(again) == keras.optimizers.serialize(optimizer)
    assert again.no_decay == ("b",)


def test_another_clipping_can_be_chosen():
    optimizer = AdamWeightDecay(1e-2, global_clipnorm=None, clipvalue=0.5)
    again = AdamWeightDecay.from_config(optimizer.get_config())
    assert (again.global_clipnorm, again.clipvalue) == (None, 0.5)
