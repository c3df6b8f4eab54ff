"""TensorFlow 1 checkpoints: variables read by name, and given to our weights."""

import re

import numpy as np
from absl import logging

from keras_tta.data.optional_packages import import_optional

OPTIMIZER = {
    "the optimizer's state": re.compile(
        r".*/(adam_[mv]|Adam|Adam_1)$|(beta[12]_power|global_step)$"
    ),
}


def read_tensorflow_checkpoint(path, unused):
    """Read a TensorFlow 1 checkpoint into NumPy arrays; needs TensorFlow.

    Args:
        path: the checkpoint's prefix, such as `"model.ckpt-2000000"`, without `.index`.
        unused: a dict from reasons to patterns, for `why_unused`. These variables are
            not read, and come as empty arrays.

    Returns:
        A dict of arrays by variable name.

    Raises:
        ImportError: if TensorFlow is not installed.
        FileNotFoundError: if there is no checkpoint of this name.
    """
    tf = import_optional("tensorflow", "tensorflow", "Reading a TensorFlow checkpoint")
    path = str(path)
    try:
        reader = tf.train.load_checkpoint(path)
    except (tf.errors.OpError, ValueError) as error:
        raise FileNotFoundError(
            f"No TensorFlow checkpoint could be read at {path!r}. Give the name that "
            "the files `.index` and `.data-00000-of-00001` share, without these "
            f"endings. TensorFlow says: {error}"
        ) from error
    names = reader.get_variable_to_shape_map()
    # Optimizer state is two thirds of a training checkpoint: stay out of it.
    return {
        name: np.empty(0) if why_unused(name, unused) else reader.get_tensor(name)
        for name in sorted(names)
    }


def assign_variables(variables, sources, unused, likely=""):
    """Give weights their variables, all of them or none; log what is skipped.

    Args:
        variables: dict of arrays by name.
        sources: pairs of a weight and the names of the variables that, side by side,
            make it up.
        unused: a dict from reasons to patterns, for `why_unused`.
        likely: what an error says of its cause.

    Returns:
        The variables that were skipped: a dict from the reason to their names.

    Raises:
        ValueError: if variables are missing, unknown or of another shape; it lists
            them, and no weight has changed.
    """
    sources = list(sources)
    complaints, skipped = [], {}
    for weight, names in sources:
        # Keys and values of all layers lie side by side in one weight.
        shape = (*weight.shape[:-1], weight.shape[-1] // len(names))
        for name in names:
            if name not in variables:
                complaints.append(f"{name} is missing")
            elif np.shape(variables[name]) != shape:
                complaints.append(
                    f"{name} has shape {np.shape(variables[name])}, not {shape}"
                )
    for name in sorted(set(variables).difference(*(names for _, names in sources))):
        if reason := why_unused(name, unused):
            skipped.setdefault(reason, []).append(name)
        else:
            complaints.append(f"{name} is unknown")
    if complaints:
        raise ValueError(
            "The variables do not fit the model:\n  " + "\n  ".join(complaints) + likely
        )
    for weight, names in sources:
        weight.assign(np.concatenate([variables[name] for name in names], axis=-1))
    for reason, names in skipped.items():
        logging.warning("Skipped %d variables: %s.", len(names), reason)
    return skipped


def why_unused(name, unused):
    """The reason for which a variable is not used, or None."""
    return next((why for why, pattern in unused.items() if pattern.match(name)), None)
