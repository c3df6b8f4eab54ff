"""Training on many devices is training on one."""

import json
import os
import socket
import subprocess
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_tta.data import TokenBatches
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.training import distribute
from keras_tta.training.distribution import _ModelParallel

BACKEND = keras.backend.backend()
PROGRAM = Path(__file__).with_name("train_on_devices.py")
slow = pytest.mark.slow


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def train(out, objectives, *environments, **options):
    """Run the program in one process for each environment; what the first wrote."""
    settings = json.dumps({"out": str(out), "objectives": objectives, **options})
    root = str(PROGRAM.parents[2])
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM, settings],
            env={**os.environ, "PYTHONPATH": root, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments or [{}]
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors[-4000:]
    finally:
        for process in processes:
            process.kill()
    with np.load(out) as results:
        return dict(results)


def processes_of_jax(count=2, devices=2):
    address = f"127.0.0.1:{free_port()}"
    return [
        {
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
            "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
            **devices_of_jax(devices)[0],
        }
        for index in range(count)
    ]


def devices_of_jax(count=4):
    return [{"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}]


def workers_of_tensorflow(count=2):
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    return [
        {
            "TF_CONFIG": json.dumps(
                {
                    "cluster": {"worker": addresses},
                    "task": {"type": "worker", "index": index},
                }
            )
        }
        for index in range(count)
    ]


def processes_of_torch(count=2):
    """What `torchrun` sets."""
    port = str(free_port())
    return [
        {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(count),
            "RANK": str(index),
            "LOCAL_RANK": str(index),
        }
        for index in range(count)
    ]


def one_process():
    return [{}]


# How it is started, and what the program is told.
LAYOUTS = {
    "jax": {
        "four devices": (devices_of_jax, {"spread": {"devices": 4}}),
        "two by two": (
            devices_of_jax,
            {"spread": {"strategy": "model", "model_devices": 2}},
        ),
        "two processes": (processes_of_jax, {"spread": {}}),
    },
    "tensorflow": {
        "two devices": (one_process, {"spread": {"devices": 2}, "cpus": 2}),
        "two workers": (workers_of_tensorflow, {"spread": {}}),
    },
    "torch": {"two processes": (processes_of_torch, {"spread": {"devices": 2}})},
}[BACKEND]
# A process takes seconds to import and, but on PyTorch, to compile.
ALL = "tta", "mlm", "electra"
first, *others = LAYOUTS
CASES = [pytest.param(first, ALL[:1]), pytest.param(first, ALL[1:], marks=slow)]
CASES += [pytest.param(layout, ALL, marks=slow) for layout in others]


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    """What one device makes of objectives."""
    folder, results = tmp_path_factory.mktemp("one"), {}

    def train_on_one(objectives, **options):
        missing = [name for name in objectives if (name, *options) not in results]
        if missing:
            found = train(folder / "out.npz", missing, **options)
            results.update({(name, *options): found for name in missing})
        return {
            key: value
            for name in objectives
            for key, value in results[name, *options].items()
            if key.startswith(name)
        }

    return train_on_one


def assert_same(results, expected):
    for key, value in expected.items():
        if " history " in key:
            # A run that goes on tells of the epochs it made.
            value = value[-len(results[key]) :]
            np.testing.assert_allclose(results[key], value, rtol=1e-5, err_msg=key)
        elif " weight " in key:
            np.testing.assert_allclose(results[key], value, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("layout, objectives", CASES)
def test_many_devices_are_one(layout, objectives, one_device, tmp_path):
    environments, options = LAYOUTS[layout]
    results = train(tmp_path / "out.npz", objectives, *environments(), **options)
    assert_same(results, one_device(objectives))
    for objective in objectives:
        losses = results[f"{objective} history loss"]
        assert losses[-1] < losses[0]
    split = [key for key, value in results.items() if " split " in key and value]
    assert bool(split) == (layout == "two by two")


@slow
def test_two_devices_stop_and_four_go_on(one_device, tmp_path):
    start = {
        "jax": lambda count: (devices_of_jax(count), {"spread": {"devices": count}}),
        "tensorflow": lambda count: (
            one_process(),
            {"spread": {"devices": count}, "cpus": count},
        ),
        "torch": lambda count: (processes_of_torch(count), {"spread": {}}),
    }[BACKEND]
    for count, epochs in ((2, 2), (4, 4)):
        environments, options = start(count)
        options |= {"epochs": epochs, "folder": str(tmp_path / "checkpoints")}
        results = train(tmp_path / "out.npz", ["tta"], *environments, **options)
    assert len(results["tta history loss"]) == 2
    assert_same(results, one_device(["tta"]))


@slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="Keras cannot, and we say so.")
def test_many_devices_accumulate_as_one(one_device, tmp_path):
    environments, options = next(iter(LAYOUTS.values()))
    options = {**options, "accumulation": 3}
    results = train(tmp_path / "out.npz", ["tta"], *environments(), **options)
    assert_same(results, one_device(["tta"], accumulation=3))


@slow
@pytest.mark.skipif(BACKEND != "tensorflow", reason="Others can.")
def test_accumulation_that_keras_cannot_distribute_is_refused(tmp_path):
    environments, options = next(iter(LAYOUTS.values()))
    with pytest.raises(AssertionError, match="under `tf.distribute`: use JAX"):
        train(tmp_path / "o.npz", ["tta"], *environments(), **options, accumulation=3)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"strategy": "pipeline"}, "one of 'data', 'model'.*'pipeline'"),
        ({"devices": 0}, "at least 1"),
        ({"model_devices": 2}, "`model_devices` is of strategy='model'"),
        ({"get_layout_map": TTABackbone.get_layout_map}, "no other strategy"),
        (
            {"devices": 99},
            {
                "jax": "99 devices are asked for, and jax finds.*XLA_FLAGS",
                "tensorflow": "99 devices are asked for, and tensorflow finds",
                "torch": "torchrun --nproc-per-node=99 .*in a program of 1 process",
            }[BACKEND],
        ),
        (
            {"strategy": "model"},
            "such as `TTABackbone.get_layout_map`"
            if BACKEND == "jax"
            else "needs JAX: set KERAS_BACKEND=jax",
        ),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        distribute(**arguments)


def test_one_device_is_nothing_special():
    devices = distribute(1)
    assert devices.shares() == {
        "process_index": 0,
        "process_count": 1,
        "device_count": 1,
    }
    assert (devices.process, devices.process_count) == (0, 1)


def mesh(*shape):
    names = [f"cpu:{index}" for index in range(np.prod(shape))]
    return keras.distribution.DeviceMesh(shape, ("batch", "model"), names)


@pytest.mark.parametrize("backbone", [TTABackbone, TransformerBackbone])
def test_a_layout_splits_what_is_large(backbone):
    model = backbone(
        vocabulary_size=40,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=4,
    )
    layout_map = backbone.get_layout_map(mesh(1, 2))
    for weight in model.weights:
        layout = layout_map[weight.path]
        if layout is not None:
            assert len(layout.axes) == len(weight.shape), weight.path
            assert layout.axes.count("model") == 1
        large = len(weight.shape) == 2 and "position" not in weight.path
        assert not large or layout is not None, weight.path
    with pytest.raises(ValueError, match="no axis 'rows'"):
        backbone.get_layout_map(mesh(1, 2), data_parallel_dim_name="rows")


@pytest.mark.skipif(BACKEND != "jax", reason="Only JAX splits weights.")
def test_what_does_not_divide_is_named():
    distribution = _ModelParallel(layout_map=TTABackbone.get_layout_map(mesh(3, 2)))
    table = types.SimpleNamespace(
        path="embeddings/token_embedding/embeddings", shape=(41, 8)
    )
    with pytest.raises(ValueError, match="token_embedding.*41 is no multiple"):
        distribution.get_variable_layout(table)
    with pytest.raises(ValueError, match="8 rows, which 3 devices cannot divide"):
        distribution.get_data_layout((8, 5))


@pytest.mark.agnostic
def test_batches_are_divided_among_devices():
    rows = [[7] * (1 + i % 6) for i in range(60)]
    options = {"bucket_lengths": (5,), "device_count": 4, "process_count": 2}
    shares = [TokenBatches(rows, 8, 8, process_index=i, **options) for i in range(2)]
    whole = TokenBatches(rows, 8, 8, bucket_lengths=(5,), device_count=4)
    for step in range(len(whole)):
        parts = [share.batch(step)[0]["token_ids"] for share in shares]
        assert all(len(part) % 2 == 0 for part in parts)
        together, expected = np.concatenate(parts), whole.batch(step)[0]["token_ids"]
        assert sorted(together.tolist()) == sorted(expected.tolist())
    with pytest.raises(ValueError, match="multiple of `device_count`.*device_count=3"):
        TokenBatches(rows, 8, 8, device_count=3)
    with pytest.raises(ValueError, match="that of `process_count`"):
        TokenBatches(rows, 12, 8, device_count=4, process_count=3)
    with pytest.raises(ValueError, match="'keep' leaves"):
        TokenBatches(rows, 8, 8, device_count=4, remainder="keep")
