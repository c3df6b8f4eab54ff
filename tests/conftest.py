"""What all tests share: one backend, one seed, no network, optional reference data."""

import os
import socket
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

# Keras may load TensorFlow, and loading PyTorch after TensorFlow can crash.
if find_spec("torch"):
    import torch  # noqa: F401

import keras
import pytest

keras.config.disable_traceback_filtering()


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


def pytest_report_header():
    return f"keras: {keras.version()}, backend: {keras.backend.backend()}"


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same global seed, whichever tests ran before it."""
    keras.utils.set_random_seed(0)
    return 0


@pytest.fixture(autouse=True)
def global_dtype_policy():
    """A test may set the global dtype policy: the next one starts from the default."""
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="session", autouse=True)
def offline():
    """Only this machine may be talked to: a test that needs the network fails."""
    connect = socket.socket.connect

    def connect_locally(self, address):
        if self.family != getattr(socket, "AF_UNIX", None):
            if address[0] not in ("localhost", "127.0.0.1", "::1"):
                raise PermissionError(f"A test tried to connect to {address}.")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_locally)
        yield


@pytest.fixture(scope="session")
def reference_data():
    """The folder of golden vectors and corpora, which a checkout may come without.

    It is `$KERAS_TTA_REFERENCE_DATA` or, by default, `shared` beside the checkout.
    """
    named = os.environ.get("KERAS_TTA_REFERENCE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared"
    if (folder / "golden").is_dir():
        return folder
    reason = f"No reference data: {folder} has no folder `golden`."
    if named:
        pytest.fail(f"{reason} KERAS_TTA_REFERENCE_DATA names it.")
    pytest.skip(f"{reason} Set KERAS_TTA_REFERENCE_DATA to use another.")
