"""Where a layer keeps which draws come next: its seed and its step."""

from keras import ops

from keras_tta.layers.corruption.draws import as_int32


def add_seed_and_step(layer, seed):
    """Give a layer the weight that `next_seed_and_step` counts in."""
    # "int" is what Keras counts steps in: TensorFlow keeps int32 off the GPU.
    return layer.add_weight(
        name="seed_and_step",
        shape=(2,),
        dtype="int",
        initializer=lambda shape, dtype=None: ops.convert_to_tensor(
            [int(as_int32(seed)), 0], dtype
        ),
        trainable=False,
        aggregation="only_first_replica",
    )


def next_seed_and_step(state, training):
    """Seed and step of a call, int32 (1,) each: in training, the step moves on.

    Elsewhere the step is 0, which stands for fixed draws.
    """
    if training:
        state.assign_add(ops.convert_to_tensor([0, 1], state.dtype))
    values = ops.cast(state, "int32")
    return values[:1], values[1:] if training else values[1:] * 0
