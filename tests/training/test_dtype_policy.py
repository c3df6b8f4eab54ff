import keras
import pytest

from keras_tta.training import check_policy


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_policies_that_train(policy):
    check_policy(policy)
    check_policy(keras.DTypePolicy(policy))
    check_policy(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))


@pytest.mark.parametrize("policy", ["bfloat16", "float16"])
def test_half_precision_weights_are_refused(policy):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, dtype=policy)])
    for refused in (
        policy,
        keras.DTypePolicy(policy),
        keras.layers.Dense(1, dtype=policy),
    ):
        with pytest.raises(ValueError, match=f"stored as {policy}.*mixed_bfloat16"):
            check_policy(refused)
    with pytest.raises(ValueError, match="kernel"):
        check_policy(model)


def test_frozen_weights_may_be_anything():
    dense = keras.layers.Dense(1, dtype="bfloat16", trainable=False)
    check_policy(keras.Sequential([keras.Input((2,)), dense, keras.layers.Dense(1)]))
