"""Which weights of the objectives a layout splits."""

import keras
import pytest

from keras_tta.models.layout_map import get_layout_map
from keras_tta.pretraining import CorrectiveLM
from tests.pretraining.electra import SIZE, make_masking, networks

pytestmark = pytest.mark.agnostic


def test_all_that_is_as_long_as_the_vocabulary_is_split():
    mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["a:0", "a:1"])
    layout_map = get_layout_map(mesh)
    for tie in ("all", "disentangled"):
        generator, discriminator = networks()
        generator = None if tie == "all" else generator
        pretrainer = CorrectiveLM(generator, discriminator, make_masking(), tie=tie)
        found = 0
        for weight in pretrainer.weights:
            if weight.shape and weight.shape[0] == SIZE:
                assert layout_map[weight.path].axes[0] == "model", weight.path
                found += 1
        assert found == (3 if tie == "all" else 4)
