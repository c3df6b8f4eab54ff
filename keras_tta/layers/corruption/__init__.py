"""Corruption: which ids a model reads, and which it must give back."""

from keras_tta.layers.corruption.bart import BARTDenoising
from keras_tta.layers.corruption.denoising import (
    Deshuffling,
    PrefixLM,
    TokenDenoising,
)
from keras_tta.layers.corruption.masker import Masker
from keras_tta.layers.corruption.mass import MASSDenoising
from keras_tta.layers.corruption.previews import preview
from keras_tta.layers.corruption.replacement import TokenSampler
from keras_tta.layers.corruption.span_corruption import SpanCorruption
from keras_tta.layers.corruption.token_masking import TokenMasking
from keras_tta.layers.corruption.ul2 import UL2Denoising

__all__ = [
    "BARTDenoising",
    "Deshuffling",
    "MASSDenoising",
    "Masker",
    "PrefixLM",
    "SpanCorruption",
    "TokenDenoising",
    "TokenMasking",
    "TokenSampler",
    "UL2Denoising",
    "preview",
]
