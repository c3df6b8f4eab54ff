"""Corruption: which ids a model reads, and which it must give back."""

from keras_tta.layers.corruption.masker import Masker
from keras_tta.layers.corruption.token_masking import TokenMasking

__all__ = ["Masker", "TokenMasking"]
