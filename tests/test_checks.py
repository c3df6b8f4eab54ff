import numpy as np
import pytest

from keras_tta.checks import check_fraction, check_one_of, check_token_ids
from keras_tta.models import TTABackbone
from keras_tta.presets import save_preset

pytestmark = pytest.mark.agnostic


@pytest.mark.parametrize("ids", [0, 10, np.int64(3), (0, 10), range(5), (), None])
def test_token_ids(ids):
    if ids is None:
        pytest.raises(ValueError, check_token_ids, None, 11, ids=ids)
    else:
        check_token_ids(None, 11, ids=ids)


@pytest.mark.parametrize("ids", [-1, 11, 4.0, "4", "0134", (0, -1), (0.5,), ("a",)])
def test_what_is_no_token_id(ids):
    with pytest.raises(ValueError, match="`ids` of NoneType must be token ids"):
        check_token_ids(None, 11, ids=ids)


def test_fractions_of_numpy():
    check_fraction(None, rate=np.float32(0.1))
    with pytest.raises(ValueError, match="rate=1.5"):
        check_fraction(None, rate=1.5)


def test_a_backbone_of_a_numpy_fraction_is_saved(tmp_path):
    model = TTABackbone(11, 1, 2, 8, 12, dropout=np.float32(0.5))
    save_preset(tmp_path, model)
    assert TTABackbone.from_preset(str(tmp_path)).dropout == 0.5


def test_a_function_is_called_by_its_name():
    with pytest.raises(ValueError, match="`side` of cut must be one of 1, 2"):
        check_one_of("cut", (1, 2), side=3)
