"""ELECTRA's head: logits and loss against NumPy."""

import keras
import numpy as np
import pytest

from keras_tta.layers import ReplacedTokenHead

HIDDEN = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
LABELS = np.array([[0, 1, 1, 0, 0], [1, 0, 0, 1, 0]])
WEIGHTS = np.array([[1, 1, 1, 0, 0], [2, 1, 1, 1, 1]], "float32")


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def make_head():
    head = ReplacedTokenHead()
    head.build(HIDDEN.shape)
    draw = np.random.default_rng(1)
    for weight in head.weights:
        weight.assign(draw.normal(size=weight.shape))
    return head


def test_logits_and_loss_are_those_of_the_equations():
    erf = pytest.importorskip("scipy.special").erf
    head = make_head()
    dense, output = head.transform_dense, head.output_dense
    x = HIDDEN.astype("float64") @ numpy(dense.kernel) + numpy(dense.bias)
    x = x * 0.5 * (1 + erf(x / np.sqrt(2)))
    logits = (x @ numpy(output.kernel) + numpy(output.bias))[..., 0]
    assert np.allclose(numpy(head(HIDDEN)), logits, atol=1e-5)
    p = 1 / (1 + np.exp(-logits))
    expected = -np.log(np.where(LABELS == 1, p, 1 - p))
    total, nats, correct = head.loss(HIDDEN, LABELS, WEIGHTS, training=True)
    assert np.allclose(numpy(nats), expected, atol=1e-5)
    assert np.isclose(float(total), (expected * WEIGHTS).sum(), atol=1e-4)
    assert np.array_equal(numpy(correct), (logits > 0) == LABELS)


def test_large_logits_stay_finite():
    logits = keras.ops.convert_to_tensor([[-1e4, 1e4]])
    _, nats, _ = ReplacedTokenHead().loss_of(
        logits, np.array([[1, 0]]), np.ones((1, 2))
    )
    assert numpy(nats).tolist() == [[1e4, 1e4]]


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_it_starts_at_ln_2_and_gives_float32(policy):
    keras.config.set_dtype_policy(policy)
    head = ReplacedTokenHead()
    hidden = np.random.default_rng(0).normal(size=(4, 8, 64)).astype("float32")
    assert keras.backend.standardize_dtype(head(hidden).dtype) == "float32"
    _, nats, _ = head.loss(hidden, np.arange(32).reshape(4, 8) % 2, np.ones((4, 8)))
    assert abs(numpy(nats).mean() - np.log(2)) < 0.02


def test_the_config_round_trips():
    head = ReplacedTokenHead(kernel_initializer="bert", name="head")
    again = ReplacedTokenHead.from_config(head.get_config())
    assert again.get_config() == head.get_config()
