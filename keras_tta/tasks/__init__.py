"""What people do with a trained encoder: score, rescore and embed text."""

from keras_tta.tasks.embedding_transforms import EmbeddingTransform
from keras_tta.tasks.hypothesis_form import HypothesisForm
from keras_tta.tasks.nbest_rescorer import NBestRescorer, RescoredList
from keras_tta.tasks.nbest_tuning import NBestTuning
from keras_tta.tasks.text_embedder import TextEmbedder
from keras_tta.tasks.text_scorer import RankedToken, TextScorer, TokenScore

__all__ = [
    "EmbeddingTransform",
    "HypothesisForm",
    "NBestRescorer",
    "NBestTuning",
    "RankedToken",
    "RescoredList",
    "TextEmbedder",
    "TextScorer",
    "TokenScore",
]
