"""A tiny model with weights large enough to have opinions, and its tokenizer."""

import keras
import numpy as np
import pytest

from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder

WORDS = ("the", "a", "cat", "dog", "##s", "##ing", "sat", "walk", "on", "mat", ".")


def make_model(tokenizer, dtype=None, **options):
    backbone = TTABackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=24,
        dtype=dtype,
        **options,
    )
    model = LanguageAutoencoder(backbone)
    random = np.random.default_rng(1)
    for weight in model.weights:
        if weight.name not in ("gamma", "seed_generator_state"):
            weight.assign(random.normal(0, 0.7, weight.shape))
    return model


@pytest.fixture(scope="session")
def tokenizer():
    return TTATokenizer([*SPECIAL_TOKENS, *WORDS])


@pytest.fixture(scope="session")
def model(tokenizer):
    keras.utils.set_random_seed(0)
    return make_model(tokenizer)
