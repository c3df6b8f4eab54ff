"""The processes that train one model together."""

import keras
import numpy as np


def process_index_and_count() -> tuple[int, int]:
    """Which process this is, and of how many."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index(), jax.process_count()
    if keras.backend.backend() == "torch":
        import torch.distributed as distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    return resolver.task_id, resolver.cluster_spec().num_tasks("worker")


def is_first_process() -> bool:
    """Whether this process is the one that writes."""
    return process_index_and_count()[0] == 0


def of_first_process(value):
    """An int or a float of the first process, in all. Each must call it, and waits."""
    process, count = process_index_and_count()
    if count == 1:
        return value
    kind, dtype = type(value), "int32" if isinstance(value, int) else "float32"
    if keras.backend.backend() == "jax":
        from jax.experimental import multihost_utils

        return kind(multihost_utils.broadcast_one_to_all(np.asarray(value, dtype)))
    value = keras.ops.convert_to_tensor(0 if process else value, dtype)
    if keras.backend.backend() == "torch":
        import torch

        torch.distributed.all_reduce(value)
        return kind(value)
    import tensorflow as tf

    strategy = tf.distribute.get_strategy()
    values = strategy.experimental_distribute_values_from_function(
        lambda context: value if context.replica_id_in_sync_group == 0 else value * 0
    )
    return kind(strategy.reduce("SUM", values, axis=None))
