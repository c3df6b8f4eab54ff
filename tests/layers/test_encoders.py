"""The encoder is the composition of the layers it is made of."""

from math import erf

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import FeedForwardBlock, SharedKVEncoder, TTAAttention

B, T, S, D, MEMORY = 2, 4, 5, 6, 3
LAYERS, HEADS, HIDDEN = 3, 2, 8
draw = np.random.default_rng(0)
QUERY = draw.normal(size=(B, T, D)).astype("float32")
KEY_VALUE = draw.normal(size=(B, S, MEMORY)).astype("float32")
VISIBLE = draw.random((B, T, S)) < 0.6
VISIBLE[0, 1] = False


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


def randomize(layer):
    draw = np.random.default_rng(1)
    for weight in layer.trainable_weights:
        weight.assign(draw.normal(scale=0.5, size=weight.shape))
    return layer


@pytest.fixture(scope="module")
def encoder():
    encoder = SharedKVEncoder(LAYERS, HEADS, HIDDEN, dropout=0.3)
    encoder.build((None, None, D), (None, None, MEMORY))
    return randomize(encoder)


def test_it_is_its_layers(encoder):
    """Each a `TTAAttention` with its share of the one key and value kernel."""
    query, outputs = QUERY, []
    kernels = np.split(numpy(encoder.key_value_dense.kernel), LAYERS, axis=1)
    biases = np.split(numpy(encoder.key_value_dense.bias), LAYERS)
    for index in range(LAYERS):
        attention = TTAAttention(HEADS, D // HEADS)
        attention.build((None, None, D), (None, None, MEMORY))
        ours = encoder.attentions[index]
        for part in ("query_dense", "output_dense"):
            weights = getattr(ours, part).get_weights()
            getattr(attention, part).set_weights(weights)
        attention.key_value_dense.set_weights([kernels[index], biases[index]])
        block = FeedForwardBlock(HIDDEN)
        block.build((None, None, D))
        block.set_weights(encoder.blocks[index].get_weights()[: len(block.weights)])
        query = block(query, attention(query, KEY_VALUE, VISIBLE))
        outputs.append(numpy(query))
    layers = encoder.layer_outputs(QUERY, KEY_VALUE, VISIBLE)
    for ours, expected in zip(layers, outputs, strict=True):
        np.testing.assert_allclose(numpy(ours), expected, rtol=1e-4, atol=1e-5)
    last = numpy(encoder(QUERY, KEY_VALUE, VISIBLE))
    np.testing.assert_array_equal(last, numpy(layers[-1]))


def test_queries_do_not_read_each_other(encoder):
    """A few positions cost a few positions."""
    whole = numpy(encoder(QUERY, KEY_VALUE, VISIBLE))
    some = [2, 0]
    part = numpy(encoder(QUERY[:, some], KEY_VALUE, VISIBLE[:, some]))
    np.testing.assert_allclose(part, whole[:, some], rtol=1e-4, atol=1e-5)


def test_one_projection_of_the_memory_for_all_layers(encoder):
    kernel = encoder.key_value_dense.kernel
    assert tuple(kernel.shape) == (MEMORY, 2 * LAYERS * D)
    shapes = [w.shape for w in encoder.trainable_weights]
    assert all(len(shape) <= 2 for shape in shapes)
    kernels = [w for w in encoder.trainable_weights if len(w.shape) == 2]
    assert len(kernels) == 1 + 4 * LAYERS


def test_dropout_in_training_alone(encoder):
    still = numpy(encoder(QUERY, KEY_VALUE, VISIBLE, training=False))
    np.testing.assert_array_equal(still, numpy(encoder(QUERY, KEY_VALUE, VISIBLE)))
    first, second = (
        numpy(encoder(QUERY, KEY_VALUE, VISIBLE, training=True)) for _ in range(2)
    )
    assert not np.array_equal(first, second) and not np.array_equal(first, still)


def test_layers_start_from_different_weights():
    encoder = SharedKVEncoder(2, 1, D)
    encoder.build((None, None, D), (None, None, D))
    kernels = [
        part.kernel
        for attention, block in zip(encoder.attentions, encoder.blocks, strict=True)
        for part in (
            attention.query_dense,
            attention.output_dense,
            block.intermediate_dense,
            block.output_dense,
        )
    ]
    assert {tuple(kernel.shape) for kernel in kernels} == {(D, D)}
    assert len({numpy(kernel).tobytes() for kernel in kernels}) == len(kernels)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_symbolic_is_eager(dtype):
    encoder = SharedKVEncoder(1, HEADS, HIDDEN, dtype=dtype)
    spec = encoder(
        keras.KerasTensor((None, None, D)),
        keras.KerasTensor((None, None, MEMORY)),
        keras.KerasTensor((None, None, None), dtype="bool"),
    )
    eager = encoder(QUERY, KEY_VALUE, VISIBLE)
    assert spec.shape == (None, None, D) and tuple(eager.shape) == QUERY.shape
    assert spec.dtype == keras.backend.standardize_dtype(eager.dtype)
    assert {weight.dtype for weight in encoder.trainable_weights} == {"float32"}


def test_mixed_precision_is_near(encoder):
    mixed = SharedKVEncoder(LAYERS, HEADS, HIDDEN, dtype="mixed_bfloat16")
    mixed.build((None, None, D), (None, None, MEMORY))
    for ours, other in zip(
        mixed.trainable_weights, encoder.trainable_weights, strict=True
    ):
        ours.assign(other)
    expected = numpy(encoder(QUERY, KEY_VALUE, VISIBLE))
    result = numpy(mixed(QUERY, KEY_VALUE, VISIBLE))
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()


def test_feed_forward_block_against_numpy():
    block = FeedForwardBlock(HIDDEN)
    block.build((None, None, D))
    randomize(block)
    weights = {w.path.split("/", 1)[1]: numpy(w) for w in block.weights}

    def norm(x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    attended = QUERY[:, ::-1]
    hidden = norm(QUERY + attended, "attention_norm")
    inner = dense(hidden, "intermediate")
    inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / np.sqrt(2)))
    expected = norm(hidden + dense(inner, "output"), "output_norm")
    result = numpy(block(QUERY, attended))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        SharedKVEncoder(2, 1, 3, dropout=0.5, kernel_initializer="zeros", name="e"),
        FeedForwardBlock(3, dropout=0.5, layer_norm_epsilon=1e-5, name="block"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_config_round_trip(layer):
    saved = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()


def test_a_saved_model_is_the_same(encoder, tmp_path):
    inputs = [
        keras.Input((None, D)),
        keras.Input((None, MEMORY)),
        keras.Input((None, None), dtype="bool"),
    ]
    model = keras.Model(inputs, encoder(*inputs))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    batch = [QUERY, KEY_VALUE, VISIBLE]
    np.testing.assert_array_equal(numpy(again(batch)), numpy(model(batch)))


def test_arguments_out_of_range():
    with pytest.raises(ValueError, match="`num_layers` of SharedKVEncoder.*=0"):
        SharedKVEncoder(0, 1, 1)
    with pytest.raises(ValueError, match="`dropout` of FeedForwardBlock.*=-0.1"):
        FeedForwardBlock(1, dropout=-0.1)
    with pytest.raises(ValueError, match=r"multiple of num_heads=4.*\(2, 4, 6\)"):
        SharedKVEncoder(1, 4, 1)(QUERY, KEY_VALUE, VISIBLE)
