"""What stands between a model's gradients and its weights."""

import keras


def built_optimizer(model):
    """The optimizer of a compiled model, with its variables."""
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    return optimizer


def optimizer_step(model):
    """The number of updates made, once the device has made them: an int."""
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def dense(grads):
    """Gradients as a list of tensors, and None where there are none.

    TensorFlow's gradient of an embedding is a list of rows, in which a repeated id has
    several: they are summed.
    """
    if keras.backend.backend() != "tensorflow":
        return list(grads)
    import tensorflow as tf

    # Keras's own `convert_to_tensor` leaves the rows as they are.
    return [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
