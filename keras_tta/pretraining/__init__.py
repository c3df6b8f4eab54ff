"""Pretraining objectives, each a functional `keras.Model`."""

from keras_tta.pretraining.language_autoencoder import LanguageAutoencoder

__all__ = ["LanguageAutoencoder"]
