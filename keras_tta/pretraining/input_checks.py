"""Checks of what `fit` is given before a compiled step is, which cannot raise."""

import numpy as np
from keras import ops


def check_token_arrays(x, backbone):
    """Raise if token ids are too long for a backbone or not in its vocabulary.

    A compiled step looks up whatever it is given: JAX reads NaN, PyTorch counts from
    the end. And an error inside `fit` costs a JAX model its weights.

    Args:
        x: what `fit` was given. Only a dict of arrays is looked at; data sets are
            checked by their length alone, as they are read.
        backbone: the model that will read them.

    Raises:
        ValueError: naming the first row and position at fault.
    """
    if not isinstance(x, dict) or "token_ids" not in x:
        return
    token_ids = np.asarray(ops.convert_to_numpy(x["token_ids"]))
    if token_ids.ndim != 2:
        raise ValueError(
            "`token_ids` must have the shape (B, T): rows of token ids. "
            f"Received: token_ids of shape {token_ids.shape}"
        )
    # Of KerasHub's models it is what the corruption leaves that must fit.
    ours = hasattr(backbone, "static_key_value")
    if ours and token_ids.shape[1] > backbone.max_sequence_length:
        raise ValueError(
            f"The input has {token_ids.shape[1]} positions, the model takes at most "
            f"max_sequence_length={backbone.max_sequence_length}. Shorten or split the "
            "text, or build the model with a larger max_sequence_length."
        )
    wrong = (token_ids < 0) | (token_ids >= backbone.vocabulary_size)
    if wrong.any():
        row, position = np.argwhere(wrong)[0]
        raise ValueError(
            f"Token ids must lie between 0 and {backbone.vocabulary_size - 1}, as "
            f"vocabulary_size={backbone.vocabulary_size} says. Received: "
            f"token_ids[{row}, {position}]={token_ids[row, position]}, and "
            f"{int(wrong.sum()) - 1} more out of range."
        )


def refuse_sample_weight(arguments):
    """Raise if `fit` or `evaluate` is given weights, which Keras would drop."""
    if arguments.get("sample_weight") is not None:
        raise ValueError(
            "Keras drops the `sample_weight` of data without `y`, and pretraining "
            "has no `y`. Weigh rows in `train_on_batch` and `test_on_batch`, which "
            "keep it."
        )


def weights_of_rows(sample_weight, targets):
    """Weights (B,), or (B, K) for each label of a single loss, as float32 (B, 1 or K).

    Raises:
        ValueError: if they are of another shape.
    """
    # TensorFlow forgets the rank once it has seen two of them.
    rows, labels = ops.shape(targets["labels"])[0], targets["labels"].shape[1]
    weights = ops.reshape(ops.cast(sample_weight, "float32"), (rows, -1))
    accepted = "one weight for each row, shape (B,)"
    if "discriminator_weights" in targets:
        labels = 1  # There are two losses, each over positions of its own.
    else:
        accepted += f", or for each label of a row, shape (B, {labels})"
    if labels is not None and weights.shape[1] not in (1, labels, None):
        raise ValueError(
            f"`sample_weight` must have {accepted}. Received: sample_weight of shape "
            f"{tuple(sample_weight.shape)}"
        )
    return weights
