"""The copy mechanism is the mixture it says, in chunks and with its gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import CopyHead, heads
from tests.layers.tensor_sizes import largest_tensor
from tests.leakage.gradients import weight_gradients

B, T, D, V = 3, 5, 4, 7
draw = np.random.default_rng(0)
HIDDEN = draw.normal(size=(B, T, D)).astype("float32")
LABELS = draw.integers(0, V, (B, T)).astype("int32")
# Half of the tokens stand as they were.
READ = np.where(draw.random((B, T)) < 0.5, LABELS, (LABELS + 1) % V).astype("int32")
WEIGHTS = draw.choice([0.0, 0.5, 1.0, 2.0], (B, T)).astype("float32")


def numpy(x):
    return ops.convert_to_numpy(x)


def make(vocabulary_size=V, dtype="float32"):
    embedding = keras.layers.ReversibleEmbedding(vocabulary_size, D, dtype=dtype)
    embedding.build((None, None))
    head = CopyHead(embedding, dtype=dtype)
    head.build((None, None, D))
    draw = np.random.default_rng(1)
    for weight in (*embedding.weights, *head.weights):
        weight.assign(draw.normal(size=weight.shape))
    return head


def probabilities(head):
    """`g 1[x = read] + (1 - g) softmax(x)` in NumPy, float64 (B, T, V)."""
    states = numpy(head.transform(HIDDEN)).astype("float64")
    logits = states @ numpy(head.token_embedding.embeddings).T + numpy(head.bias)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    gate = HIDDEN @ numpy(head.copy_dense.kernel) + numpy(head.copy_dense.bias)
    copied = 1 / (1 + np.exp(-gate.astype("float64")))
    return copied * (READ[..., None] == np.arange(V)) + (1 - copied) * softmax


@pytest.mark.parametrize("positions", [2 * B, 2048])
def test_it_is_the_mixture_of_the_equation(monkeypatch, positions):
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", positions)
    head = make()
    expected = probabilities(head)
    np.testing.assert_allclose(
        np.exp(numpy(head(HIDDEN, READ))), expected, rtol=1e-4, atol=1e-6
    )
    nats = -np.log(np.take_along_axis(expected, LABELS[..., None], -1)[..., 0])
    for training in (False, True):
        total, ours, correct = head.loss(
            HIDDEN, LABELS, WEIGHTS, training=training, token_ids=READ
        )
        np.testing.assert_allclose(numpy(ours), nats, rtol=1e-4, atol=1e-5)
        assert abs(numpy(total) - (nats * WEIGHTS).sum()) < 1e-4
        np.testing.assert_array_equal(numpy(correct), expected.argmax(-1) == LABELS)
    assert 0 < numpy(correct).mean() < 1


def test_a_hand_computed_case():
    """D = 3/4, softmax (1/2, 1/4, 1/4); the second token is read."""
    embedding = keras.layers.ReversibleEmbedding(3, 2, embeddings_initializer="zeros")
    embedding.build((None, None))
    head = CopyHead(embedding)
    head.build((None, None, 2))
    head.bias.assign(np.log([2.0, 1.0, 1.0]))
    head.copy_dense.bias.assign(np.log([3.0]))
    hidden, read = np.ones((1, 3, 2), "float32"), np.ones((1, 3), "int32")
    labels, weights = np.array([[0, 1, 2]]), np.ones((1, 3), "float32")
    _, nats, correct = head.loss(hidden, labels, weights, token_ids=read)
    expected = -np.log([[1 / 8, 3 / 4 + 1 / 16, 1 / 16]])
    np.testing.assert_allclose(numpy(nats), expected, rtol=1e-5)
    assert numpy(correct).tolist() == [[False, True, False]]


def test_gradients(monkeypatch):
    """Of the gate and all of the softmax are those of the logits taken at once."""
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", 2 * B)
    head = make()
    shift = keras.Variable(np.zeros((B, T, D), "float32"))
    table = head.token_embedding.trainable_weights
    own = [w for w in head.trainable_weights if all(w is not t for t in table)]
    weights = [shift, *table, *own]

    def ours():
        hidden = ops.add(shift, HIDDEN)
        options = {"training": True, "token_ids": READ}
        return head.loss(hidden, LABELS, WEIGHTS, **options)[0]

    def plain():
        log_probabilities = head(ops.add(shift, HIDDEN), READ)
        labels = ops.convert_to_tensor(LABELS[..., None])
        chosen = ops.take_along_axis(log_probabilities, labels, axis=-1)
        return -ops.sum(ops.multiply(chosen[..., 0], WEIGHTS))

    gradients = [weight_gradients(loss, weights) for loss in (ours, plain)]
    for weight, result, expected in zip(weights, *gradients, strict=True):
        assert np.any(expected != 0), weight.path
        np.testing.assert_allclose(
            result, expected, rtol=1e-4, atol=1e-5, err_msg=weight.path
        )


def test_no_tensor_of_all_logits(monkeypatch):
    batch, length, vocabulary_size, chunk = 3, 40, 50, 10
    monkeypatch.setattr(heads, "POSITIONS_IN_A_CHUNK", batch * chunk)
    head = make(vocabulary_size)
    hidden = np.random.default_rng(0).normal(size=(batch, length, D)).astype("float32")
    labels = np.ones((batch, length), "int32")
    weights = np.ones((batch, length), "float32")

    def loss():
        options = {"training": True, "token_ids": labels}
        return head.loss(hidden, labels, weights, **options)[0]

    size = largest_tensor(loss, head.trainable_weights, head)
    assert size == batch * chunk * vocabulary_size


def test_gates_far_apart_stay_finite_under_mixed_precision():
    head = make(dtype="mixed_bfloat16")
    for bias in (-1e4, 1e4):
        head.copy_dense.bias.assign([bias])
        total, nats, _ = head.loss(
            HIDDEN, LABELS, WEIGHTS, training=True, token_ids=READ
        )
        assert keras.backend.standardize_dtype(nats.dtype) == "float32"
        assert np.isfinite(numpy(total))
        # A gate that is open costs nothing where the token stands as it was.
        assert bias < 0 or not numpy(nats)[READ == LABELS].any()


def test_config_round_trip():
    head = CopyHead(keras.layers.ReversibleEmbedding(V, D), name="copying")
    saved = keras.saving.serialize_keras_object(head)
    again = keras.saving.deserialize_keras_object(saved)
    assert type(again) is CopyHead and again.get_config() == head.get_config()
