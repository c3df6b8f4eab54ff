"""The files of a preset, opened with suspicion: a preset may come from a stranger."""

import json
import re
from pathlib import Path

import keras

from keras_tta.visibility import Visibility

JSON_BYTES = 1 << 20
# A unigram generator's counts of all tokens stand in it.
OBJECTIVE_BYTES = 1 << 25
NESTING = 32


class PresetError(ValueError):
    """A preset that cannot or must not be loaded; names the file and the reason.

    Example:
    ```python
    from keras_tta.presets import PresetError, load_backbone

    try:
        load_backbone("hf://somebody/something")
    except PresetError as error:
        assert "local folder" in str(error)
    ```
    """

    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")


def preset_file(directory, name, max_bytes=None):
    """The path of a file that lies in a preset, and nowhere else.

    Raises:
        FileNotFoundError: if there is no such file.
        PresetError: if the file is reached through a link, is no regular file, is
            larger than `max_bytes`, or `directory` is the address of a hub.
    """
    if "://" in str(directory):
        raise PresetError(
            directory,
            "a preset is loaded from a local folder. Download it first, for example "
            "with `huggingface_hub.snapshot_download(repo_id, local_dir=...)`.",
        )
    path = Path(directory)
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: there is no preset folder of this name.")
    for part in name.split("/"):
        path = path / part
        if not re.fullmatch(r"\w[\w.-]*", part):
            raise PresetError(path, "files of a preset have plain names.")
        if path.is_symlink():
            raise PresetError(
                path,
                "links are refused, since they may lead out of the preset. If this is "
                "a hub's cache, download with `local_dir=...`.",
            )
    if not path.exists():
        inner = Path(directory, "preset", name)
        hint = f" There is one in {inner.parent}." if inner.is_file() else ""
        raise FileNotFoundError(f"{path}: the preset has no file `{name}`.{hint}")
    if not path.is_file():
        raise PresetError(path, "not a regular file.")
    if max_bytes and path.stat().st_size > max_bytes:
        raise PresetError(
            path,
            f"{path.stat().st_size:,} bytes; such a file has at most {max_bytes:,}.",
        )
    return path


def nested_preset(directory, name):
    """The folder of a preset within a preset, refused if a link leads to it."""
    return preset_file(directory, f"{name}/config.json").parent


def read_json(directory, name, max_bytes=JSON_BYTES):
    """The object in a small JSON file of a preset."""
    path = preset_file(directory, name, max_bytes)

    def refuse(constant):
        raise ValueError(f"the number {constant} is not JSON")

    try:
        data = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise PresetError(path, f"not valid JSON: {error}.") from error
    if not isinstance(data, dict):
        raise PresetError(path, "not a JSON object.")
    return data


def read_object(directory, name, classes):
    """A class and its settings, from a JSON file that may name `classes` only.

    What Keras writes into `module` is not read: classes come from the closed set, and
    visibility rules inside the settings from those registered in this process.

    Args:
        directory, name: the preset and the file.
        classes: dict of the accepted classes by their registered names.

    Returns:
        `(class, settings)`; the settings are plain values and serialised rules.
    """
    return described_object(Path(directory, name), read_json(directory, name), classes)


def described_object(path, data, classes):
    """As `read_object`, from what a JSON object of the file at `path` says."""
    registered_name, settings = data.get("registered_name"), data.get("config")
    if not isinstance(registered_name, str) or registered_name not in classes:
        raise PresetError(
            path,
            f"names the class {registered_name!r}. Accepted: "
            f"{', '.join(sorted(classes))}.",
        )
    if not isinstance(settings, dict):
        raise PresetError(path, "has no settings under `config`.")
    # The dtype is the loader's choice, as in KerasHub, and so is what is trained.
    ours = {"dtype", "trainable"}
    settings = {key: value for key, value in settings.items() if key not in ours}
    return classes[registered_name], {
        key: _plain(path, key, value) for key, value in settings.items()
    }


def build_from(path, make, settings):
    """`make(**settings)`, with an error that names the file they come from."""
    try:
        return make(**settings)
    except Exception as error:
        raise PresetError(path, f"nothing can be built from it: {error}") from error


def _plain(path, key, value, depth=0):
    """The value again, if it is made of scalars, lists and visibility rules."""
    if depth > NESTING:
        raise PresetError(path, f"`{key}` is nested more than {NESTING} deep.")
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, list):
        return [_plain(path, key, item, depth + 1) for item in value]
    name, settings = value.get("registered_name"), value.get("config")
    cls = keras.saving.get_registered_object(name) if isinstance(name, str) else None
    if not (isinstance(cls, type) and issubclass(cls, Visibility)):
        raise PresetError(
            path,
            f"`{key}` holds an object of class {name or value.get('class_name')!r}; "
            "only visibility rules may stand there.",
        )
    if not isinstance(settings, dict):
        raise PresetError(path, f"the rule {name} in `{key}` has no `config`.")
    return {
        "module": cls.__module__,
        "class_name": cls.__name__,
        "registered_name": name,
        "config": {k: _plain(path, key, v, depth + 1) for k, v in settings.items()},
    }
