"""Functional backbones, subclasses of `keras_hub.models.Backbone`, and their heads."""

from keras_tta.models.heads import replaced_token_head, token_prediction_head
from keras_tta.models.transformer_backbone import TransformerBackbone
from keras_tta.models.tta_backbone import TTABackbone

__all__ = [
    "TTABackbone",
    "TransformerBackbone",
    "replaced_token_head",
    "token_prediction_head",
]
