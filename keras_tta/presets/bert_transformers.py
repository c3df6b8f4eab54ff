"""Hugging Face's BERT: `config.json` and `model.safetensors` of a `BertForMaskedLM`."""

from keras_tta.models.heads import token_prediction_head
from keras_tta.presets.transformers_layout import (
    Layout,
    check_exportable,
    dense_sources,
    load_layout,
    norm_sources,
    save_layout,
)
from keras_tta.visibility import All


def _head_sources(head):
    start = "cls.predictions"
    yield from dense_sources(head.transform_dense, f"{start}.transform.dense")
    yield from norm_sources(head.transform_norm, f"{start}.transform.LayerNorm")
    yield head.bias, [f"{start}.bias"]


BERT = Layout(
    name="BERT",
    architecture="BertForMaskedLM",
    model_type="bert",
    start="bert",
    make_head=token_prediction_head,
    head_sources=_head_sources,
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    unused={
        "the pooler": r"bert\.pooler\.",
        "the next-sentence classifier": r"cls\.seq_relationship\.",
        "position ids, which are 0, 1, 2, ...": r"bert\.embeddings\.position_ids$",
    },
)


def load_bert_transformers(directory, single_segment=True, dtype=None):
    """Load a Hugging Face BERT with its masked-LM head, from a local folder.

    Every tensor is compared with the model before memory is taken. The pooler and the
    next-sentence classifier are skipped, and a log line says so.

    Args:
        directory: a folder with `config.json` and `model.safetensors` in the layout of
            `transformers.BertForMaskedLM` or `BertForPreTraining`.
        single_segment: whether inputs are single texts. Segment 0's embedding is then
            added to the positions', once and for all, and the model takes no
            `segment_ids`; `False` keeps the segments apart, for pairs. Defaults to
            `True`.
        dtype: a dtype or policy. Defaults to the current global policy.

    Returns:
        `(backbone, head)`: a `keras_tta.models.TransformerBackbone` and its
        `keras_tta.layers.TokenPredictionHead`.

    Raises:
        FileNotFoundError: if the folder or one of the files is missing.
        PresetError: a ValueError that names the file and what is wrong with it: tensors
            that are missing, unknown or of another shape, and settings that make it
            another model than BERT.

    Example:
    ```python
    from keras_tta.models import TransformerBackbone, token_prediction_head
    from keras_tta.presets import load_bert_transformers, save_bert_transformers

    backbone = TransformerBackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    save_bert_transformers("bert", backbone, token_prediction_head(backbone))
    backbone, head = load_bert_transformers("bert")
    assert backbone.vocabulary_size == 30
    ```
    """
    return load_layout(directory, BERT, single_segment, dtype)


def save_bert_transformers(directory, backbone, head, tokenizer=None):
    """Write a backbone and its head as a Hugging Face `BertForMaskedLM`.

    `transformers.BertForMaskedLM.from_pretrained(directory)` reads the folder. A
    backbone without segments gets an embedding of two segments, all zero.

    Args:
        directory: the folder to write `config.json` and `model.safetensors` into.
        backbone: a `keras_tta.models.TransformerBackbone` as BERT's: under `All()`, its
            embeddings as wide as its layers.
        head: its `keras_tta.layers.TokenPredictionHead`.
        tokenizer: a `keras_tta.data.TTATokenizer` to write along, as `BertTokenizer`'s
            `vocab.txt` and `tokenizer_config.json`. Defaults to none.

    Raises:
        ValueError: if the model is none that `BertForMaskedLM` can be, or the tokenizer
            is not of word pieces.

    Example: see `load_bert_transformers`.
    """

    def accepted(backbone):
        yield "visibility", backbone.visibility, All()
        yield "embedding_dim", backbone.embedding_dim, backbone.hidden_dim
        epsilon = head.layer_norm_epsilon
        yield "layer_norm_epsilon of the head", epsilon, backbone.layer_norm_epsilon

    check_exportable(BERT, backbone, accepted)
    save_layout(directory, BERT, backbone, head, tokenizer)
