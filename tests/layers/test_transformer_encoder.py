"""The contextual encoder: BERT's blocks, and what sets them apart from T-TA's."""

import math

import keras
import numpy as np
import pytest

from keras_tta.layers import TransformerEncoder

SIZES = {"num_layers": 3, "num_heads": 2, "intermediate_dim": 12}
DRAW = np.random.default_rng(0)
HIDDEN = DRAW.normal(size=(2, 5, 8)).astype("float32")
ALL = np.ones((1, 5, 5), bool)
NOT_SELF = ~np.eye(5, dtype=bool)[None]
CAUSAL = np.tri(5, dtype=bool)[None]


def make_encoder(**options):
    encoder = TransformerEncoder(**{**SIZES, **options})
    encoder.build(HIDDEN.shape)
    for weight in encoder.weights:
        noise = 0.4 * DRAW.normal(size=weight.shape)
        weight.assign(noise + (weight.name == "gamma"))
    return encoder


def run(encoder, hidden=HIDDEN, visible=ALL):
    return keras.ops.convert_to_numpy(encoder(hidden, visible))


def changes(encoder, visible):
    """Which outputs (T,) the token at position 2 reaches."""
    changed = HIDDEN.copy()
    changed[:, 2] += 1
    difference = run(encoder, changed, visible) - run(encoder, HIDDEN, visible)
    return np.abs(difference).max(axis=(0, 2)) > 1e-6


def reference(encoder, x, visible):
    """The same in NumPy, from Vaswani et al. and BERT's code."""
    weights = {w.path.split("/", 1)[1]: np.array(w) for w in encoder.weights}

    def dense(name, x):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]

    def heads(x):
        return x.reshape(2, 5, 2, 4).transpose(0, 2, 1, 3)

    def gelu(x):
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2

    for i in range(3):
        query = heads(dense(f"attention_{i}/query", x))
        both = dense(f"attention_{i}/key_value", x)
        key, value = heads(both[..., :8]), heads(both[..., 8:])
        scores = query @ key.transpose(0, 1, 3, 2) / 2
        scores = np.exp(np.where(visible[:, None], scores, -np.inf))
        read = scores / scores.sum(-1, keepdims=True) @ value
        read = read.transpose(0, 2, 1, 3).reshape(2, 5, 8)
        x = x + dense(f"attention_{i}/attention_output", read)
        x = norm(f"block_{i}/attention_norm", x)
        change = gelu(dense(f"block_{i}/intermediate", x))
        x = norm(f"block_{i}/output_norm", x + dense(f"block_{i}/output", change))
    return x


def test_it_computes_what_bert_computes():
    encoder = make_encoder()
    expected = reference(encoder, HIDDEN.astype("float64"), CAUSAL)
    assert np.abs(run(encoder, visible=CAUSAL) - expected).max() < 1e-4


def test_the_last_of_the_layer_outputs_is_the_output():
    encoder = make_encoder()
    outputs = encoder.layer_outputs(HIDDEN, ALL)
    assert len(outputs) == 3
    assert np.allclose(keras.ops.convert_to_numpy(outputs[-1]), run(encoder))


def test_the_future_stays_hidden_and_self_does_not():
    encoder = make_encoder()
    assert changes(encoder, CAUSAL).tolist() == [False, False, True, True, True]
    assert changes(encoder, NOT_SELF).all()


def test_a_query_that_sees_nothing_depends_on_itself_alone():
    blind = ALL & (np.arange(5) != 1)[None, :, None]
    reached = changes(make_encoder(), blind)
    assert reached.tolist() == [True, False, True, True, True]


def test_the_config_makes_the_same_layer():
    encoder = TransformerEncoder(
        **SIZES, dropout=0.2, layer_norm_epsilon=1e-6, kernel_initializer="ones"
    )
    again = TransformerEncoder.from_config(encoder.get_config())
    assert again.get_config() == encoder.get_config()


def test_dropout_is_for_training():
    encoder = make_encoder(dropout=0.5)
    assert np.array_equal(run(encoder), run(encoder))
    trained = keras.ops.convert_to_numpy(encoder(HIDDEN, ALL, training=True))
    assert np.abs(trained - run(encoder)).max() > 1e-3


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    encoder = TransformerEncoder(**SIZES)
    output = encoder(HIDDEN, ALL)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert {w.dtype for w in encoder.weights} == {"float32"}
    symbolic = encoder(keras.Input((5, 8)), keras.Input((5, 5), dtype="bool"))
    assert symbolic.dtype == "bfloat16" and symbolic.shape == (None, 5, 8)


def test_a_width_that_does_not_divide_into_heads_is_refused():
    with pytest.raises(ValueError, match="multiple of num_heads=3"):
        TransformerEncoder(1, 3, 4)(HIDDEN, ALL)
