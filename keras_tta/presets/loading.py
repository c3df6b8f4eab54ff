"""Loading presets: nothing is imported, run or allocated because a file says so."""

from pathlib import Path

import keras

from keras_tta.layers import ReplacedTokenHead
from keras_tta.presets.classes import BACKBONES, HEADS, MASKERS, TOKENIZERS
from keras_tta.presets.files import (
    OBJECTIVE_BYTES,
    PresetError,
    build_from,
    described_object,
    preset_file,
    read_json,
    read_object,
)
from keras_tta.presets.weights import (
    check_fit,
    load_safetensors,
    named_weights,
    open_h5,
    read_dataset,
    shapes_of,
)

VOCABULARY_BYTES = 1 << 27


def load_backbone(directory, dtype=None):
    """Load a backbone from a preset folder, guarded.

    Unlike `keras_hub.models.Backbone.from_preset`, which loads the same folders, it is
    meant for presets from anywhere: only our own backbones and KerasHub's `T5Backbone`
    and `BartBackbone` are built, every tensor is compared with the model before memory
    is taken, links and files outside the preset are refused.

    Args:
        directory: a local preset folder.
        dtype: a dtype or policy. Defaults to the current global policy, whatever the
            model was saved under.

    Returns:
        The backbone, such as a `keras_tta.models.TTABackbone`.

    Raises:
        FileNotFoundError: if the folder or a file is missing.
        PresetError: a ValueError that names the file and what is wrong with it.

    Example:
    ```python
    from keras_tta.models import TTABackbone
    from keras_tta.presets import load_backbone, save_preset

    backbone = TTABackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    save_preset("tiny", backbone)
    assert load_backbone("tiny").count_params() == backbone.count_params()
    ```
    """
    cls, settings = read_object(directory, "config.json", BACKBONES)
    config_path = preset_file(directory, "config.json")
    path = preset_file(directory, "model.weights.h5")

    def build():
        config = {**settings, "dtype": dtype}
        return build_from(config_path, cls, config)

    with open_h5(path) as stored:
        num_layers = settings.get("num_layers")
        if isinstance(num_layers, int) and num_layers > len(stored):
            raise PresetError(
                config_path,
                f"{num_layers} layers, but the weights are {len(stored)} tensors.",
            )
        shapes = {name: tuple(dataset.shape) for name, dataset in stored.items()}
        check_fit(path, shapes, shapes_of(build))
        backbone = build()
        for name, weight in named_weights(backbone).items():
            weight.assign(read_dataset(stored[name]))
    return backbone


def load_head(directory, backbone, name="token_prediction_head"):
    """Load a head from a preset folder, guarded, onto a backbone.

    Args:
        directory: a local preset folder.
        backbone: the model it was saved with, see `load_backbone`.
        name: the head's name. Defaults to `"token_prediction_head"`.

    Returns:
        The head, such as a `keras_tta.layers.TokenPredictionHead`, in the backbone's
        dtype.

    Raises:
        FileNotFoundError: if the preset has no such head.
        PresetError: a ValueError that names the file and what is wrong with it.

    Example:
    ```python
    from keras_tta.models import TTABackbone
    from keras_tta.presets import load_backbone, load_head, save_preset
    from keras_tta.pretraining import LanguageAutoencoder

    backbone = TTABackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    LanguageAutoencoder(backbone).save_to_preset("tiny")
    backbone = load_backbone("tiny")
    head = load_head("tiny", backbone)
    assert head.token_embedding is backbone.token_embedding
    ```
    """
    cls, settings = _read_head(directory, name)
    settings = {**settings, "name": name, "dtype": backbone.dtype_policy}
    if cls is not ReplacedTokenHead:
        settings["token_embedding"] = backbone.token_embedding
    head = build_from(preset_file(directory, f"{name}.json"), cls, settings)
    head.build(backbone.output_shape)
    load_head_weights(directory, head)
    return head


def load_head_weights(directory, head):
    """Give a built head the weights of its namesake in a preset, guarded.

    Raises:
        FileNotFoundError: if the preset has no head of this name.
        PresetError: if that head is of another class or has other settings.
    """
    cls, settings = _read_head(directory, head.name)
    if cls is not type(head) or settings != head_settings(head):
        raise PresetError(
            preset_file(directory, f"{head.name}.json"),
            f"a {cls.__name__} with {settings}; the model has a "
            f"{type(head).__name__} with {head_settings(head)}.",
        )
    path = preset_file(directory, f"{head.name}.safetensors")
    load_safetensors(path, head_weights(head))


def load_tokenizer(directory):
    """Load the tokenizer of a preset folder, guarded.

    Args:
        directory: a local preset folder.

    Returns:
        The tokenizer, such as a `keras_tta.data.TTATokenizer`.

    Raises:
        FileNotFoundError: if the preset has no tokenizer or no vocabulary.
        PresetError: a ValueError that names the file and what is wrong with it.

    Example:
    ```python
    from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
    from keras_tta.presets import load_tokenizer

    TTATokenizer([*SPECIAL_TOKENS, "a", "##b"]).save_to_preset("tiny")
    assert load_tokenizer("tiny").encode("ab") == [7, 8]
    ```
    """
    cls, settings = read_object(directory, "tokenizer.json", TOKENIZERS)
    path = preset_file(directory, "tokenizer.json")
    # Where else they could point to is none of a preset's business.
    for key, expected in (("vocabulary", None), ("config_file", "tokenizer.json")):
        if settings.pop(key, expected) != expected:
            raise PresetError(path, f"`{key}` must be {expected!r}.")
    tokenizer = build_from(path, cls, settings)
    for name in tokenizer.file_assets:
        asset = preset_file(directory, f"assets/tokenizer/{name}", VOCABULARY_BYTES)
    build_from(asset, tokenizer.load_assets, {"dir_path": str(asset.parent)})
    return tokenizer


def load_objective(directory):
    """What a preset says of its training: `(registered name, settings)`, if anything.

    Returns:
        The name of the pretrainer's class, and a dict of plain values and corruption
        layers; or `(None, {})`.
    """
    try:
        data = read_json(directory, "pretrainer.json", OBJECTIVE_BYTES)
    except FileNotFoundError:
        return None, {}
    path = preset_file(directory, "pretrainer.json")
    name, settings = data.get("registered_name"), data.get("config")
    if not (isinstance(name, str) and isinstance(settings, dict)):
        raise PresetError(path, "not the name of a class and plain settings.")
    return name, {key: _objective_setting(path, x) for key, x in settings.items()}


def _objective_setting(path, value):
    if isinstance(value, dict):
        if value and all(isinstance(x, (int, float)) for x in value.values()):
            return value
        return build_from(path, *described_object(path, value, MASKERS))
    values = value if isinstance(value, list) else [value]
    if all(x is None or isinstance(x, (str, int, float)) for x in values):
        return value
    raise PresetError(path, "not the name of a class and plain settings.")


def head_settings(head):
    """A head's own settings: what neither the backbone nor the loader decides."""
    config = head.get_config()
    inherited = keras.layers.Layer().get_config()
    return {
        key: value
        for key, value in config.items()
        if key not in inherited and isinstance(value, (str, int, float))
    }


def head_weights(head):
    """A head's own weights by name, the backbone's table left out."""
    shared = [head.token_embedding] if hasattr(head, "token_embedding") else []
    weights = named_weights(head, without=shared)
    return {
        f"{path.rpartition('vars/')[0]}{weight.name}": weight
        for path, weight in weights.items()
    }


def _read_head(directory, name):
    try:
        return read_object(directory, f"{name}.json", HEADS)
    except FileNotFoundError as error:
        generator = Path(directory, "generator")
        hint = (
            f"It is a discriminator's: the generator, in {generator}, predicts tokens."
            if (generator / f"{name}.json").is_file()
            else "To begin a training with a new head, build the objective on "
            "`keras_tta.presets.load_backbone(...)`."
        )
        raise FileNotFoundError(f"{error} It holds no head `{name}`. {hint}") from None
