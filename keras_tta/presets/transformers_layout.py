"""Hugging Face's folders: `config.json` and `model.safetensors`, in and out.

Neither torch nor transformers is needed. A layout says which tensors make up which
weights; what is here reads and writes any of them.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes  # noqa: F401  safetensors reads bfloat16 with it
import numpy as np
import safetensors
import safetensors.numpy
from absl import logging
from keras import ops

from keras_tta.data import TTATokenizer
from keras_tta.files import replace_entries
from keras_tta.models import TransformerBackbone
from keras_tta.models.disentangled import with_own_tables
from keras_tta.presets.files import PresetError, build_from, preset_file, read_json
from keras_tta.presets.weights import check_fit, unallocated

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
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


@dataclass(frozen=True)
class Layout:
    """One architecture's names.

    Args:
        name: what people call it.
        architecture: the class that writes and reads such a folder.
        model_type: what `config.json` says.
        start: what the encoder's tensors begin with.
        make_head: from a backbone to its built head.
        head_sources: from a head to pairs of a weight and its tensors.
        tied: copies that are there in some files, and what they must agree with.
        unused: why tensors are skipped, and a pattern for their names.
        sizes: more sizes that differ between models, ours to theirs.
        likely: why weights and `config.json` would be of different widths.
    """

    name: str
    architecture: str
    model_type: str
    start: str
    make_head: Callable
    head_sources: Callable
    tied: dict = field(default_factory=dict)
    unused: dict = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)
    likely: str = "the two files are of different models"

    @property
    def required(self):
        predicts_tokens = {"tie_word_embeddings": True} if self.tied else {}
        return {"model_type": self.model_type, **REQUIRED, **predicts_tokens}

    @property
    def all_sizes(self):
        return {**SIZES, **self.sizes}

    @property
    def segments(self):
        return f"{self.start}.embeddings.token_type_embeddings.weight"

    def sources(self, backbone, head):
        """Pairs of a weight and the tensors that, side by side, make it up."""
        embeddings, encoder = backbone.embeddings, backbone.encoder
        tables = f"{self.start}.embeddings"
        yield (
            embeddings.token_embedding.embeddings,
            [f"{tables}.word_embeddings.weight"],
        )
        yield (
            embeddings.position_embedding.embeddings,
            [f"{tables}.position_embeddings.weight"],
        )
        if backbone.num_segments:
            yield embeddings.segment_embedding.embeddings, [self.segments]
        yield from norm_sources(embeddings.norm, f"{tables}.LayerNorm")
        if backbone.embedding_projection is not None:
            yield from dense_sources(
                backbone.embedding_projection, f"{self.start}.embeddings_project"
            )
        parts = zip(encoder.attentions, encoder.blocks, strict=True)
        for index, (attention, block) in enumerate(parts):
            layer = f"{self.start}.encoder.layer.{index}"
            read, written = f"{layer}.attention.self", f"{layer}.attention.output"
            yield from dense_sources(attention.query_dense, f"{read}.query")
            yield from dense_sources(
                attention.key_value_dense, f"{read}.key", f"{read}.value"
            )
            yield from dense_sources(attention.output_dense, f"{written}.dense")
            yield from norm_sources(block.attention_norm, f"{written}.LayerNorm")
            yield from dense_sources(
                block.intermediate_dense, f"{layer}.intermediate.dense"
            )
            yield from dense_sources(block.output_dense, f"{layer}.output.dense")
            yield from norm_sources(block.output_norm, f"{layer}.output.LayerNorm")
        yield from self.head_sources(head)


def dense_sources(layer, *scopes):
    yield layer.kernel, [f"{scope}.weight" for scope in scopes]
    yield layer.bias, [f"{scope}.bias" for scope in scopes]


def norm_sources(layer, scope):
    yield layer.gamma, [f"{scope}.weight"]
    yield layer.beta, [f"{scope}.bias"]


def load_layout(directory, layout, single_segment=True, dtype=None):
    """`(backbone, head)` from a folder; tensors are compared before memory is taken."""
    settings = _settings(directory, layout)
    config_path = preset_file(directory, "config.json")
    path = _weights_file(directory, layout)
    segments = settings.pop("num_segments")
    if not single_segment:
        settings["num_segments"] = segments
    width = settings.get("embedding_dim", settings["hidden_dim"])

    def build():
        backbone = build_from(
            config_path, TransformerBackbone, {**settings, "dtype": dtype}
        )
        return backbone, layout.make_head(backbone)

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
            _check_width(path, layout, shapes, settings)
            with unallocated():
                wanted = {layout.segments: (segments, width)}
                for weight, names in layout.sources(*build()):
                    wanted |= dict.fromkeys(names, _shape(weight, len(names)))
            skipped = {
                name: _why_unused(layout, name) for name in shapes if name not in wanted
            }
            used = {k: v for k, v in shapes.items() if not skipped.get(k)}
            check_fit(path, used, wanted)

            def read(name):
                return np.asarray(file.get_tensor(stored[name]), "float32")

            for copy, original in layout.tied.items():
                if copy in stored and np.any(read(copy) != read(original)):
                    raise PresetError(
                        path, f"{copy} differs from {original}; the two must be tied."
                    )
            backbone, head = build()
            for weight, names in layout.sources(backbone, head):
                arrays = [read(name) for name in names]
                if weight.name == "kernel":
                    arrays = [array.T for array in arrays]
                weight.assign(np.concatenate(arrays, axis=-1))
            if single_segment:
                table = backbone.embeddings.position_embedding.embeddings
                table.assign_add(read(layout.segments)[:1])
    except safetensors.SafetensorError as error:
        raise PresetError(path, f"not a safetensors file: {error}.") from error
    for reason in sorted(set(skipped.values())):
        names = sorted(name for name in skipped if skipped[name] == reason)
        logging.warning("Skipped %s: %s.", reason, ", ".join(names))
    return backbone, head


def save_layout(directory, layout, backbone, head, tokenizer=None):
    """Write a backbone and its head as the folder that a layout describes.

    Files of the same names are replaced when the new ones are complete, not earlier.
    """
    check_no_preset(directory)
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    backbone = with_own_tables(backbone)
    segments = backbone.num_segments or 2
    tensors = {}
    for weight, names in layout.sources(backbone, head):
        array = ops.convert_to_numpy(ops.cast(weight, "float32"))
        for name, part in zip(names, np.split(array, len(names), -1), strict=True):
            part = part.T if weight.name == "kernel" else part
            tensors[name] = np.ascontiguousarray(part)
    tensors.setdefault(
        layout.segments, np.zeros((segments, backbone.embedding_dim), "float32")
    )
    config = {
        "architectures": [layout.architecture],
        **layout.required,
        **{
            theirs: getattr(backbone, ours) for ours, theirs in layout.all_sizes.items()
        },
        "type_vocab_size": segments,
        "layer_norm_eps": backbone.layer_norm_epsilon,
        "hidden_dropout_prob": backbone.dropout,
        "attention_probs_dropout_prob": backbone.dropout,
    }
    with replace_entries(directory, last="config.json") as new:
        (new / "model.safetensors").write_bytes(
            safetensors.numpy.save(tensors, metadata={"format": "pt"})
        )
        (new / "config.json").write_text(json.dumps(config, indent=4), "utf-8")
        if tokenizer is not None:
            save_tokenizer(new, tokenizer)


def check_no_preset(directory):
    """Raise if a folder holds a preset, whose `config.json` would be replaced."""
    if Path(directory, "metadata.json").exists():
        raise ValueError(
            f"{directory} holds a preset, which this would damage: name another folder."
        )


def check_tokenizer(tokenizer):
    """Raise unless a tokenizer splits as Hugging Face's `BertTokenizer` does."""
    if not isinstance(tokenizer, TTATokenizer):
        raise ValueError(
            "A Hugging Face BERT or ELECTRA reads word pieces: `tokenizer` must be a "
            "`keras_tta.data.TTATokenizer`. Another saves itself for them by "
            '`tokenizer.huggingface.save("tokenizer.json")`. '
            f"Received: tokenizer={tokenizer!r}"
        )


def save_tokenizer(directory, tokenizer):
    """Write `vocab.txt` and the settings `BertTokenizer` reads."""
    vocabulary = "".join(f"{token}\n" for token in tokenizer.get_vocabulary())
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.split_on_cjk,
        "cls_token": tokenizer.start_token,
        "sep_token": tokenizer.end_token,
        "pad_token": tokenizer.pad_token,
        "mask_token": tokenizer.mask_token,
        "unk_token": tokenizer.oov_token,
    }
    (directory / "vocab.txt").write_text(vocabulary, "utf-8")
    (directory / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=4), "utf-8"
    )


def check_exportable(layout, backbone, accepted):
    """Raise unless a backbone is a Transformer of which all that is `accepted` holds.

    Args:
        accepted: from the backbone to triples of a name, what it is and must be.
    """
    if not isinstance(backbone, TransformerBackbone):
        raise ValueError(
            f"Hugging Face's {layout.name} is a `TransformerBackbone`. "
            f"Received: a {type(backbone).__name__}"
        )
    for name, received, wanted in accepted(backbone):
        if received != wanted:
            raise ValueError(
                f"Hugging Face's {layout.name} cannot hold this model: {name} must be "
                f"{wanted!r}. Received: {received!r}"
            )


def _weights_file(directory, layout):
    try:
        return preset_file(directory, "model.safetensors")
    except FileNotFoundError as error:
        others = sorted(
            path.name
            for path in Path(directory).iterdir()
            if path.suffix in (".bin", ".h5", ".msgpack", ".safetensors")
        )
        found = f"It has {', '.join(others)}. " if others else ""
        raise FileNotFoundError(
            f"{error} {found}To write it from others, once, with transformers: "
            f"{layout.architecture}.from_pretrained(folder).save_pretrained(folder, "
            "max_shard_size='100GB')"
        ) from None


def _settings(directory, layout):
    """Arguments of `TransformerBackbone` from a folder's `config.json`."""
    config = read_json(directory, "config.json")
    path = preset_file(directory, "config.json")
    for name, accepted in layout.required.items():
        if config.get(name, accepted) != accepted:
            raise PresetError(
                path,
                f"`{name}` must be {accepted!r} to be {layout.name}. "
                f"Received: {config[name]!r}",
            )
    sizes = layout.all_sizes
    missing = [name for name in sizes.values() if not isinstance(config.get(name), int)]
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
        **{ours: config[theirs] for ours, theirs in sizes.items()},
        "dropout": dropout,
        "layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
    }


def _check_width(path, layout, shapes, settings):
    """Raise where weights and config are of two models of different width."""
    bias = f"{layout.start}.encoder.layer.0.attention.self.query.bias"
    width = shapes.get(bias, (settings["hidden_dim"],))[0]
    if width != settings["hidden_dim"]:
        raise PresetError(
            path,
            f"the weights are of a model with hidden_size {width}, `config.json` says "
            f"{settings['hidden_dim']}. Likely {layout.likely}. Take both files from "
            "one folder, or set `hidden_size`, `intermediate_size` and "
            "`num_attention_heads` to those of the weights.",
        )


def _modern(name):
    """A tensor's present name: old files call a norm's weights gamma and beta."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _why_unused(layout, name):
    if name in layout.tied:
        return "copies of tied weights"
    reasons = layout.unused.items()
    return next((why for why, start in reasons if re.match(start, name)), None)


def _shape(weight, parts):
    """The shape of one of a weight's `parts` in the file."""
    *rows, columns = weight.shape
    shape = (*rows, columns // parts)
    return shape[::-1] if weight.name == "kernel" else shape
