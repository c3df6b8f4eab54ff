"""Pretraining for text encoders in Keras 3."""
