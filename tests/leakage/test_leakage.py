"""No position ever sees the token it must predict: exactly, at every depth."""

import keras
import pytest
from keras import ops

from tests.leakage.checks import (
    check_jacobian,
    check_learns_twins,
    check_noise_floor,
    check_one_pass_is_n_passes,
    check_reachability,
    check_substitution,
)
from tests.leakage.gradients import JIT, jacobian, project, support
from tests.leakage.subjects import (
    HIDING_RULES,
    PADDED,
    SHOWING_RULES,
    make_backbone,
    unpadded,
    visibility_of,
)

BACKEND = keras.backend.backend()
QUERIES = ("mask", "position")
# Every rule, and every pair of a query mode and a number of layers.
VARIANTS = [
    (rule, QUERIES[index // 4], index % 4 + 1)
    for index, rule in enumerate(HIDING_RULES)
]
# JAX without jit compiles every operation by itself: too slow to do it all the time.
JITS = [pytest.param(False, marks=pytest.mark.slow), True] if BACKEND == "jax" else JIT


def slow_on_jax(test):
    return pytest.mark.slow(test) if BACKEND == "jax" else test


@pytest.fixture(scope="module")
def two_layers():
    return make_backbone(num_layers=2)


@pytest.fixture(scope="module")
def bfloat16():
    return make_backbone(num_layers=2, dtype="mixed_bfloat16")


@pytest.mark.parametrize("query", QUERIES)
def test_jacobian(query):
    backbone = make_backbone(num_layers=4, query=query)
    for rule in HIDING_RULES:
        check_jacobian(backbone.with_visibility(rule), PADDED, jit=JIT[-1])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_jacobian_without_padding(two_layers, length):
    check_jacobian(two_layers, unpadded(length), jit=BACKEND == "jax")


@pytest.mark.parametrize("jit", JITS)
def test_jacobian_in_bfloat16(bfloat16, jit):
    check_jacobian(bfloat16, PADDED, jit)


@slow_on_jax
def test_jacobian_without_jit(two_layers):
    check_jacobian(two_layers, PADDED, jit=False)


@slow_on_jax
def test_jacobian_in_training(two_layers):
    """Dropout takes from what is seen and adds nothing."""
    embeddings, encoder = two_layers.embeddings, two_layers.encoder
    visible = visibility_of(two_layers, PADDED)

    def last_layer(vectors):
        query, key_value = embeddings.streams(vectors, training=True)
        return project(encoder(query, key_value, visible, training=True)[None])

    vectors = embeddings.token_embedding(PADDED["token_ids"])
    [reached] = support(jacobian(last_layer)(ops.convert_to_numpy(vectors)))
    assert not reached[~visible].any()
    assert reached[visible].mean() > 0.5


@pytest.mark.parametrize("rule, query, num_layers", VARIANTS, ids=repr)
def test_substitution_and_n_passes(rule, query, num_layers):
    backbone = make_backbone(num_layers, query, rule)
    check_substitution(backbone, PADDED, JIT[-1])
    check_one_pass_is_n_passes(backbone, PADDED, JIT[-1])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_substitution_and_n_passes_without_padding(two_layers, length):
    check_substitution(two_layers, unpadded(length), JIT[-1])
    check_one_pass_is_n_passes(two_layers, unpadded(length), JIT[-1])


@pytest.mark.parametrize("jit", JITS)
def test_substitution_and_n_passes_in_bfloat16(bfloat16, jit):
    check_substitution(bfloat16, PADDED, jit)
    check_one_pass_is_n_passes(bfloat16, PADDED, jit)


@pytest.mark.parametrize("rule", HIDING_RULES, ids=repr)
def test_reachability(two_layers, rule):
    check_reachability(two_layers.with_visibility(rule), PADDED)


def test_reachability_of_one_token_alone(two_layers):
    check_reachability(two_layers, unpadded(1))


@pytest.mark.parametrize("rule", SHOWING_RULES, ids=repr)
def test_rules_that_show_self_are_found_out(two_layers, rule):
    showing = two_layers.with_visibility(rule)
    for check in (check_jacobian, check_reachability):
        with pytest.raises(AssertionError, match="sees itself"):
            check(showing, PADDED)


def test_the_batch_has_every_edge():
    """Rows of 0, 1, 2, 3 and all tokens; queries that see nothing, without padding."""
    lengths = PADDED["padding_mask"].sum(axis=1)
    assert set(lengths) == {0, 1, 2, 3, PADDED["token_ids"].shape[1]}
    for rule in HIDING_RULES:
        visible = visibility_of(make_backbone(1, rule=rule), PADDED)
        blind = ~visible.any(axis=-1)
        assert (blind & PADDED["padding_mask"]).any() and not blind.all()


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_noise_floor(query):
    check_noise_floor(query)
    check_learns_twins(query)
