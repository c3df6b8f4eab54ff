"""T-TA's own checkpoints: TensorFlow 1 files with the authors' variable names.

The names are BERT's without token types: `bert/embeddings/word_embeddings`,
`bert/encoder/layer_0/attention/self/query/kernel`, `cls/predictions/output_bias`.
"""

import re

import numpy as np

from keras_tta.presets.tensorflow_checkpoint import (
    OPTIMIZER,
    assign_variables,
    read_tensorflow_checkpoint,
)

LAYER = re.compile(r"bert/encoder/layer_(\d+)/")

# Variables that a T-TA of ours has no use for, and why.
UNUSED = {
    "the pooler, which T-TA's loss never trained": re.compile(r"bert/pooler/"),
    **OPTIMIZER,
}


def read_tta_checkpoint(path):
    """Read a TensorFlow 1 checkpoint into NumPy arrays; needs TensorFlow.

    Args:
        path: the checkpoint's prefix, such as `"model.ckpt-2000000"`, without `.index`.

    Returns:
        A dict of arrays by variable name.

    Raises:
        ImportError: if TensorFlow is not installed.
        FileNotFoundError: if there is no checkpoint of this name.

    Example:
    ```python
    from keras_tta.presets import read_tta_checkpoint

    try:
        read_tta_checkpoint("no_such_folder/model.ckpt")
    except (FileNotFoundError, ImportError) as error:
        print(error)
    ```
    """
    return read_tensorflow_checkpoint(path, UNUSED)


def tta_sizes(variables):
    """The sizes of a T-TA, as arguments of `TTABackbone`, from its variables.

    Args:
        variables: dict of arrays by the authors' names.

    Returns:
        A dict of `vocabulary_size`, `num_layers`, `hidden_dim`, `intermediate_dim` and
        `max_sequence_length`. The number of heads leaves no trace in the shapes.

    Raises:
        ValueError: if the variables that tell the sizes are missing.

    Example:
    ```python
    import numpy as np
    from keras_tta.presets import tta_sizes

    sizes = tta_sizes(
        {
            "bert/embeddings/word_embeddings": np.zeros((30, 8)),
            "bert/embeddings/position_embeddings": np.zeros((16, 8)),
            "bert/encoder/layer_0/intermediate/dense/kernel": np.zeros((8, 32)),
        }
    )
    assert sizes["num_layers"] == 1 and sizes["intermediate_dim"] == 32
    ```
    """
    shapes = []
    for name in (
        "bert/embeddings/word_embeddings",
        "bert/embeddings/position_embeddings",
        "bert/encoder/layer_0/intermediate/dense/kernel",
    ):
        shape = np.shape(variables.get(name))
        if len(shape) != 2:
            raise ValueError(
                f"Not a T-TA checkpoint: it needs a matrix `{name}`, and has "
                + (f"one of shape {shape}." if name in variables else "none.")
            )
        shapes.append(shape)
    (vocabulary_size, hidden_dim), (length, _), (_, intermediate_dim) = shapes
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": len({m[1] for m in map(LAYER.match, variables) if m}),
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "max_sequence_length": length,
    }


def assign_tta_variables(variables, backbone, head):
    """Give a T-TA the weights of the authors' variables; all of them or none.

    Args:
        variables: dict of arrays by the authors' names.
        backbone: a `keras_tta.models.TTABackbone` of fitting sizes.
        head: its `keras_tta.layers.TokenPredictionHead`, built.

    Returns:
        The variables that were skipped: a dict from the reason to their names. They
        are the pooler's and, in training checkpoints, the optimizer's; a log line says
        so.

    Raises:
        ValueError: if variables are missing, unknown or of another shape; it lists
            them, and no weight has changed.

    Example:
    ```python
    import numpy as np
    from keras_tta.models import TTABackbone
    from keras_tta.presets import assign_tta_variables
    from keras_tta.pretraining import LanguageAutoencoder

    pretrainer = LanguageAutoencoder(
        TTABackbone(
            vocabulary_size=30,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
        )
    )
    try:
        assign_tta_variables({}, pretrainer.backbone, pretrainer.head)
    except ValueError as error:
        assert "bert/embeddings/word_embeddings" in str(error)
    ```
    """
    return assign_variables(variables, _sources(backbone, head), UNUSED)


def _sources(backbone, head):
    """Pairs of a weight and the variables that, side by side, make it up."""
    embeddings, encoder = backbone.embeddings, backbone.encoder
    yield embeddings.token_embedding.embeddings, ["bert/embeddings/word_embeddings"]
    yield (
        embeddings.position_embedding.embeddings,
        ["bert/embeddings/position_embeddings"],
    )
    yield from _norm(embeddings.norm, "bert/embeddings/LayerNorm")
    layers = [f"bert/encoder/layer_{index}" for index in range(encoder.num_layers)]
    yield from _dense(
        encoder.key_value_dense,
        *(f"{layer}/attention/self/{x}" for layer in layers for x in ("key", "value")),
    )
    parts = zip(layers, encoder.attentions, encoder.blocks, strict=True)
    for layer, attention, block in parts:
        yield from _dense(attention.query_dense, f"{layer}/attention/self/query")
        yield from _dense(attention.output_dense, f"{layer}/attention/output/dense")
        yield from _norm(block.attention_norm, f"{layer}/attention/output/LayerNorm")
        yield from _dense(block.intermediate_dense, f"{layer}/intermediate/dense")
        yield from _dense(block.output_dense, f"{layer}/output/dense")
        yield from _norm(block.output_norm, f"{layer}/output/LayerNorm")
    yield from _dense(head.transform_dense, "cls/predictions/transform/dense")
    yield from _norm(head.transform_norm, "cls/predictions/transform/LayerNorm")
    yield head.bias, ["cls/predictions/output_bias"]


def _dense(layer, *scopes):
    yield layer.kernel, [f"{scope}/kernel" for scope in scopes]
    yield layer.bias, [f"{scope}/bias" for scope in scopes]


def _norm(layer, scope):
    yield layer.gamma, [f"{scope}/gamma"]
    yield layer.beta, [f"{scope}/beta"]
