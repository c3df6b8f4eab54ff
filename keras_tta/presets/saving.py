"""Saving presets: written aside, moved into place when complete."""

import json

import keras

from keras_tta.files import replace_entries
from keras_tta.models.disentangled import with_own_tables
from keras_tta.presets.card import model_card
from keras_tta.presets.loading import head_settings, head_weights
from keras_tta.presets.weights import save_safetensors
from keras_tta.version import __version__

# What makes up a preset, ours or KerasHub's: a new one replaces all of it, and a folder
# as a whole.
PARTS = (
    "README.md",
    "assets",
    "config.json",
    "generator/metadata.json",
    "metadata.json",
    "model*.weights.*",
    "preprocessor.json",
    "pretrainer.json",
    "task.*",
    "tokenizer.json",
    "*_head.json",
    "*_head.safetensors",
)


def save_preset(
    directory,
    backbone,
    heads=None,
    tokenizer=None,
    objective=None,
    figures=None,
    generator=None,
):
    """Save a backbone, its heads and its tokenizer as a preset in KerasHub's layout.

    The folder holds `config.json`, `model.weights.h5` and `metadata.json` of the
    backbone, a `.json` and a `.safetensors` file for each head, `tokenizer.json` and
    `assets/`, and a model card, `README.md`. KerasHub loads the backbone and the
    tokenizer, on any backend, once `keras_tta` is imported.

    A preset that was there before is replaced when the new one is completely written,
    not earlier; files that belong to no preset stay.

    Args:
        directory: the folder to write.
        backbone: one of `keras_tta.models`, or KerasHub's `T5Backbone` or
            `BartBackbone`.
        heads: dict of built heads; a name ends in `_head`. Defaults to none.
        tokenizer: a tokenizer of `keras_tta.data`. Defaults to none.
        objective: dict of `registered_name` and `config`, plain values that the
            objective is rebuilt from. `Pretrainer.save_to_preset` gives it.
        figures: dict of training figures for the model card, from name to value.
        generator: a second backbone and its heads, ELECTRA's, for a preset of their own
            in the folder `generator`, with the same tokenizer. Defaults to none.

    Raises:
        ValueError: if the tokenizer has more tokens than the backbone, or a head's
            name does not end in `_head`.
        OSError: if writing fails; what was saved before is unharmed.

    Example:
    ```python
    import os

    from keras_tta.models import TTABackbone
    from keras_tta.presets import save_preset

    backbone = TTABackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    save_preset("tiny", backbone, figures={"held-out nats per token": 3.1})
    assert "model.weights.h5" in os.listdir("tiny")
    ```
    """
    networks = {"": (backbone, heads or {})}
    if generator is not None:
        networks["generator"] = generator
    for network in networks.values():
        _check(*network, tokenizer)
    with replace_entries(directory, last="config.json", leaving=PARTS) as new:
        for folder, network in networks.items():
            training = (None, None) if folder else (objective, figures)
            _write(new / folder, *network, tokenizer, *training)


def _check(backbone, heads, tokenizer):
    for name in heads:
        if not name.endswith("_head"):
            raise ValueError(f"A head's name ends in `_head`. Received: {name!r}")
    if tokenizer is not None:
        if tokenizer.vocabulary_size() > backbone.vocabulary_size:
            raise ValueError(
                f"The tokenizer has {tokenizer.vocabulary_size()} tokens, the backbone "
                f"an embedding for {backbone.vocabulary_size}: they do not belong "
                "together."
            )


def _write(folder, backbone, heads, tokenizer, objective, figures):
    """Write a preset into a folder that is new."""
    backbone = with_own_tables(backbone)
    backbone.save_to_preset(str(folder), max_shard_size=None)
    metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
    _write_json(
        folder / "metadata.json", {**metadata, "keras_tta_version": __version__}
    )
    for name, head in heads.items():
        description = {
            "registered_name": keras.saving.get_registered_name(type(head)),
            "config": head_settings(head),
        }
        _write_json(folder / f"{name}.json", description)
        save_safetensors(folder / f"{name}.safetensors", head_weights(head))
    if tokenizer is not None:
        tokenizer.save_to_preset(str(folder))
    if objective is not None:
        _write_json(folder / "pretrainer.json", objective)
    card = model_card(backbone, heads, tokenizer, objective, figures)
    (folder / "README.md").write_text(card, "utf-8")


def _write_json(path, data):
    path.write_text(json.dumps(data, indent=4), "utf-8")
