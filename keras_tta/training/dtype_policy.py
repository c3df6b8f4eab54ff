"""Checks of dtype policies before training starts."""

import keras


def check_policy(model_or_policy):
    """Refuse to train weights that are stored in half precision.

    With `"bfloat16"` or `"float16"` weights, Adam's second moment cannot follow
    (0.999 rounds to 1 in bfloat16) and its updates are smaller than the weights'
    last bit: nothing is learned, and no error is raised. `"mixed_bfloat16"` computes
    in bfloat16 and stores in float32.

    Args:
        model_or_policy: a `keras.Model` or layer, a `keras.DTypePolicy`, or a
            policy's name. Of a model, the policy and every trainable weight are
            looked at.

    Raises:
        ValueError: the policy, or a trainable weight, is half precision.

    Example:

    ```python
    import keras_tta

    keras_tta.training.check_policy("mixed_bfloat16")
    ```
    """
    if isinstance(model_or_policy, keras.Layer):
        policy = model_or_policy.dtype_policy
        weights = model_or_policy.trainable_variables
    else:
        policy = keras.dtype_policies.get(model_or_policy)
        weights = []
    stored = {f"the dtype policy {policy.name!r}": policy.variable_dtype}
    stored.update((f"the weight {w.path!r}", w.dtype) for w in weights)
    for what, dtype in stored.items():
        if dtype in ("bfloat16", "float16"):
            raise ValueError(
                f"Weights stored in half precision do not train: Adam's updates round "
                f"to nothing. Received: {what} (stored as {dtype}). Use "
                '`dtype="mixed_bfloat16"` when the model is built, or '
                '`keras.config.set_dtype_policy("mixed_bfloat16")` before.'
            )
