"""How good a trained encoder is: minimal pairs, similarity, perplexity, word errors."""

from keras_tta.evaluation.minimal_pairs import MinimalPairs, minimal_pairs
from keras_tta.evaluation.nbest_lists import Hypothesis, NBestList, read_nbest_lists
from keras_tta.evaluation.perplexity import PseudoPerplexity, pseudo_perplexity
from keras_tta.evaluation.semantic_similarity import (
    SemanticSimilarity,
    SentencePair,
    read_sentence_pairs,
    semantic_similarity,
)
from keras_tta.evaluation.word_errors import (
    WordErrorRates,
    nbest_word_error_rates,
    word_errors,
)

__all__ = [
    "Hypothesis",
    "MinimalPairs",
    "NBestList",
    "PseudoPerplexity",
    "SemanticSimilarity",
    "SentencePair",
    "WordErrorRates",
    "minimal_pairs",
    "nbest_word_error_rates",
    "pseudo_perplexity",
    "read_nbest_lists",
    "read_sentence_pairs",
    "semantic_similarity",
    "word_errors",
]
