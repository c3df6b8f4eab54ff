"""What training depends on, as arrays and as plain values."""

import json
import platform
import re
import sys
import warnings

import keras
import numpy as np
from keras import ops

from keras_tta.training.checkpoint_files import CheckpointError
from keras_tta.training.gradients import built_optimizer
from keras_tta.training.guard import COUNTERS

# Of the files; a change to what they hold makes another.
FORMAT = 1


def variables_of(model):
    """All variables that training changes, seeds included, by kind."""
    optimizer = built_optimizer(model).variables if model.compiled else []
    return {
        "model": model.variables,
        "optimizer": [v for v in optimizer if v.name not in COUNTERS],
        "guard": [v for v in optimizer if v.name in COUNTERS],
        "metrics": model.metrics_variables,
    }


def read_arrays(model):
    """The values of all variables and, on PyTorch, of its random generators."""
    arrays = {
        kind: {
            f"{index:05d}/{variable.path}": _to_numpy(variable)
            for index, variable in enumerate(variables)
        }
        for kind, variables in variables_of(model).items()
    }
    arrays["generators"] = _generator_states()
    return arrays


def check_arrays(model, arrays, kinds):
    """Raise a `CheckpointError` unless the arrays have the shapes of the variables."""
    for kind in kinds:
        variables, saved = variables_of(model)[kind], list(arrays[kind].items())
        if len(variables) != len(saved):
            raise CheckpointError(
                f"The checkpoint has {len(saved)} variables under {kind!r}, and this "
                f"training {len(variables)}."
            )
        for variable, (name, array) in zip(variables, saved, strict=True):
            if tuple(variable.shape) != array.shape:
                raise CheckpointError(
                    f"The checkpoint's {name} has the shape {array.shape}, and "
                    f"{variable.path} {tuple(variable.shape)}."
                )


def assign_arrays(model, arrays, kind, learned_only=False):
    """Give the variables of a kind the values read before.

    Args:
        learned_only: bool. Leave what only counts the run on: the integers, such as
            steps and seeds, and the learning rate; and the gradients of a group of
            batches that has begun.
    """
    values = arrays[kind].values()
    # Only a guard's counters may be new, or not be there any more.
    for variable, value in zip(variables_of(model)[kind], values, strict=False):
        of_the_run = "learning_rate", "gradient_accumulator"
        learned = "float" in variable.dtype and not variable.name.endswith(of_the_run)
        if learned or not learned_only:
            variable.assign(value)


def restore_generators(states):
    """Put PyTorch's random generators where they were: arrays by the device's name."""
    if keras.backend.backend() != "torch":
        return
    import torch

    states = {name: torch.from_numpy(state) for name, state in states.items()}
    torch.set_rng_state(states.pop("cpu"))
    for device, state in enumerate(states.values()):
        torch.cuda.set_rng_state(state, device)


def draw_as_data_loader():
    """Draw from PyTorch's generator what one more iterator of its data would.

    After a complete epoch Keras makes such an iterator, after a shorter one it does
    not; and what dropout draws next must be the same.
    """
    if keras.backend.backend() == "torch":
        import torch

        torch.empty((), dtype=torch.int64).random_()


def _generator_states():
    if keras.backend.backend() != "torch":
        return {}
    import torch

    states = {"cpu": torch.get_rng_state().numpy()}
    if torch.cuda.is_available():
        for device, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda{device:03d}"] = state.numpy()
    return states


def _to_numpy(variable):
    array = np.asarray(ops.convert_to_numpy(variable), order="C")
    # Every number of the formats that NumPy does not know is one of float32.
    return array.astype("float32") if array.dtype.kind == "V" else array


def describe(model, batches, callbacks):
    """What must not change between two parts of one training, as plain values."""
    return _plain(
        {
            "backend": keras.backend.backend(),
            "model": _config(model),
            "dtype": model.dtype_policy.name,
            "optimizer": _config(model.optimizer),
            "data": None if batches is None else batches.fingerprint(),
            "callbacks": [
                {type(callback).__name__: getattr(callback, "get_config", dict)()}
                for callback in callbacks
            ],
        }
    )


def differences(saved, now, name=""):
    """Lines `name: saved, now ...`, one for each value that differs."""
    if isinstance(saved, list) and isinstance(now, list):
        saved, now = (dict(enumerate(values)) for values in (saved, now))
    if not (isinstance(saved, dict) and isinstance(now, dict)):
        return [] if saved == now else [f"{name}: was {saved!r}, is {now!r}"]
    lines = []
    for key in dict.fromkeys([*saved, *now]):
        path = f"{name}.{key}" if name else str(key)
        lines += differences(saved.get(key), now.get(key), path)
    return lines


def identity(description):
    """What a checkpoint says of the training that it belongs to."""
    return {"format": FORMAT, "description": description, "versions": _versions()}


def check_same_training(path, saved, description):
    """Raise a `CheckpointError` if a checkpoint belongs to another training.

    Args:
        path: the folder, for the message.
        saved: dict with what `identity` gave.
        description: what `describe` gives now.
    """
    now = identity(description)
    parts = ("format", "description")
    changed = differences(*({k: x[k] for k in parts} for x in (saved, now)))
    if changed:
        lines = "\n  ".join(line.removeprefix("description.") for line in changed)
        raise CheckpointError(
            f"{path} holds checkpoints of another training:\n  {lines}\nTo go on with "
            "that one, put back what has changed (in one notebook, make and compile "
            "the model anew). To begin another, choose another folder."
        )
    changed = differences(saved["versions"], now["versions"])
    if changed:
        warnings.warn(
            "The checkpoint was saved with other versions, so that numbers may differ "
            f"in their last bits. {'; '.join(changed)}.",
            stacklevel=2,
        )


def _versions():
    backend = keras.backend.backend()
    modules = [sys.modules[name] for name in ("keras_tta", "keras", "numpy", backend)]
    found = {module.__name__: str(module.__version__) for module in modules}
    return {"python": platform.python_version(), **found}


def _config(thing):
    try:
        config = thing.get_config()
    except NotImplementedError:
        config = {}  # The shapes of the variables must do.
    return {"class": type(thing).__name__, **config}


def _plain(value, key=None):
    """As JSON will give it back; without what differs between equal objects."""
    if isinstance(value, dict):
        return {
            str(k): _plain(v, k) for k, v in value.items() if k != "shared_object_id"
        }
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    if isinstance(value, str) and key in _NAMES:
        # Keras numbers the layers of a process: `dense` is later `dense_1`.
        return re.sub(r"_\d+$", "", value)
    if value is None or isinstance(value, str | int | float):
        return json.loads(json.dumps(value))
    return type(value).__name__


_NAMES = ("name", "keras_history", "input_layers", "output_layers")
