"""Weights in files: compared name by name and shape by shape before they are read."""

from contextlib import contextmanager

import h5py
import keras
import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
from keras.src.backend.common import global_state
from keras.src.saving import saving_lib

from keras_tta.presets.files import PresetError

# Keras writes about 50 a layer.
MAX_OBJECTS = 50_000


def named_weights(saveable, without=()):
    """Where Keras's `.weights.h5` keeps each variable of a model or layer.

    Args:
        saveable: a built model or layer.
        without: layers to leave out.

    Returns:
        A dict from the path in the file to the variable.
    """
    outline = _Outline()
    visited = {id(layer) for layer in without}
    saving_lib._save_state(saveable, outline, None, "", visited)
    return {
        f"{path}/vars/{key}".lstrip("/"): variable
        for path, entry in outline.entries.items()
        for key, variable in entry.items()
    }


@contextmanager
def unallocated():
    """In this context variables have shapes and take no memory."""
    pending = global_state.get_global_attribute(
        "uninitialized_variables", [], set_to_default=True
    )
    already = len(pending)
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        # Else Keras would allocate them when it next leaves such a scope.
        del pending[already:]


def shapes_of(build):
    """The shapes of a model's weights, without ever allocating them."""
    with unallocated():
        weights = named_weights(build())
        return {name: tuple(weight.shape) for name, weight in weights.items()}


@contextmanager
def open_h5(path):
    """The tensors of an HDF5 file, a dict of datasets by name, none of them read.

    Raises:
        PresetError: if the file holds anything but plain float arrays of its own:
            links, arrays stored in other files, virtual, chunked or compressed ones.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise PresetError(path, f"not a readable HDF5 file: {error}.") from error
    with file:
        yield dict(_datasets(path, file))


def read_dataset(dataset):
    if dataset.attrs.get("dtype") == "bfloat16":
        return dataset[...].view(ml_dtypes.bfloat16).astype("float32")
    return dataset[...]


def check_fit(path, found, wanted):
    """Raise unless two dicts of shapes agree; lists what does not."""
    complaints = [f"{name} is missing" for name in wanted if name not in found]
    complaints += [
        f"{name} has shape {found[name]}, the model's is {wanted[name]}"
        for name in wanted
        if name in found and found[name] != wanted[name]
    ]
    complaints += [f"{name} is unknown" for name in found if name not in wanted]
    if complaints:
        raise PresetError(
            path, "the weights do not fit the model:\n  " + "\n  ".join(complaints)
        )


def save_safetensors(path, weights):
    """Write variables by name, as float32."""
    arrays = {
        name: np.ascontiguousarray(keras.ops.convert_to_numpy(weight), "float32")
        for name, weight in weights.items()
    }
    # Not `save_file`, whose files only their owner may read.
    path.write_bytes(safetensors.numpy.save(arrays))


def load_safetensors(path, weights):
    """Assign every variable its tensor; any that is missing or misfit is an error."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}
            found = {name: tuple(x.get_shape()) for name, x in slices.items()}
            check_fit(path, found, {k: tuple(v.shape) for k, v in weights.items()})
            for name, x in slices.items():
                if x.get_dtype() != "F32":
                    raise PresetError(path, f"{name} is {x.get_dtype()}, not F32.")
            for name, weight in weights.items():
                weight.assign(file.get_tensor(name))
    except safetensors.SafetensorError as error:
        raise PresetError(path, f"not a safetensors file: {error}.") from error


class _Outline(saving_lib.H5IOStore):
    """Takes down what Keras would write where, and writes nothing."""

    def __init__(self):
        self.entries = {}

    def __bool__(self):
        return True

    def make(self, path, metadata=None):
        return self.entries.setdefault(path, {})


def _datasets(path, file):
    groups, seen = [file], {h5py.h5o.get_info(file.id).addr}
    while groups:
        group = groups.pop()
        for key in group:
            name = f"{group.name}/{key}".lstrip("/")
            link = group.id.links.get_info(key.encode()).type
            if link != h5py.h5l.TYPE_HARD:
                raise PresetError(path, f"{name} is a link; links are refused.")
            item = group[key]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise PresetError(path, f"{name} is also in another place.")
            seen.add(address)
            if len(seen) > MAX_OBJECTS:
                raise PresetError(path, f"more than {MAX_OBJECTS:,} objects.")
            if isinstance(item, h5py.Group):
                groups.append(item)
            else:
                yield name, _checked(path, name, item)


def _checked(path, name, item):
    if not isinstance(item, h5py.Dataset) or item.shape is None:
        raise PresetError(path, f"{name} is not an array.")
    if item.external or item.is_virtual:
        raise PresetError(path, f"{name} is stored in another file; that is refused.")
    # What is declared must be there: no compression, no unwritten fill values.
    if item.chunks or item.id.get_storage_size() != item.size * item.dtype.itemsize:
        raise PresetError(path, f"{name} is not stored plainly; that is refused.")
    is_bfloat16 = item.attrs.get("dtype") == "bfloat16" and item.dtype.itemsize == 2
    if item.dtype.kind != "f" and not is_bfloat16:
        raise PresetError(path, f"{name} has type {item.dtype}; weights are floats.")
    return item
