"""The leakage tests can fail: which check catches which mutant, on which batch.

The table is asserted whole. A check that no longer catches a mutant, or begins to catch
one, is a failure here until the table says so.
"""

import pytest

from tests.leakage import checks
from tests.leakage.mutants import (
    contextual_keys,
    token_in_query,
    unsafe_softmax,
    visible_diagonal,
)
from tests.leakage.subjects import PADDED, make_backbone

MUTANTS = (token_in_query, contextual_keys, visible_diagonal, unsafe_softmax)
CHECKS = (
    "check_jacobian",
    "check_substitution",
    "check_one_pass_is_n_passes",
    "check_reachability",
)
# The first row in place of all: other shapes would be compiled anew.
SENTENCE = {name: ids[[0] * len(ids)] for name, ids in PADDED.items()}

# Number of layers, batch: is the mutant caught, in the order of MUTANTS? By each of the
# checks alike. One layer alone never reads what another has read. And a sentence with
# [SOS] and [EOS] has no query that sees nothing.
CAUGHT = {
    (1, "edges"): (True, False, None, True),
    (2, "edges"): (True, True, True, True),
    (2, "sentence"): (True, True, True, False),
}
BATCHES = {"edges": PADDED, "sentence": SENTENCE}
CASES = [
    (num_layers, batch, mutant, caught)
    for (num_layers, batch), row in CAUGHT.items()
    for mutant, caught in zip(MUTANTS, row, strict=True)
    if caught is not None
]


def is_caught(check, *arguments):
    try:
        getattr(checks, check)(*arguments)
    except AssertionError as error:
        assert "sees itself" in str(error)
        return True
    return False


@pytest.mark.parametrize("num_layers, batch, mutant, caught", CASES)
def test_table(num_layers, batch, mutant, caught):
    backbone = make_backbone(num_layers, mutant=mutant)
    found = {check: is_caught(check, backbone, BATCHES[batch]) for check in CHECKS}
    assert found == dict.fromkeys(CHECKS, caught)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_noise_floor_catches(mutant):
    with pytest.raises(AssertionError, match="are in the noise"):
        checks.check_noise_floor(mutant=mutant)


def test_every_check_and_every_mutant_is_in_the_table():
    assert {name for name in vars(checks) if name.startswith("check_")} == {
        *CHECKS,
        "check_noise_floor",
        "check_learns_twins",
    }
    for outcomes in (*zip(*CAUGHT.values(), strict=True), *CAUGHT.values()):
        assert True in outcomes
    assert {True, False} <= {caught for row in CAUGHT.values() for caught in row}
