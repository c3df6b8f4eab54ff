"""Training on many devices, by one call before the model is built."""

import dataclasses
import os

import keras

from keras_tta.checks import check_one_of
from keras_tta.training.processes import process_index_and_count


@dataclasses.dataclass(frozen=True)
class Devices:
    """How a training is spread over devices and processes.

    Attributes:
        count: int, devices of all processes.
        process: int, which process this is; 0 is the one to write files and figures.
        process_count: int.
        share: (int, int), which part of every batch this process reads, of how many.
    """

    count: int = 1
    process: int = 0
    process_count: int = 1
    share: tuple[int, int] = (0, 1)

    def shares(self) -> dict[str, int]:
        """The arguments of `keras_tta.data.TokenBatches` that divide its batches."""
        return {
            "process_index": self.share[0],
            "process_count": self.share[1],
            "device_count": self.count,
        }


def distribute(
    devices: int | None = None,
    strategy: str = "data",
    get_layout_map=None,
    model_devices: int | None = None,
) -> Devices:
    """Spread all training that follows in this program over many devices.

    To be called once, before a model is built. One program serves every number of
    devices: the loss is the mean over the tokens of the whole batch, wherever its rows
    are, and weights and reported figures are those of one device.

    - JAX: `keras.distribution`, over GPUs and TPUs, of one host or several. Each of
      several processes sets `KERAS_DISTRIBUTION_JOB_ADDRESSES`,
      `KERAS_DISTRIBUTION_NUM_PROCESSES` and `KERAS_DISTRIBUTION_PROCESS_ID`; on a TPU
      slice nothing needs to be set.
    - TensorFlow: `tf.distribute`, over the GPUs of one host, a TPU or, where
      `TF_CONFIG` is set, several hosts.
    - PyTorch: one process for each device, started by `torchrun`.

    Args:
        devices: int, how many are used. Defaults to all there are; with PyTorch, to
            one for each process.
        strategy: `"data"`, every device holds all weights and reads a part of every
            batch; or `"model"`, weights are split as well. Splitting weights needs JAX.
        get_layout_map: how `"model"` splits them, such as `TTABackbone.get_layout_map`.
        model_devices: int, over how many devices a weight is split; the others divide
            the batch. Defaults to all.

    Returns:
        A `Devices`: pass its `shares()` to `TokenBatches`.

    Raises:
        ValueError: if there are fewer devices, the backend has no such strategy, the
            program was not started as the backend needs it, or devices do not divide.

    Example:
    ```python
    from keras_tta.data import TokenBatches
    from keras_tta.training import distribute

    devices = distribute(1)
    batches = TokenBatches([[7, 8], [9]], 2, 6, **devices.shares())
    ```
    """
    check_one_of("distribute", ("data", "model"), strategy=strategy)
    if devices is not None and devices < 1:
        raise ValueError(
            f"`devices` must be at least 1, or None for all. Received: {devices!r}"
        )
    backend = keras.backend.backend()
    if strategy == "model" and backend != "jax":
        raise ValueError(
            f"strategy='model' needs JAX: set KERAS_BACKEND=jax. {backend} splits "
            "batches only, strategy='data'."
        )
    if (strategy == "model") != (get_layout_map is not None):
        raise ValueError(
            "strategy='model' needs `get_layout_map`, such as "
            "`TTABackbone.get_layout_map`, and no other strategy has a use for it. "
            f"Received: strategy={strategy!r}, get_layout_map={get_layout_map!r}"
        )
    if model_devices is not None and strategy != "model":
        raise ValueError(
            "`model_devices` is of strategy='model'. "
            f"Received: model_devices={model_devices}, strategy={strategy!r}"
        )
    if backend == "jax":
        return _distribute_jax(devices, get_layout_map, model_devices)
    if backend == "tensorflow":
        return _distribute_tensorflow(devices)
    return _distribute_torch(devices)


def _distribute_jax(devices, get_layout_map, model_devices):
    hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "")
    if "KERAS_DISTRIBUTION_PROCESS_ID" in os.environ or "," in hosts:
        keras.distribution.initialize()
    import jax

    names = keras.distribution.list_devices()
    if jax.process_count() > 1 and devices not in (None, len(names)):
        raise ValueError(
            f"{jax.process_count()} processes use all of their {len(names)} devices. "
            f"Received: devices={devices}"
        )
    names = names[: _checked_count(devices, len(names), _JAX_HINT)]
    count = len(names)
    if count == 1:
        return Devices()
    if get_layout_map is None:
        distribution = _DataParallel(devices=names, auto_shard_dataset=False)
    else:
        model_devices = model_devices or count
        if count % model_devices:
            raise ValueError(
                "`model_devices` must divide the number of devices, "
                f"{count}. Received: model_devices={model_devices}"
            )
        mesh = keras.distribution.DeviceMesh(
            (count // model_devices, model_devices), ("batch", "model"), names
        )
        distribution = _ModelParallel(
            layout_map=get_layout_map(mesh), auto_shard_dataset=False
        )
    keras.distribution.set_distribution(distribution)
    processes = jax.process_count()
    shares = min(processes, distribution.num_model_replicas)
    share = distribution.data_shard_id, shares
    return Devices(count, jax.process_index(), processes, share)


_JAX_HINT = (
    "On a CPU, XLA_FLAGS=--xla_force_host_platform_device_count=N in the environment "
    "makes N of it."
)


class _CheckedRows:
    """A distribution that says in words that a batch cannot be divided."""

    def get_data_layout(self, data_shape):
        parts = max(1, self.num_model_replicas // self.num_processes)
        if data_shape[0] % parts:
            raise ValueError(
                f"A batch has {data_shape[0]} rows, which {parts} devices cannot "
                f"divide evenly: let the batch size be a multiple of {parts}. "
                "`TokenBatches` sees to it if it is given `**devices.shares()`."
            )
        return super().get_data_layout(data_shape)


class _DataParallel(_CheckedRows, keras.distribution.DataParallel):
    pass


class _ModelParallel(_CheckedRows, keras.distribution.ModelParallel):
    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        sizes = dict(
            zip(self.device_mesh.axis_names, self.device_mesh.shape, strict=True)
        )
        for size, axis in zip(variable.shape, layout.axes, strict=True):
            if axis is not None and size % sizes[axis]:
                raise ValueError(
                    f"{variable.path} of shape {tuple(variable.shape)} cannot be split "
                    f"over {sizes[axis]} devices: {size} is no multiple of it. Use "
                    "fewer `model_devices`, or sizes that are multiples: of the "
                    "vocabulary, the width and the heads."
                )
        return layout


def _distribute_tensorflow(devices):
    import tensorflow as tf

    if "TF_CONFIG" in os.environ:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    elif "TPU_NAME" in os.environ or tf.config.list_physical_devices("TPU"):
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
        strategy = tf.distribute.TPUStrategy(resolver)
    else:
        found = tf.config.list_logical_devices("GPU")
        found = found or tf.config.list_logical_devices("CPU")
        count = _checked_count(devices, len(found), _TENSORFLOW_HINT)
        if count == 1:
            return Devices()
        names = [device.name for device in found[:count]]
        strategy = tf.distribute.MirroredStrategy(names)
    count = strategy.num_replicas_in_sync
    if devices not in (None, count):
        raise ValueError(
            f"The cluster has {count} devices, and all are used. "
            f"Received: devices={devices}"
        )
    tf.distribute.experimental_set_strategy(strategy)
    # Every worker reads whole batches: TensorFlow takes each one's part of them.
    return Devices(count, *process_index_and_count())


_TENSORFLOW_HINT = (
    "`tf.config.set_logical_device_configuration`, called first, makes several of a "
    "CPU or a GPU."
)


def _distribute_torch(devices):
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if devices not in (None, count):
        raise ValueError(
            "PyTorch needs one process for each device: run `torchrun "
            f"--nproc-per-node={devices} your_program.py`. Received: devices={devices} "
            f"in a program of {count} process{'es' * (count > 1)}"
        )
    if count == 1:
        return Devices()
    import torch

    on_gpus = torch.cuda.is_available()
    if on_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if on_gpus else "gloo")
    process = torch.distributed.get_rank()
    return Devices(count, process, count, (process, count))


def _checked_count(devices, found, hint):
    if devices is not None and devices > found:
        raise ValueError(
            f"{devices} devices are asked for, and {keras.backend.backend()} finds "
            f"{found}. {hint}".strip()
        )
    return devices or found
