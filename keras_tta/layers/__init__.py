"""Keras layers: visibility, attention, encoders, embeddings, heads."""

from keras_tta.layers.attention import (
    ProjectedAttention,
    TTAAttention,
    VisibilityMask,
)
from keras_tta.layers.embeddings import TransformerEmbedding, TTAEmbedding
from keras_tta.layers.encoders import SharedKVEncoder, TransformerEncoder
from keras_tta.layers.feed_forward import FeedForwardBlock
from keras_tta.layers.heads import TokenPredictionHead

__all__ = [
    "FeedForwardBlock",
    "ProjectedAttention",
    "SharedKVEncoder",
    "TTAAttention",
    "TTAEmbedding",
    "TokenPredictionHead",
    "TransformerEmbedding",
    "TransformerEncoder",
    "VisibilityMask",
]
