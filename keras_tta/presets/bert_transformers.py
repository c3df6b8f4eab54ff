"""Hugging Face's BERT: `config.json` and `model.safetensors` of a `BertForMaskedLM`.

Neither torch nor transformers is needed, in or out.
"""

import json
import re
from pathlib import Path

import ml_dtypes  # noqa: F401  safetensors reads bfloat16 with it
import numpy as np
import safetensors
import safetensors.numpy
from absl import logging
from keras import ops

from keras_tta.models import TransformerBackbone
from keras_tta.models.heads import token_prediction_head
from keras_tta.presets.files import PresetError, build_from, preset_file, read_json
from keras_tta.presets.weights import check_fit, unallocated
from keras_tta.visibility import All

SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
# Copies that are there in some files: they must agree with what they are copies of.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Tensors that predict no tokens, and why.
UNUSED = {
    "the pooler": r"bert\.pooler\.",
    "the next-sentence classifier": r"cls\.seq_relationship\.",
    "position ids, which are 0, 1, 2, ...": r"bert\.embeddings\.position_ids$",
}
SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Settings that change the function, and the one value that is supported.
REQUIRED = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


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
    from keras_tta.models import TransformerBackbone
    from keras_tta.models.heads import token_prediction_head
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
    settings = _settings(directory)
    config_path = preset_file(directory, "config.json")
    path = preset_file(directory, "model.safetensors")
    segments = settings.pop("num_segments")
    if not single_segment:
        settings["num_segments"] = segments

    def build():
        backbone = build_from(
            config_path, TransformerBackbone, {**settings, "dtype": dtype}
        )
        return backbone, token_prediction_head(backbone)

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            stored = {_modern(name): name for name in file.keys()}
            if settings["num_layers"] > len(stored):
                raise PresetError(
                    config_path,
                    f"{settings['num_layers']} layers, but the weights are "
                    f"{len(stored)} tensors.",
                )
            shapes = {
                name: tuple(file.get_slice(old).get_shape())
                for name, old in stored.items()
            }
            with unallocated():
                wanted = {SEGMENTS: (segments, settings["hidden_dim"])}
                for weight, names in _sources(*build()):
                    wanted |= dict.fromkeys(names, _shape(weight, len(names)))
            skipped = {name: _why_unused(name) for name in shapes if name not in wanted}
            used = {k: v for k, v in shapes.items() if not skipped.get(k)}
            check_fit(path, used, wanted)

            def read(name):
                return np.asarray(file.get_tensor(stored[name]), "float32")

            for copy, original in TIED.items():
                if copy in stored and np.any(read(copy) != read(original)):
                    raise PresetError(
                        path, f"{copy} differs from {original}; the two must be tied."
                    )
            backbone, head = build()
            for weight, names in _sources(backbone, head):
                arrays = [read(name) for name in names]
                if weight.name == "kernel":
                    arrays = [array.T for array in arrays]
                weight.assign(np.concatenate(arrays, axis=-1))
            if single_segment:
                table = backbone.embeddings.position_embedding.embeddings
                table.assign_add(read(SEGMENTS)[:1])
    except safetensors.SafetensorError as error:
        raise PresetError(path, f"not a safetensors file: {error}.") from error
    for reason in sorted(set(skipped.values())):
        names = sorted(name for name in skipped if skipped[name] == reason)
        logging.warning("Skipped %s: %s.", reason, ", ".join(names))
    return backbone, head


def save_bert_transformers(directory, backbone, head):
    """Write a backbone and its head as a Hugging Face `BertForMaskedLM`.

    `transformers.BertForMaskedLM.from_pretrained(directory)` reads the folder. A
    backbone without segments gets an embedding of two segments, all zero.

    Args:
        directory: the folder to write `config.json` and `model.safetensors` into.
        backbone: a `keras_tta.models.TransformerBackbone` as BERT's: under `All()`, its
            embeddings as wide as its layers.
        head: its `keras_tta.layers.TokenPredictionHead`.

    Raises:
        ValueError: if the model is none that `BertForMaskedLM` can be.

    Example: see `load_bert_transformers`.
    """
    if not isinstance(backbone, TransformerBackbone):
        raise ValueError(
            "Hugging Face's BERT is a `TransformerBackbone`. "
            f"Received: a {type(backbone).__name__}"
        )
    for name, received, accepted in (
        ("visibility", backbone.visibility, All()),
        ("embedding_dim", backbone.embedding_dim, backbone.hidden_dim),
        (
            "layer_norm_epsilon of the head",
            head.layer_norm_epsilon,
            backbone.layer_norm_epsilon,
        ),
    ):
        if received != accepted:
            raise ValueError(
                f"Hugging Face's BERT cannot hold this model: {name} must be "
                f"{accepted!r}. Received: {received!r}"
            )
    segments = backbone.num_segments or 2
    tensors = {}
    for weight, names in _sources(backbone, head):
        array = ops.convert_to_numpy(ops.cast(weight, "float32"))
        for name, part in zip(names, np.split(array, len(names), -1), strict=True):
            part = part.T if weight.name == "kernel" else part
            tensors[name] = np.ascontiguousarray(part)
    tensors.setdefault(SEGMENTS, np.zeros((segments, backbone.hidden_dim), "float32"))
    config = {
        "architectures": ["BertForMaskedLM"],
        **REQUIRED,
        **{theirs: getattr(backbone, ours) for ours, theirs in SIZES.items()},
        "type_vocab_size": segments,
        "layer_norm_eps": backbone.layer_norm_epsilon,
        "hidden_dropout_prob": backbone.dropout,
        "attention_probs_dropout_prob": backbone.dropout,
    }
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.safetensors").write_bytes(
        safetensors.numpy.save(tensors, metadata={"format": "pt"})
    )
    (directory / "config.json").write_text(json.dumps(config, indent=4), "utf-8")


def _settings(directory):
    """Arguments of `TransformerBackbone` from a folder's `config.json`."""
    config = read_json(directory, "config.json")
    path = preset_file(directory, "config.json")
    for name, accepted in REQUIRED.items():
        if config.get(name, accepted) != accepted:
            raise PresetError(
                path,
                f"`{name}` must be {accepted!r} to be BERT. Received: {config[name]!r}",
            )
    missing = [name for name in SIZES.values() if not isinstance(config.get(name), int)]
    if missing:
        raise PresetError(path, f"has no number under {', '.join(missing)}.")
    dropout = config.get("hidden_dropout_prob", 0.1)
    if config.get("attention_probs_dropout_prob", dropout) != dropout:
        logging.warning(
            "%s has two rates of dropout; `hidden_dropout_prob`, %s, is used for both.",
            path,
            dropout,
        )
    return {
        **{ours: config[theirs] for ours, theirs in SIZES.items()},
        "dropout": dropout,
        "layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
    }


def _modern(name):
    """A tensor's present name: old files call a norm's weights gamma and beta."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _why_unused(name):
    if name in TIED:
        return "copies of tied weights"
    return next((why for why, start in UNUSED.items() if re.match(start, name)), None)


def _shape(weight, parts):
    """The shape of one of a weight's `parts` in the file."""
    *rows, columns = weight.shape
    shape = (*rows, columns // parts)
    return shape[::-1] if weight.name == "kernel" else shape


def _sources(backbone, head):
    """Pairs of a weight and the tensors that, side by side, make it up."""
    embeddings, encoder = backbone.embeddings, backbone.encoder
    start = "bert.embeddings"
    yield embeddings.token_embedding.embeddings, [f"{start}.word_embeddings.weight"]
    yield (
        embeddings.position_embedding.embeddings,
        [f"{start}.position_embeddings.weight"],
    )
    if backbone.num_segments:
        yield embeddings.segment_embedding.embeddings, [SEGMENTS]
    yield from _norm(embeddings.norm, f"{start}.LayerNorm")
    parts = zip(encoder.attentions, encoder.blocks, strict=True)
    for index, (attention, block) in enumerate(parts):
        layer = f"bert.encoder.layer.{index}"
        read = f"{layer}.attention.self"
        yield from _dense(attention.query_dense, f"{read}.query")
        yield from _dense(attention.key_value_dense, f"{read}.key", f"{read}.value")
        yield from _dense(attention.output_dense, f"{layer}.attention.output.dense")
        yield from _norm(block.attention_norm, f"{layer}.attention.output.LayerNorm")
        yield from _dense(block.intermediate_dense, f"{layer}.intermediate.dense")
        yield from _dense(block.output_dense, f"{layer}.output.dense")
        yield from _norm(block.output_norm, f"{layer}.output.LayerNorm")
    yield from _dense(head.transform_dense, "cls.predictions.transform.dense")
    yield from _norm(head.transform_norm, "cls.predictions.transform.LayerNorm")
    yield head.bias, ["cls.predictions.bias"]


def _dense(layer, *scopes):
    yield layer.kernel, [f"{scope}.weight" for scope in scopes]
    yield layer.bias, [f"{scope}.bias" for scope in scopes]


def _norm(layer, scope):
    yield layer.gamma, [f"{scope}.weight"]
    yield layer.beta, [f"{scope}.bias"]
