import keras
import numpy as np
import pytest
from keras import ops

from keras_tta.training import TokenCount


def test_it_adds_up_masks_and_counts():
    tokens = TokenCount()
    tokens.update_state(np.array([[True, True, False], [True, False, False]]))
    tokens.update_state(ops.convert_to_tensor(np.array([4, 5], "int32")))
    tokens.update_state(np.array(10))
    assert float(ops.convert_to_numpy(tokens.result())) == 22
    tokens.reset_state()
    assert float(ops.convert_to_numpy(tokens.result())) == 0


def test_small_counts_are_not_lost_in_large_ones():
    tokens = TokenCount()
    for _ in range(8):
        tokens.update_state(np.array(2**30, "int32"))
    for _ in range(1024):
        tokens.update_state(np.array(1, "int32"))
    # A float32 sum would have stood still at the first 2**33.
    assert float(ops.convert_to_numpy(tokens.result())) == 2**33 + 1024


def test_a_result_is_not_changed_by_a_reset():
    tokens = TokenCount()
    tokens.update_state(np.array(7))
    result = tokens.result()
    tokens.reset_state()
    assert float(ops.convert_to_numpy(result)) == 7


def test_config_round_trip():
    tokens = keras.metrics.deserialize(keras.metrics.serialize(TokenCount("seen")))
    assert type(tokens) is TokenCount
    assert tokens.name == "seen"


def test_sample_weight_is_refused():
    with pytest.raises(ValueError, match="sample_weight"):
        TokenCount().update_state(np.array(1), sample_weight=1.0)
