"""Functional backbones, subclasses of `keras_hub.models.Backbone`."""

from keras_tta.models.transformer_backbone import TransformerBackbone
from keras_tta.models.tta_backbone import TTABackbone

__all__ = ["TTABackbone", "TransformerBackbone"]
