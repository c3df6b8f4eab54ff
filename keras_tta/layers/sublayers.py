"""The sub-layers that all layers share, with their owner's dtype and initializer."""

import keras


def bert_initializer(initializer="bert"):
    """An initializer, with `"bert"` for the truncated normal of deviation 0.02."""
    if initializer == "bert":
        return keras.initializers.TruncatedNormal(stddev=0.02)
    return keras.initializers.get(initializer)


def dense(owner, units, name):
    """A `Dense` drawn from a copy of `owner.kernel_initializer`: one instance, used
    twice, would fill equal shapes with equal numbers."""
    return keras.layers.Dense(
        units,
        kernel_initializer=owner.kernel_initializer.clone(),
        dtype=owner.dtype_policy,
        name=name,
    )


def layer_norm(owner, name):
    return keras.layers.LayerNormalization(
        epsilon=owner.layer_norm_epsilon, dtype=owner.dtype_policy, name=name
    )


def dropout_layer(owner, name):
    return keras.layers.Dropout(owner.dropout, dtype=owner.dtype_policy, name=name)
