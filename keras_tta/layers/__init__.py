"""Keras layers: visibility, attention, encoders, embeddings, heads."""

from keras_tta.layers.attention import (
    ProjectedAttention,
    TTAAttention,
    VisibilityMask,
)
from keras_tta.layers.embeddings import TTAEmbedding
from keras_tta.layers.encoders import FeedForwardBlock, SharedKVEncoder
from keras_tta.layers.heads import TokenPredictionHead

__all__ = [
    "FeedForwardBlock",
    "ProjectedAttention",
    "SharedKVEncoder",
    "TTAAttention",
    "TTAEmbedding",
    "TokenPredictionHead",
    "VisibilityMask",
]
