"""Pretraining objectives, each a functional `keras.Model`."""

from keras_tta.pretraining.language_autoencoder import LanguageAutoencoder
from keras_tta.pretraining.tta_checkpoint import convert_tta_checkpoint

__all__ = ["LanguageAutoencoder", "convert_tta_checkpoint"]
