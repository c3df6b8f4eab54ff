"""Semantic textual similarity: do embeddings know how near two sentences are?"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from keras_tta.charts import BLUE, GRID
from keras_tta.data.optional_packages import import_optional
from keras_tta.evaluation.files import numbered_lines
from keras_tta.evaluation.results import Result


class SentencePair(NamedTuple):
    """Two sentences and how alike people find them."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, eq=False)
class SemanticSimilarity(Result):
    """Correlation of cosine similarities with people's scores.

    Args:
        pairs: list of `SentencePair`.
        similarities: float64 (N,), their cosine similarities.
        pearson: Pearson's r, what the T-TA paper reports.
        spearman: Spearman's rank correlation, what papers since SBERT report.
    """

    pairs: list[SentencePair] = field(repr=False)
    similarities: np.ndarray = field(repr=False)
    pearson: float
    spearman: float

    title = "Semantic similarity"
    formats = {"pearson": "{:.4f}", "spearman": "{:.4f}"}

    @property
    def figures(self):
        return {
            "pairs": len(self.pairs),
            "pearson": self.pearson,
            "spearman": self.spearman,
        }

    @property
    def rows(self):
        return [
            {**pair._asdict(), "similarity": similarity}
            for pair, similarity in zip(
                self.pairs, self.similarities.tolist(), strict=True
            )
        ]

    def _draw(self, axes):
        scores = [pair.score for pair in self.pairs]
        axes.plot(scores, self.similarities, "o", color=BLUE, ms=3, alpha=0.35, mew=0)
        axes.grid(**GRID)
        axes.set_xlabel(
            f"score by people (Pearson {self.pearson:.3f}, Spearman "
            f"{self.spearman:.3f})"
        )
        axes.set_ylabel("cosine similarity")


def semantic_similarity(
    embedder,
    pairs: str | os.PathLike | Iterable[tuple[str, str, float]],
    **options,
) -> SemanticSimilarity:
    """Correlate the cosine similarity of embeddings with people's scores.

    Both correlations are reported, for papers mix them: the T-TA paper has Pearson's,
    nearly all later ones Spearman's.

    Args:
        embedder: a `keras_tta.tasks.TextEmbedder`, or anything whose `encode` takes a
            list of texts and gives an array (N, D).
        pairs: a file that `read_sentence_pairs` reads, or an iterable of (sentence,
            sentence, score).
        **options: for `encode`.

    Returns:
        A `SemanticSimilarity`.

    Raises:
        ValueError: if there are fewer than two pairs or a line is not one.
        ImportError: if SciPy is not installed.

    Example:
    ```python
    import numpy as np
    from keras_tta.evaluation import semantic_similarity


    class Letters:
        def encode(self, texts):
            return np.array([[text.count(c) for c in "abc"] for text in texts])


    pairs = [("aab", "aba", 5.0), ("aab", "abc", 3.0), ("a", "c", 0.0)]
    result = semantic_similarity(Letters(), pairs)
    assert result.pearson > 0.9 and result.spearman > 0.99
    print(result)
    ```
    """
    stats = import_optional("scipy", "evaluation", "Semantic similarity").stats
    if isinstance(pairs, str | os.PathLike):
        pairs = read_sentence_pairs(pairs)
    pairs = [SentencePair(*pair) for pair in pairs]
    if len(pairs) < 2:
        raise ValueError(
            f"A correlation needs at least two sentence pairs. Received: {len(pairs)}"
        )
    firsts, seconds, scores = zip(*pairs, strict=True)
    unique, index = np.unique(
        np.asarray([*firsts, *seconds], object), return_inverse=True
    )
    embeddings = np.asarray(embedder.encode(unique.tolist(), **options), "float64")
    embeddings /= np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    first, second = embeddings[index].reshape(2, len(pairs), -1)
    similarities = np.sum(first * second, axis=1)
    return SemanticSimilarity(
        pairs,
        similarities,
        float(stats.pearsonr(scores, similarities).statistic),
        float(stats.spearmanr(scores, similarities).statistic),
    )


def read_sentence_pairs(path: str | os.PathLike) -> list[SentencePair]:
    """Read scored sentence pairs: the tab-separated files of STS-B and of SICK.

    A file whose first line names `sentence_A`, `sentence_B` and `relatedness_score` is
    SICK's. Any other is STS-B's, without a header: score and sentences are the fifth
    to the seventh column, what follows is left alone. Nothing is unquoted.

    Args:
        path: a UTF-8 file, plain, `.gz` or `.zst`.

    Raises:
        ValueError: if a line lacks a column or its score is not a number; it names file
            and line.
    """
    score, first, second = 4, 5, 6
    pairs = []
    for index, (place, line) in enumerate(numbered_lines(path)):
        columns = line.split("\t")
        if index == 0 and "sentence_A" in columns:
            score, first, second = map(
                columns.index, ("relatedness_score", "sentence_A", "sentence_B")
            )
            continue
        try:
            pairs.append(
                SentencePair(columns[first], columns[second], float(columns[score]))
            )
        except (IndexError, ValueError):
            raise ValueError(
                f"{place}: expected columns divided by tabs, the score in column "
                f"{score + 1} and the sentences in columns {first + 1} and "
                f"{second + 1}. Received: {line[:80]!r}"
            ) from None
    return pairs
