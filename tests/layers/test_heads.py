"""The head's loss in chunks is the loss of all logits at once, gradients included."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import TokenPredictionHead, heads
from tests.layers.tensor_sizes import largest_tensor
from tests.leakage.gradients import weight_gradients

B, T, D, V = 3, 5, 4, 7
BACKEND = keras.backend.backend()
draw = np.random.default_rng(0)
HIDDEN = draw.normal(size=(B, T, D)).astype("float32")
# The first and the last id among them.
LABELS = draw.permutation(np.arange(B * T) % V).reshape(B, T).astype("int32")
WEIGHTS = draw.choice([0.0, 0.5, 1.0, 2.0], (B, T)).astype("float32")


def numpy(x):
    return ops.convert_to_numpy(x)


def make(dtype="float32", vocabulary_size=V):
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, D, dtype=dtype)
    embedding.build((None, None))
    head = TokenPredictionHead(embedding, dtype=dtype)
    head.build((None, None, D))
    draw = np.random.default_rng(1)
    for weight in (*embedding.weights, *head.weights):
        weight.assign(draw.normal(size=weight.shape))
    return head


@pytest.fixture(scope="module")
def head():
    return make()


def trained(head):
    """Every weight the loss moves, the table among them."""
    table = head.token_embedding.trainable_weights
    own = [w for w in head.trainable_weights if all(w is not t for t in table)]
    return [*table, *own]


def all_at_once(head, hidden, labels, weights):
    labels, weights = map(ops.convert_to_tensor, (labels, weights))
    log_probs = ops.log_softmax(head(hidden), axis=-1)
    nats = -ops.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    return (
        ops.sum(nats * weights),
        nats,
        ops.equal(ops.cast(ops.argmax(log_probs, axis=-1), labels.dtype), labels),
    )


@pytest.mark.parametrize(
    "positions, training", [(1, True), (2 * B, True), (2 * B, False), (2048, True)]
)
def test_chunks_make_no_difference(head, monkeypatch, positions, training):
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", positions)
    ours = head.loss(HIDDEN, LABELS, WEIGHTS, training=training)
    plain = all_at_once(head, HIDDEN, LABELS, WEIGHTS)
    for result, expected in zip(ours[:2], plain[:2], strict=True):
        np.testing.assert_allclose(numpy(result), numpy(expected), rtol=1e-5, atol=1e-5)
        assert keras.backend.standardize_dtype(result.dtype) == "float32"
    np.testing.assert_array_equal(numpy(ours[2]), numpy(plain[2]))
    assert tuple(ours[1].shape) == tuple(ours[2].shape) == (B, T)


@pytest.mark.parametrize("positions", [2 * B, 2048])
def test_gradients(head, monkeypatch, positions):
    """Of the table, the bias, the transform and, through a variable, the hidden."""
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", positions)
    shift = keras.Variable(np.zeros((B, T, D), "float32"))
    weights = [shift, *trained(head)]

    def ours():
        hidden = ops.add(shift, HIDDEN)
        return head.loss(hidden, LABELS, WEIGHTS, training=True)[0]

    def plain():
        hidden = ops.add(shift, HIDDEN)
        return all_at_once(head, hidden, LABELS, WEIGHTS)[0]

    gradients = [weight_gradients(loss, weights) for loss in (ours, plain)]
    for weight, result, expected in zip(weights, *gradients, strict=True):
        assert np.any(expected != 0), weight.path
        np.testing.assert_allclose(
            result, expected, rtol=1e-4, atol=1e-5, err_msg=weight.path
        )


def test_gradients_in_mixed_precision():
    exact, mixed = make(), make("mixed_bfloat16")
    gradients = [
        weight_gradients(
            lambda head=head: head.loss(HIDDEN, LABELS, WEIGHTS, training=True)[0],
            trained(head),
        )
        for head in (exact, mixed)
    ]
    for weight, expected, result in zip(trained(mixed), *gradients, strict=True):
        assert result.dtype == "float32" and weight.dtype == "float32"
        worst = np.abs(result - expected).max()
        assert worst < 0.05 * np.abs(expected).max(), weight.path


def test_logits_are_float32_in_mixed_precision():
    mixed = make("mixed_bfloat16")
    logits = mixed(HIDDEN)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    spec = mixed(keras.KerasTensor((None, None, D)))
    assert spec.shape == (None, None, V) and spec.dtype == "float32"
    _, nats, correct = mixed.loss(HIDDEN, LABELS, WEIGHTS)
    plain = all_at_once(mixed, HIDDEN, LABELS, WEIGHTS)
    np.testing.assert_allclose(numpy(nats), numpy(plain[1]), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(numpy(correct), numpy(plain[2]))
    exact = numpy(make()(HIDDEN))
    assert np.abs(numpy(logits) - exact).max() < 0.03 * np.abs(exact).max()


def test_logits_against_numpy(head):
    states = numpy(head.transform(HIDDEN))
    table, bias = numpy(head.token_embedding.embeddings), numpy(head.bias)
    np.testing.assert_allclose(
        numpy(head(HIDDEN)), states @ table.T + bias, rtol=1e-4, atol=1e-5
    )


def test_weight_zero_costs_and_teaches_nothing(head):
    def loss(labels, weights):
        return head.loss(HIDDEN, labels, weights, training=True)[0]

    zeros = np.zeros_like(WEIGHTS)
    assert numpy(loss(LABELS, zeros)) == 0.0
    gradients = weight_gradients(lambda: loss(LABELS, zeros), trained(head))
    assert all(np.all(gradient == 0) for gradient in gradients)
    other = np.where(WEIGHTS == 0, (LABELS + 1) % V, LABELS).astype("int32")
    assert (other != LABELS).any()
    assert numpy(loss(other, WEIGHTS)) == numpy(loss(LABELS, WEIGHTS))


def test_far_apart_logits_stay_finite(head):
    bias = numpy(head.bias).copy()
    head.bias.assign(np.linspace(-1e4, 1e4, V))
    total, nats, correct = head.loss(HIDDEN, LABELS, WEIGHTS, training=True)
    head.bias.assign(bias)
    assert np.isfinite(numpy(total)) and np.isfinite(numpy(nats)).all()
    np.testing.assert_array_equal(numpy(correct), LABELS == V - 1)


def test_one_position(head):
    cut = [x[:, :1] for x in (HIDDEN, LABELS, WEIGHTS)]
    result, expected = head.loss(*cut)[1], all_at_once(head, *cut)[1]
    np.testing.assert_allclose(numpy(result), numpy(expected), rtol=1e-4)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Shapes are dynamic there alone.")
@pytest.mark.parametrize("batch, length", [(B, T), (1, 1), (B, 40)])
def test_dynamic_shapes(head, batch, length):
    import tensorflow as tf

    signature = (
        tf.TensorSpec((None, None, D)),
        tf.TensorSpec((None, None), tf.int32),
        tf.TensorSpec((None, None)),
    )

    @tf.function(input_signature=signature)
    def loss(hidden, labels, weights):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            total, nats, correct = head.loss(hidden, labels, weights, training=True)
        return tape.gradient(total, hidden), nats, correct

    repeats = -(-length // T)
    cut = [
        np.concatenate([x] * repeats, axis=1)[:batch, :length]
        for x in (HIDDEN, LABELS, WEIGHTS)
    ]
    gradient, nats, correct = loss(*cut)
    _, expected, hits = all_at_once(head, *cut)
    np.testing.assert_allclose(numpy(nats), numpy(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(numpy(correct), numpy(hits))
    hidden = tf.constant(cut[0])
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        total = all_at_once(head, hidden, *cut[1:])[0]
    np.testing.assert_allclose(
        numpy(gradient), numpy(tape.gradient(total, hidden)), rtol=1e-4, atol=1e-5
    )


def test_no_tensor_of_all_logits(monkeypatch):
    """The largest of a training step is one chunk's, far from B * T * V."""
    batch, length, vocabulary_size, chunk = 3, 40, 50, 10
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", batch * chunk)
    head = make(vocabulary_size=vocabulary_size)
    draw = np.random.default_rng(0)
    hidden = draw.normal(size=(batch, length, D)).astype("float32")
    labels = draw.integers(0, vocabulary_size, (batch, length)).astype("int32")
    weights = np.ones((batch, length), "float32")

    def ours():
        return head.loss(hidden, labels, weights, training=True)[0]

    def plain():
        return all_at_once(head, hidden, labels, weights)[0]

    sizes = [largest_tensor(loss, trained(head), head) for loss in (ours, plain)]
    assert sizes == [batch * chunk * vocabulary_size, batch * length * vocabulary_size]


def test_config_round_trip():
    embedding = keras.layers.ReversibleEmbedding(V, D)
    head = TokenPredictionHead(embedding, layer_norm_epsilon=1e-5, name="tokens")
    saved = keras.saving.serialize_keras_object(head)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is TokenPredictionHead
    assert again.get_config() == head.get_config()
    assert again.vocabulary_size == V


def test_a_quantized_table_is_read_as_numbers():
    head = make()
    exact = numpy(head(HIDDEN))
    _, nats, _ = head.loss(HIDDEN, LABELS, WEIGHTS, training=False)
    head.token_embedding.quantize("int8")
    np.testing.assert_allclose(numpy(head(HIDDEN)), exact, atol=0.1)
    _, rounded, _ = head.loss(HIDDEN, LABELS, WEIGHTS, training=False)
    np.testing.assert_allclose(numpy(rounded), numpy(nats), atol=0.1)


def test_a_table_that_cannot_be_read_is_refused():
    head = make()
    head.token_embedding.quantize("int4")
    with pytest.raises(ValueError, match="Received: 'int4'"):
        head(HIDDEN)
