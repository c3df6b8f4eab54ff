"""The authors' checkpoints: every variable arrives, both networks, or an error."""

import keras
import numpy as np
import pytest

from keras_tta.layers.corruption import TokenMasking
from keras_tta.presets import load_electra_checkpoint
from keras_tta.pretraining import (
    convert_electra_checkpoint,
    convert_electra_transformers,
)

VOCABULARY, LENGTH, SEGMENTS, TABLE, LAYERS = 20, 8, 2, 6, 2
WIDTHS = {"electra": 8, "generator": 4}
INPUTS = {
    "token_ids": np.array([[3, 9, 8, 12, 1, 0]]),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 0]]),
}


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def official_variables(widths=WIDTHS, untied=False):
    """Every variable of a small pretraining model, under the authors' names."""
    shapes = {"global_step": (), "generator_predictions/output_bias": (VOCABULARY,)}

    def dense(scope, width, units):
        shapes[f"{scope}/kernel"], shapes[f"{scope}/bias"] = (width, units), (units,)

    def norm(scope, width):
        shapes[f"{scope}/gamma"] = shapes[f"{scope}/beta"] = (width,)

    for start in ["electra", *["generator"] * untied]:
        tables = f"{start}/embeddings"
        shapes[f"{tables}/word_embeddings"] = VOCABULARY, TABLE
        shapes[f"{tables}/position_embeddings"] = LENGTH, TABLE
        shapes[f"{tables}/token_type_embeddings"] = SEGMENTS, TABLE
        norm(f"{tables}/LayerNorm", TABLE)
    for start, width in widths.items():
        dense(f"{start}/embeddings_project", TABLE, width)
        for layer in (f"{start}/encoder/layer_{i}" for i in range(LAYERS)):
            for part in ("query", "key", "value"):
                dense(f"{layer}/attention/self/{part}", width, width)
            dense(f"{layer}/attention/output/dense", width, width)
            norm(f"{layer}/attention/output/LayerNorm", width)
            dense(f"{layer}/intermediate/dense", width, 4 * width)
            dense(f"{layer}/output/dense", 4 * width, width)
            norm(f"{layer}/output/LayerNorm", width)
    dense("generator_predictions/dense", widths.get("generator", 8), TABLE)
    norm("generator_predictions/LayerNorm", TABLE)
    dense("discriminator_predictions/dense", 8, 8)
    dense("discriminator_predictions/dense_1", 8, 1)
    draw = np.random.default_rng(0)
    return {k: draw.normal(size=v).astype("float32") for k, v in shapes.items()}


def write(variables, path):
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in variables.items():
            tf.compat.v1.get_variable(name, initializer=array)
            if name != "global_step":
                tf.compat.v1.get_variable(f"{name}/adam_m", initializer=0 * array)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(path))


def forward(variables, start, heads):
    """Hidden states in NumPy, by the authors' names."""

    def norm(x, scope):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
        return x * variables[f"{scope}/gamma"] + variables[f"{scope}/beta"]

    def dense(x, scope):
        return x @ variables[f"{scope}/kernel"] + variables[f"{scope}/bias"]

    tables = "electra/embeddings"
    ids = INPUTS["token_ids"]
    x = variables[f"{tables}/word_embeddings"][ids].astype("float64")
    x = x + variables[f"{tables}/position_embeddings"][: ids.shape[1]]
    x = x + variables[f"{tables}/token_type_embeddings"][0]
    x = dense(norm(x, f"{tables}/LayerNorm"), f"{start}/embeddings_project")
    for layer in (f"{start}/encoder/layer_{i}" for i in range(LAYERS)):
        q, k, v = (
            np.stack(np.split(dense(x, f"{layer}/attention/self/{n}"), heads, -1))
            for n in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = scores - 1e4 * (1 - INPUTS["padding_mask"])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        read = (weights / weights.sum(-1, keepdims=True)) @ v
        read = np.concatenate(list(read), -1)
        x = norm(
            x + dense(read, f"{layer}/attention/output/dense"),
            f"{layer}/attention/output/LayerNorm",
        )
        inner = gelu(dense(x, f"{layer}/intermediate/dense"))
        x = norm(x + dense(inner, f"{layer}/output/dense"), f"{layer}/output/LayerNorm")
    head = "discriminator" if start == "electra" else "generator"
    hidden = gelu(dense(x, f"{head}_predictions/dense"))
    if head == "discriminator":
        return dense(hidden, "discriminator_predictions/dense_1")[..., 0]
    hidden = norm(hidden, "generator_predictions/LayerNorm")
    logits = hidden @ variables[f"{tables}/word_embeddings"].T
    return logits + variables["generator_predictions/output_bias"]


def gelu(x):
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


@pytest.mark.parametrize(
    ("network", "start", "heads"),
    [("discriminator", "electra", 2), ("generator", "generator", 1)],
)
def test_logits_are_those_of_the_variables(network, start, heads, tmp_path):
    variables = official_variables()
    write(variables, tmp_path / "model.ckpt")
    model = convert_electra_checkpoint(
        tmp_path / "model.ckpt", network=network, num_heads=heads
    )
    real = INPUTS["padding_mask"] == 1
    expected = forward(variables, start, heads)
    assert np.abs(numpy(model(INPUTS)) - expected)[real].max() < 1e-4
    model.export_to_transformers(tmp_path / "transformers")
    again = convert_electra_transformers(tmp_path / "transformers")
    assert np.abs(numpy(again(INPUTS)) - expected)[real].max() < 1e-4


@pytest.mark.parametrize(
    ("widths", "untied", "tie"),
    [
        (WIDTHS, False, "embeddings"),
        (WIDTHS, True, "none"),
        ({"electra": 8}, False, "all"),
    ],
)
def test_both_networks_share_what_they_shared(widths, untied, tie):
    variables = official_variables(widths, untied)
    masking = TokenMasking(VOCABULARY, 4, (0, 1, 3))
    electra = convert_electra_checkpoint(variables, masking, num_heads=(1, 1))
    assert electra.tie == tie
    for network, model in (
        ("discriminator", electra.detector),
        ("generator", electra.generator_language_model),
    ):
        alone = convert_electra_checkpoint(variables, network=network)
        logits = [numpy(x(INPUTS)) for x in (alone, model)]
        assert np.abs(logits[0] - logits[1]).max() < 1e-5


def test_a_number_of_heads_may_be_both_networks():
    masking = TokenMasking(VOCABULARY, 4, (0, 1, 3))
    electra = convert_electra_checkpoint(official_variables(), masking, num_heads=2)
    assert electra.generator.num_heads == electra.discriminator.num_heads == 2


def test_what_is_skipped_is_said(caplog):
    with caplog.at_level("WARNING"):
        load_electra_checkpoint(official_variables(), "generator")
    assert "variables: the discriminator's" in caplog.text


def test_segments_are_kept_on_demand():
    variables = official_variables()
    backbone, _ = load_electra_checkpoint(variables, single_segment=False)
    table = numpy(backbone.embeddings.segment_embedding.embeddings)
    expected = variables["electra/embeddings/token_type_embeddings"]
    assert np.array_equal(table, expected)


def misfit(**changes):
    variables = {**official_variables(), **changes}
    return {name: array for name, array in variables.items() if array is not None}


QUERY = "electra/encoder/layer_1/attention/self/query/bias"


@pytest.mark.agnostic
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (misfit(**{QUERY: np.ones(4)}), r"layer_1.*shape \(4,\), not \(8,\)"),
        (
            misfit(**{"discriminator_predictions/dense/kernel": None}),
            r"discriminator_predictions/dense/kernel is missing",
        ),
        (misfit(**{"electra/pooler/kernel": np.ones(4)}), "pooler/kernel is unknown"),
    ],
)
def test_what_does_not_fit_is_named_with_its_likely_cause(variables, message):
    with pytest.raises(ValueError, match=message) as error:
        convert_electra_checkpoint(variables)
    assert "Likely they are of two models" in str(error.value)


@pytest.mark.agnostic
def test_what_cannot_be_asked_for_is_refused():
    with pytest.raises(ValueError, match="needs a matrix `electra/embeddings/word"):
        convert_electra_checkpoint({})
    with pytest.raises(ValueError, match="`network` must be"):
        convert_electra_checkpoint({}, network="both")
    with pytest.raises(ValueError, match="takes a `masking`"):
        convert_electra_checkpoint({}, tie="none")
    masking = TokenMasking(VOCABULARY, 4, (0, 1, 3))
    with pytest.raises(ValueError, match="leave out `network`"):
        convert_electra_checkpoint({}, masking, network="generator")
    with pytest.raises(ValueError, match="one number, or a pair"):
        convert_electra_checkpoint({}, masking, num_heads=(1, 2, 3))
    table = {"electra/embeddings/word_embeddings": np.float32(1)}
    with pytest.raises(ValueError, match=r"one of shape \(\)"):
        convert_electra_checkpoint(table)
