import pytest

from tests.training.interrupted_runs import fit


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Weights and losses of the run that nothing interrupts."""
    return fit(tmp_path_factory.mktemp("whole"))
