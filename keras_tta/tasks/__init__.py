"""What people do with a trained encoder: score and embed text."""

from keras_tta.tasks.embedding_transforms import EmbeddingTransform
from keras_tta.tasks.text_embedder import TextEmbedder
from keras_tta.tasks.text_scorer import RankedToken, TextScorer, TokenScore

__all__ = [
    "EmbeddingTransform",
    "RankedToken",
    "TextEmbedder",
    "TextScorer",
    "TokenScore",
]
