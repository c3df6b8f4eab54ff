"""How many steps an epoch of some data takes."""

import sys
import types
from typing import Any

import keras

from keras_tta.checks import check_positive_integers


def count_steps(
    x: Any,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    validation_split: float = 0.0,
) -> int | None:
    """Steps per epoch that `model.fit` will make of `x`, or None where unknown.

    No batch is drawn. A Grain `MapDataset` counts its length: where it filters, the
    steps made are fewer.

    Args:
        x: what `fit` takes: a (nested) dict, list or tuple of arrays or tensors; a
            `keras.utils.PyDataset`; a `tf.data.Dataset`; a Grain dataset or loader;
            a torch `DataLoader`; a generator.
        batch_size: int or None. Of arrays only. Defaults to 32, as in `fit`.
        steps_per_epoch: int or None. Wins over everything when given.
        validation_split: float. The share of arrays that `fit` sets aside.

    Returns:
        int; or None for generators, for infinite data and for data that does not
        know its length.

    Raises:
        TypeError: `x` is none of these.
        ValueError: arrays of different lengths, or a count that is not positive.

    Example:

    ```python
    import keras_tta
    import numpy as np

    batch = {"token_ids": np.zeros((100, 8), "int32")}
    assert keras_tta.training.count_steps(batch, batch_size=32) == 4
    ```
    """
    given = {"batch_size": batch_size, "steps_per_epoch": steps_per_epoch}
    given = {name: value for name, value in given.items() if value is not None}
    check_positive_integers("count_steps", **given)
    if steps_per_epoch is not None:
        return int(steps_per_epoch)
    if isinstance(x, keras.utils.PyDataset):
        return x.num_batches
    if isinstance(x, types.GeneratorType):
        return None
    if _is_a(x, "tensorflow", "data.Dataset", "distribute.DistributedDataset"):
        cardinality = x.cardinality
        cardinality = int(cardinality() if callable(cardinality) else cardinality)
        return cardinality if cardinality >= 0 else None
    if _is_a(x, "grain", "MapDataset"):
        return len(x) if len(x) < sys.maxsize else None
    if _is_a(x, "grain", "IterDataset", "DataLoader"):
        return None
    if _is_a(x, "torch", "utils.data.DataLoader"):
        return len(x) if hasattr(x.dataset, "__len__") else None
    return _count_array_steps(x, batch_size or 32, validation_split)


def _count_array_steps(x, batch_size, validation_split):
    arrays = [leaf for leaf in keras.tree.flatten(x) if leaf is not None]
    if not arrays or not all(getattr(array, "shape", None) for array in arrays):
        raise TypeError(
            "`x` must be arrays or tensors (alone, or in dicts, lists or tuples), a "
            "`keras.utils.PyDataset`, a `tf.data.Dataset`, a Grain dataset, a torch "
            f"`DataLoader` or a generator. Received: {type(x).__name__}"
        )
    lengths = {int(array.shape[0]) for array in arrays}
    if len(lengths) > 1:
        raise ValueError(
            "All arrays in `x` must hold the same number of examples. "
            f"Received lengths: {sorted(lengths)}"
        )
    examples = int(lengths.pop() * (1.0 - validation_split))
    return -(-examples // batch_size)


def _is_a(x, module_name, *class_names):
    # An object's library has been imported by whoever made it: never import it here.
    module = sys.modules.get(module_name)
    for class_name in class_names if module is not None else ():
        found = module
        for part in class_name.split("."):
            found = getattr(found, part, None)
        if found is not None and isinstance(x, found):
            return True
    return False
