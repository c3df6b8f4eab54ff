"""What people do with a trained encoder: score text."""

from keras_tta.tasks.text_scorer import RankedToken, TextScorer, TokenScore

__all__ = ["RankedToken", "TextScorer", "TokenScore"]
