"""Hugging Face's ELECTRA: an `ElectraForPreTraining` or `ElectraForMaskedLM`."""

from keras_tta.layers import ReplacedTokenHead
from keras_tta.models.heads import replaced_token_head, token_prediction_head
from keras_tta.presets.files import PresetError, preset_file, read_json
from keras_tta.presets.transformers_layout import (
    Layout,
    check_exportable,
    dense_sources,
    load_layout,
    norm_sources,
    save_layout,
)
from keras_tta.visibility import All


def _generator_sources(head):
    start = "generator_predictions"
    yield from dense_sources(head.transform_dense, f"{start}.dense")
    yield from norm_sources(head.transform_norm, f"{start}.LayerNorm")
    yield head.bias, ["generator_lm_head.bias"]


def _discriminator_sources(head):
    start = "discriminator_predictions"
    yield from dense_sources(head.transform_dense, f"{start}.dense")
    yield from dense_sources(head.output_dense, f"{start}.dense_prediction")


SHARED = {
    "name": "ELECTRA",
    "model_type": "electra",
    "start": "electra",
    "sizes": {"embedding_dim": "embedding_size"},
    "likely": (
        "one is a generator's and the other a discriminator's: an ELECTRA generator is "
        "a quarter to a third as wide (64 beside 256 in the small model)"
    ),
}
POSITION_IDS = {
    "position ids, which are 0, 1, 2, ...": r"electra\.embeddings\.position_ids$"
}
GENERATOR = Layout(
    architecture="ElectraForMaskedLM",
    make_head=token_prediction_head,
    head_sources=_generator_sources,
    tied={
        "generator_lm_head.weight": "electra.embeddings.word_embeddings.weight",
    },
    unused=POSITION_IDS,
    **SHARED,
)
DISCRIMINATOR = Layout(
    architecture="ElectraForPreTraining",
    make_head=replaced_token_head,
    head_sources=_discriminator_sources,
    unused=POSITION_IDS,
    **SHARED,
)
LAYOUTS = {layout.architecture: layout for layout in (GENERATOR, DISCRIMINATOR)}


def load_electra_transformers(directory, single_segment=True, dtype=None):
    """Load a Hugging Face ELECTRA, generator or discriminator, from a local folder.

    Which of the two it is stands under `architectures` in `config.json`. Every tensor
    is compared with the model before memory is taken.

    Args:
        directory: a folder with `config.json` and `model.safetensors` in the layout of
            `transformers.ElectraForPreTraining` (the discriminator) or
            `ElectraForMaskedLM` (the generator).
        single_segment: whether inputs are single texts, see `load_bert_transformers`.
        dtype: a dtype or policy. Defaults to the current global policy.

    Returns:
        `(backbone, head)`: a `keras_tta.models.TransformerBackbone` and its
        `ReplacedTokenHead` or `TokenPredictionHead`.

    Raises:
        FileNotFoundError: if the folder or one of the files is missing.
        PresetError: a ValueError that names the file and what is wrong with it; where a
            generator's weights meet a discriminator's config, it says so.

    Example:
    ```python
    from keras_tta.models import TransformerBackbone, token_prediction_head
    from keras_tta.presets import (
        load_electra_transformers,
        save_electra_transformers,
    )

    generator = TransformerBackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=1,
        hidden_dim=4,
        intermediate_dim=16,
        embedding_dim=8,
    )
    save_electra_transformers("g", generator, token_prediction_head(generator))
    backbone, head = load_electra_transformers("g")
    assert backbone.hidden_dim == 4
    ```
    """
    architectures = read_json(directory, "config.json").get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else 0
    if name not in LAYOUTS:
        raise PresetError(
            preset_file(directory, "config.json"),
            f"`architectures` must name one of {', '.join(sorted(LAYOUTS))}. "
            f"Received: {architectures!r}",
        )
    return load_layout(directory, LAYOUTS[name], single_segment, dtype)


def save_electra_transformers(directory, backbone, head, tokenizer=None):
    """Write a backbone and its head as a Hugging Face ELECTRA.

    `transformers.ElectraForPreTraining.from_pretrained(directory)` reads a
    discriminator, `ElectraForMaskedLM` a generator. A backbone without segments gets an
    embedding of two segments, all zero.

    Args:
        directory: the folder to write `config.json` and `model.safetensors` into.
        backbone: a `keras_tta.models.TransformerBackbone` under `All()`.
        head: a `ReplacedTokenHead`, or the backbone's `TokenPredictionHead`.
        tokenizer: a `keras_tta.data.TTATokenizer` to write along, as `BertTokenizer`'s
            `vocab.txt` and `tokenizer_config.json`. Defaults to none.

    Raises:
        ValueError: if the model is none that Hugging Face's ELECTRA can be, or the
            tokenizer is not of word pieces.

    Example: see `load_electra_transformers`.
    """
    layout = DISCRIMINATOR if isinstance(head, ReplacedTokenHead) else GENERATOR

    def accepted(backbone):
        yield "visibility", backbone.visibility, All()
        if layout is GENERATOR:
            yield "its head", type(head).__name__, "TokenPredictionHead"
            epsilon = head.layer_norm_epsilon
            yield "layer_norm_epsilon of the head", epsilon, backbone.layer_norm_epsilon

    check_exportable(layout, backbone, accepted)
    save_layout(directory, layout, backbone, head, tokenizer)
