"""Attention under a mask, against NumPy; and rules made masks."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.layers import ProjectedAttention, TTAAttention, VisibilityMask
from keras_tta.visibility import All, Causal, HideWord, NotSelf, SameSegment

B, T, S, N, H, D = 2, 4, 5, 2, 3, 7
QUERY, KEY_VALUE = (
    np.random.default_rng(1).normal(size=shape).astype("float32")
    for shape in ((B, T, D), (B, S, D + 1))
)
# Rows that see some, one, all and none of the keys.
VISIBLE = np.array(
    [
        [[1, 0, 1, 1, 0], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]],
        [[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 1], [1, 1, 0, 1, 1]],
    ],
    bool,
)


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32") if x.dtype != "bool" else x)


def built(dtype="float32", dropout=0.0):
    attention = TTAAttention(N, H, dropout=dropout, dtype=dtype)
    attention.build((None, None, D), (None, None, D + 1))
    draw = np.random.default_rng(2)
    for weight in attention.trainable_weights:
        weight.assign(draw.normal(size=weight.shape))
    return attention


def reference(attention, query, key_value, visible):
    """What is read, head by head and query by query, from the visible keys alone."""

    def project(dense, x):
        return x @ numpy(dense.kernel) + numpy(dense.bias)

    queries = project(attention.query_dense, query)
    keys, values = np.split(project(attention.key_value_dense, key_value), 2, axis=-1)
    read = np.zeros((B, T, N * H))
    for row, target, head in np.ndindex(B, T, N):
        part = slice(head * H, (head + 1) * H)
        seen = visible[row, target]
        scores = keys[row, seen, part] @ queries[row, target, part] / np.sqrt(H)
        weights = np.exp(scores - scores.max(initial=-np.inf))
        if seen.any():
            weights = weights / weights.sum()
            read[row, target, part] = weights @ values[row, seen, part]
    return project(attention.output_dense, read)


def test_against_numpy():
    attention = built()
    result = attention(QUERY, KEY_VALUE, VISIBLE)
    expected = reference(attention, QUERY, KEY_VALUE, VISIBLE)
    np.testing.assert_allclose(numpy(result), expected, rtol=1e-4, atol=1e-5)


def test_a_mask_is_broadcast_and_may_be_of_integers():
    attention = built()
    shared = VISIBLE[:1]
    expected = numpy(attention(QUERY, KEY_VALUE, np.repeat(shared, B, axis=0)))
    for visible in (shared, shared.astype("int32"), shared.astype("float32")):
        result = numpy(attention(QUERY, KEY_VALUE, visible))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("training", [False, True])
def test_who_sees_nothing_reads_exactly_nothing(dtype, training):
    """The output projection's bias is all there is, whatever keys and values are."""
    attention = built(dtype, dropout=0.5)
    blind = ~VISIBLE.any(axis=-1)
    for scale in (1.0, 100.0):
        result = attention(QUERY, scale * KEY_VALUE, VISIBLE, training=training)
        bias = ops.cast(attention.output_dense.bias, result.dtype)
        expected = np.broadcast_to(numpy(bias), (blind.sum(), D))
        np.testing.assert_array_equal(numpy(result)[blind], expected)
        assert np.isfinite(numpy(result)).all()


def test_mixed_precision_is_near():
    exact, mixed = built(), built("mixed_bfloat16")
    result = mixed(QUERY, KEY_VALUE, VISIBLE)
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    assert {weight.dtype for weight in mixed.trainable_weights} == {"float32"}
    expected = numpy(exact(QUERY, KEY_VALUE, VISIBLE))
    assert np.abs(numpy(result) - expected).max() < 0.03 * np.abs(expected).max()


def test_dropout_is_on_attention_weights_in_training_alone():
    attention = built(dropout=0.5)
    still = numpy(attention(QUERY, KEY_VALUE, VISIBLE))
    np.testing.assert_array_equal(
        still, numpy(attention(QUERY, KEY_VALUE, VISIBLE, training=False))
    )
    drawn = [
        numpy(attention(QUERY, KEY_VALUE, VISIBLE, training=True)) for _ in range(2)
    ]
    assert not np.array_equal(*drawn) and not np.array_equal(drawn[0], still)
    # A query with one key reads it doubled or not at all, in each of its heads.
    one = (VISIBLE.sum(axis=-1) == 1).nonzero()
    bias = numpy(attention.output_dense.bias)
    attention.output_dense.kernel.assign(np.eye(N * H, D))
    plain = (numpy(attention(QUERY, KEY_VALUE, VISIBLE)) - bias)[one]
    read = numpy(attention(QUERY, KEY_VALUE, VISIBLE, training=True)) - bias
    factor = read[one][:, : N * H] / plain[:, : N * H]
    heads = factor.reshape(-1, N, H)
    assert np.all(np.isclose(heads, 0, atol=1e-4) | np.isclose(heads, 2, atol=1e-4))
    np.testing.assert_allclose(heads, heads[..., :1].repeat(H, -1), atol=1e-4)


def test_kernels_are_matrices():
    shapes = {w.path.split("/", 1)[1]: tuple(w.shape) for w in built().weights}
    assert shapes == {
        "query/kernel": (D, N * H),
        "query/bias": (N * H,),
        "key_value/kernel": (D + 1, 2 * N * H),
        "key_value/bias": (2 * N * H,),
        "attention_output/kernel": (N * H, D),
        "attention_output/bias": (D,),
    }


def test_kernels_differ_at_the_start():
    attention = TTAAttention(1, 32, kernel_initializer="bert")
    attention.build((None, None, 32), (None, None, 32))
    query, output = (
        numpy(dense.kernel) for dense in (attention.query_dense, attention.output_dense)
    )
    assert query.shape == output.shape and not np.array_equal(query, output)
    assert 0.015 < query.std() < 0.02 and 0.015 < output.std() < 0.02


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_symbolic_is_eager(dtype):
    attention = built(dtype)
    eager = attention(QUERY, KEY_VALUE, VISIBLE)
    spec = attention(
        keras.KerasTensor((B, None, D)),
        keras.KerasTensor((B, None, D + 1)),
        keras.KerasTensor((B, None, None), dtype="bool"),
    )
    assert spec.shape == (B, None, D)
    assert spec.dtype == keras.backend.standardize_dtype(eager.dtype)


def test_config_round_trip():
    attention = TTAAttention(
        N, H, dropout=0.25, kernel_initializer="zeros", name="reader"
    )
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(attention)
    )
    assert type(again) is TTAAttention
    assert again.get_config() == attention.get_config()
    projected = ProjectedAttention(N, H)
    assert ProjectedAttention.from_config(projected.get_config()).head_dim == H


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 0, "head_dim": 1}, "`num_heads` of TTAAttention.*num_heads=0"),
        ({"num_heads": 1, "head_dim": 1.5}, "`head_dim`.*head_dim=1.5"),
        ({"num_heads": 1, "head_dim": 1, "dropout": 1.0}, "`dropout`.*dropout=1.0"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        TTAAttention(**arguments)


PADDING = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], "int32")


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_padding_is_hidden_last(dtype):
    mask = VisibilityMask(NotSelf() | Causal())
    visible = mask(PADDING.astype(dtype))
    assert keras.backend.standardize_dtype(visible.dtype) == "bool"
    expected = np.broadcast_to(PADDING[:, None, :] == 1, (3, 4, 4))
    np.testing.assert_array_equal(numpy(visible), expected)


def test_masks_of_segments_and_words():
    segments = np.array([[0, 0, 1, 1]] * 3)
    words = np.array([[0, 1, 1, 2]] * 3)
    rule = SameSegment() & HideWord("all")
    visible = VisibilityMask(rule)(PADDING, segment_ids=segments, word_ids=words)
    expected = (
        (PADDING[:, None, :] == 1)
        & (segments[:, None, :] == segments[:, :, None])
        & (words[:, None, :] != words[:, :, None])
    )
    np.testing.assert_array_equal(numpy(visible), expected)


def test_missing_inputs_are_named():
    for rule, name in ((SameSegment(), "segment_ids"), (HideWord(), "word_ids")):
        with pytest.raises(ValueError, match=f"needs `{name}`"):
            VisibilityMask(rule)(PADDING)
    with pytest.raises(ValueError, match="`rule` of VisibilityMask.*'all'"):
        VisibilityMask("all")


@pytest.mark.parametrize("rule", [All(), NotSelf() & HideWord("right")], ids=repr)
def test_mask_config_round_trip(rule):
    mask = VisibilityMask(rule, name="who")
    again = VisibilityMask.from_config(mask.get_config())
    assert again.rule == rule and again.name == "who"
    spec = again(
        keras.KerasTensor((None, 6)), word_ids=keras.KerasTensor((None, 6), "int32")
    )
    assert spec.shape == (None, 6, 6) and spec.dtype == "bool"


def test_masks_of_lower_rank_broadcast_from_the_right():
    # As many positions as heads: a mask put in the heads' place would not be noticed.
    attention = TTAAttention(num_heads=4, head_dim=2)
    x = np.random.default_rng(0).normal(size=(3, 4, 8)).astype("float32")
    hide_self = ~np.eye(4, dtype=bool)
    expected = attention(x, x, hide_self[None])
    found = attention(x, x, hide_self)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(found), ops.convert_to_numpy(expected)
    )
