"""What a model does in training where several replicas compute parts of a batch.

A replica computes a loss of its own, from its rows. TensorFlow and PyTorch have one for
each device. JAX has one, whatever the number of devices: there a sum over a batch is
over all of its rows, and nothing here has anything to do.
"""

import keras
from keras import ops

from keras_tta.training.gradients import built_optimizer, dense


def replica_count() -> int:
    """How many replicas compute parts of a batch, each with a loss of its own."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_strategy().num_replicas_in_sync
    if keras.backend.backend() == "torch":
        import torch

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_world_size()
    return 1


def sum_over_replicas(x):
    """The sum of a tensor over all replicas, in each of them. No gradient passes."""
    if replica_count() == 1:
        return x
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, x) if replica else x
    import torch

    x = x.detach().clone()
    torch.distributed.all_reduce(x)
    return x


def mean_loss(total, counts):
    """A sum of losses as a mean over all that `counts` adds up to, on all devices.

    TensorFlow adds the replicas' gradients up, and PyTorch's are averaged.
    """
    count = sum_over_replicas(ops.sum(counts))
    if keras.backend.backend() == "torch":
        count = count / replica_count()
    return total / ops.maximum(count, 1e-6)


def join_replicas(model) -> None:
    """Let the replicas of a compiled model begin alike and step as one.

    Gradients are reduced before `optimizer.apply`: Keras would clip those of every
    replica by themselves.

    Raises:
        ValueError: for accumulated gradients on TensorFlow.
    """
    if replica_count() == 1:
        return
    optimizer = model.optimizer
    if keras.backend.backend() == "tensorflow":
        if getattr(optimizer, "gradient_accumulation_steps", None):
            raise ValueError(
                "Keras cannot accumulate gradients under `tf.distribute`: use JAX or "
                "PyTorch, or no `gradient_accumulation_steps`."
            )
        built_optimizer(model)
    else:
        _begin_alike([*model.variables, *optimizer.variables])
        # Keras 3.16 would wrap the model in DistributedDataParallel.
        object.__setattr__(model, "ddp_model", model)
    if hasattr(optimizer, "_reduces_gradients"):
        return
    apply = optimizer.apply

    def reduce_and_apply(grads, trainable_variables=None):
        return apply(_reduced(dense(grads)), trainable_variables)

    optimizer.apply = reduce_and_apply
    # TensorFlow's optimizers reduce once more, after clipping.
    optimizer._all_reduce_sum_gradients = list
    optimizer._reduces_gradients = True


def _reduced(grads):
    """Gradients summed over TensorFlow's replicas, averaged over PyTorch's."""
    given = [grad for grad in grads if grad is not None]
    if keras.backend.backend() == "tensorflow":
        reduced = sum_over_replicas(given)
    else:
        import torch

        flat = torch.cat([grad.reshape(-1) for grad in given])
        torch.distributed.all_reduce(flat)
        flat /= replica_count()
        parts = flat.split([grad.numel() for grad in given])
        reduced = [p.view_as(grad) for p, grad in zip(parts, given, strict=True)]
    reduced = iter(reduced)
    return [None if grad is None else next(reduced) for grad in grads]


def _begin_alike(variables):
    import torch

    for variable in variables:
        torch.distributed.broadcast(variable.value.detach(), src=0)


def metrics_of_all(model, result, get_result):
    """The metrics of all replicas after a step, where `result` is what one says.

    Args:
        model: the model, whose metrics are up to date.
        result: dict of its metrics.
        get_result: makes that dict from the metrics' variables.
    """
    if replica_count() == 1:
        return result
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras takes a step's results for batches, where there are several hosts.
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return {name: ops.expand_dims(value, 0) for name, value in result.items()}
        return result
    variables = [] if _keras_reduces_metrics() else model.metrics_variables
    mapping = [(v, sum_over_replicas(v.value)) for v in variables]
    with keras.StatelessScope(state_mapping=mapping):
        result = get_result()
    # Kept for whoever asks between steps, in one process and not in the others.
    object.__setattr__(model, "_metrics_of_all", result)
    return result


def _keras_reduces_metrics():
    return tuple(map(int, keras.version().split(".")[:2])) >= (3, 16)
