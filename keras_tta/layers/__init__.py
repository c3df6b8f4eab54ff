"""Keras layers: visibility, attention, encoders, embeddings, heads, corruption."""

from keras_tta.layers.attention import (
    ProjectedAttention,
    TTAAttention,
    VisibilityMask,
)
from keras_tta.layers.copy_head import CopyHead
from keras_tta.layers.corruption import (
    BARTDenoising,
    Deshuffling,
    Masker,
    MASSDenoising,
    PrefixLM,
    SpanCorruption,
    TokenDenoising,
    TokenMasking,
    TokenSampler,
    UL2Denoising,
    preview,
)
from keras_tta.layers.disentangled_embedding import DisentangledEmbedding
from keras_tta.layers.embeddings import TransformerEmbedding, TTAEmbedding
from keras_tta.layers.encoders import SharedKVEncoder, TransformerEncoder
from keras_tta.layers.feed_forward import FeedForwardBlock
from keras_tta.layers.heads import EmbeddingHead, TokenPredictionHead
from keras_tta.layers.mixed_visibility import MixedVisibilityMask
from keras_tta.layers.replaced_token_head import ReplacedTokenHead

__all__ = [
    "BARTDenoising",
    "CopyHead",
    "Deshuffling",
    "DisentangledEmbedding",
    "EmbeddingHead",
    "FeedForwardBlock",
    "MASSDenoising",
    "Masker",
    "MixedVisibilityMask",
    "PrefixLM",
    "ProjectedAttention",
    "ReplacedTokenHead",
    "SharedKVEncoder",
    "SpanCorruption",
    "TTAAttention",
    "TTAEmbedding",
    "TokenDenoising",
    "TokenMasking",
    "TokenPredictionHead",
    "TokenSampler",
    "TransformerEmbedding",
    "TransformerEncoder",
    "UL2Denoising",
    "VisibilityMask",
    "preview",
]
