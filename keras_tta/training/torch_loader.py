"""PyTorch's data loader, of whose dict batches Keras would read the keys alone."""

import copy
import sys


class _TupleCollate:
    """Puts what a collate function returns into a one-tuple, if it is a dict."""

    def __init__(self, collate):
        self.collate = collate

    def __call__(self, samples):
        batch = self.collate(samples)
        return (batch,) if isinstance(batch, dict) else batch


def with_tuple_batches(x):
    """A torch `DataLoader` whose dict batches come as one-tuples; all else unchanged.

    Keras takes a dict from a torch loader for a tuple of its keys.

    Args:
        x: anything `keras.Model.fit` takes.

    Returns:
        `x`, or a shallow copy of the loader over the same dataset and sampler.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "utils"):
        return x
    if not isinstance(x, torch.utils.data.DataLoader):
        return x
    if isinstance(x.collate_fn, _TupleCollate):
        return x
    loader = copy.copy(x)
    loader.collate_fn = _TupleCollate(x.collate_fn)
    return loader
