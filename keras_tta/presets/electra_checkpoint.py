"""ELECTRA's own checkpoints: TensorFlow 1 files of both networks.

The discriminator's names begin with `electra/` and `discriminator_predictions/`, the
generator's with `generator/` and `generator_predictions/`; what the two share stands
under `electra/`.
"""

import re
from dataclasses import replace

import numpy as np
from keras import ops

from keras_tta.models import TransformerBackbone
from keras_tta.presets.electra_transformers import DISCRIMINATOR, GENERATOR
from keras_tta.presets.tensorflow_checkpoint import (
    OPTIMIZER,
    assign_variables,
    read_tensorflow_checkpoint,
)

LAYOUTS = {
    "discriminator": DISCRIMINATOR,
    "generator": replace(GENERATOR, start="generator"),
}
# Hugging Face's names that are not the authors' with other separators.
RENAMED = {
    "generator_lm_head/bias": "generator_predictions/output_bias",
    "predictions/dense_prediction/": "predictions/dense_1/",
}
OTHERS = {
    "discriminator": {
        "the generator's": re.compile(r"generator(_predictions)?/"),
        "segments": re.compile(r"electra/embeddings/token_type_embeddings$"),
    },
    "generator": {
        "the discriminator's": re.compile(r"(electra|discriminator_predictions)/"),
        "segments": re.compile(r"generator/embeddings/token_type_embeddings$"),
    },
}
LIKELY = (
    "\nLikely they are of two models, such as a generator's (64 wide in the small "
    "model) under the names of a discriminator's (256 wide), or of a fine-tuned model, "
    "which lacks what pretraining needs."
)


def load_electra_checkpoint(
    checkpoint, network="discriminator", num_heads=None, single_segment=True, dtype=None
):
    """Load one of the networks of a checkpoint of ELECTRA's authors' code.

    Sizes are read from the shapes of the variables. Those of the other network and the
    optimizer's are skipped, and a log line says so.

    Args:
        checkpoint: the name that a TensorFlow 1 checkpoint's files share, such as
            `"electra_small"`; reading it needs TensorFlow. Or a dict of arrays by the
            authors' variable names.
        network: `"discriminator"` or `"generator"`.
        num_heads: number of attention heads, which no shape tells. Defaults to a head
            for every 64 units, as in all published models.
        single_segment: whether inputs are single texts, see `load_bert_transformers`.
        dtype: a dtype or policy. Defaults to the current global policy.

    Returns:
        `(backbone, head)`, as `load_electra_transformers`.

    Raises:
        ImportError: if TensorFlow is needed and not installed.
        FileNotFoundError: if there is no such checkpoint.
        ValueError: if variables are missing, unknown or of another shape, with the
            likely cause.

    Example:
    ```python
    from keras_tta.presets import load_electra_checkpoint

    try:
        load_electra_checkpoint({})
    except ValueError as error:
        assert "electra/embeddings/word_embeddings" in str(error)
    ```
    """
    if network not in LAYOUTS:
        raise ValueError(
            "`network` must be 'discriminator' or 'generator'. "
            f"Received: network={network!r}"
        )
    variables = read_electra_checkpoint(checkpoint)
    layout = LAYOUTS[network]
    if not any(name.startswith(f"{layout.start}/encoder/") for name in variables):
        # Both networks are one, with two heads.
        layout = replace(layout, start=DISCRIMINATOR.start)
    sizes, segments = _sizes(variables, layout)
    backbone = TransformerBackbone(
        num_heads=num_heads or max(1, sizes["hidden_dim"] // 64),
        num_segments=0 if single_segment else len(segments),
        kernel_initializer="bert",
        dtype=dtype,
        **sizes,
    )
    head = layout.make_head(backbone)
    sources = [
        (weight, [_name(variables, weight, name) for name in names])
        for weight, names in layout.sources(backbone, head)
    ]
    assign_variables(variables, sources, {**OPTIMIZER, **OTHERS[network]}, LIKELY)
    if single_segment:
        table = backbone.embeddings.position_embedding.embeddings
        table.assign_add(ops.convert_to_tensor(segments[:1], table.dtype))
    return backbone, head


def read_electra_checkpoint(checkpoint):
    """The variables of a checkpoint by name; a dict of them comes back as it is."""
    if isinstance(checkpoint, dict):
        return checkpoint
    return read_tensorflow_checkpoint(checkpoint, OPTIMIZER)


def _sizes(variables, layout):
    """Arguments of `TransformerBackbone`, and the table of segments."""
    matrices = []
    for name in (
        "embeddings/word_embeddings",
        "embeddings/position_embeddings",
        "embeddings/token_type_embeddings",
        "encoder/layer_0/intermediate/dense/kernel",
    ):
        name = _own_or_shared(variables, f"{layout.start}/{name}")
        shape = np.shape(variables.get(name))
        if len(shape) != 2:
            raise ValueError(
                f"Not a checkpoint of ELECTRA: it needs a matrix `{name}`, and has "
                + (f"one of shape {shape}." if name in variables else "none.")
            )
        matrices.append(variables[name])
    words, positions, segments, intermediate = matrices
    layer = re.compile(rf"{layout.start}/encoder/layer_(\d+)/")
    return {
        "vocabulary_size": len(words),
        "num_layers": len({m[1] for m in map(layer.match, variables) if m}),
        "hidden_dim": intermediate.shape[0],
        "intermediate_dim": intermediate.shape[1],
        "max_sequence_length": len(positions),
        "embedding_dim": words.shape[1],
    }, segments


def _name(variables, weight, name):
    """The authors' name of a weight, from Hugging Face's of the tensor."""
    scope = name.rpartition(".")[0].replace(".", "/")
    scope = re.sub(r"/layer/(\d+)/", r"/layer_\1/", scope)
    name = scope if weight.name == "embeddings" else f"{scope}/{weight.name}"
    for theirs, authors in RENAMED.items():
        name = name.replace(theirs, authors)
    return _own_or_shared(variables, name)


def _own_or_shared(variables, name):
    if name in variables:
        return name
    return name.replace("generator/embeddings/", f"{DISCRIMINATOR.start}/embeddings/")
