"""Pseudo-perplexity: how well a model predicts the tokens, and words, of texts."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from keras_tta.charts import BASELINE, BLUE, GRID
from keras_tta.evaluation.files import numbered_lines
from keras_tta.evaluation.results import Result


@dataclass(frozen=True, eq=False)
class PseudoPerplexity(Result):
    """Nats of texts, by token and by word.

    Args:
        nats: float64 (N,), the negative log-probability of each text.
        tokens: int (N,), tokens of each that were scored.
        words: int (N,), its words, what blanks divide.
        unknown: int (N,), how many of the tokens are unknown to the tokenizer.
    """

    nats: np.ndarray = field(repr=False)
    tokens: np.ndarray = field(repr=False)
    words: np.ndarray = field(repr=False)
    unknown: np.ndarray = field(repr=False)

    title = "Pseudo-perplexity"
    formats = dict.fromkeys(
        ("nats_per_token", "nats_per_word", "by_token", "by_word"), "{:,.3f}"
    )

    @property
    def by_token(self) -> float:
        """exp of the mean nats of a token: depends on the tokenizer."""
        return self.figures["by_token"]

    @property
    def by_word(self) -> float:
        """exp of the nats of all texts over their words: comparable."""
        return self.figures["by_word"]

    @property
    def figures(self):
        nats = self.nats.sum()
        by_token, by_word = nats / self.tokens.sum(), nats / self.words.sum()
        return {
            "texts": len(self.nats),
            "words": int(self.words.sum()),
            "tokens": int(self.tokens.sum()),
            "unknown_tokens": int(self.unknown.sum()),
            "nats_per_token": float(by_token),
            "nats_per_word": float(by_word),
            "by_token": float(np.exp(by_token)),
            "by_word": float(np.exp(by_word)),
        }

    @property
    def rows(self):
        names = ("nats", "tokens", "words", "unknown")
        columns = (getattr(self, name).tolist() for name in names)
        return [
            dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
        ]

    def _draw(self, axes):
        has_words = self.words > 0
        axes.hist(self.nats[has_words] / self.words[has_words], bins=40, color=BLUE)
        mean = self.figures["nats_per_word"]
        axes.axvline(mean, **BASELINE)
        axes.grid(axis="y", **GRID)
        axes.set_xlabel(
            f"nats a word of a text; over all {mean:.2f}, a pseudo-perplexity of "
            f"{self.by_word:,.0f}"
        )
        axes.set_ylabel("texts")


def pseudo_perplexity(
    scorer, texts: str | os.PathLike | Iterable[str], **options
) -> PseudoPerplexity:
    """The pseudo-perplexity of texts, by token and by word.

    By token it is exp(-sum of log-probabilities / tokens), special tokens left out
    (Salazar et al., ACL 2020). It falls as a tokenizer cuts finer. By word, the same
    sum over the number of words, what blanks divide in the text, it may be
    compared between tokenizers, if they leave no token unknown: those are scored as
    [UNK], which is easy to predict, and counted here. A causal scorer gives an
    ordinary perplexity; the two kinds do not compare.

    Args:
        scorer: a `keras_tta.tasks.TextScorer`.
        texts: a file with a text a line, plain, `.gz` or `.zst`, or an iterable of str.
        **options: as for `TextScorer.token_scores`, such as `visibility` or `stride`.

    Returns:
        A `PseudoPerplexity`.

    Raises:
        ValueError: if nothing is there to score, or a text is too long and no `stride`
            given.

    Example:
    ```python
    import math
    from types import SimpleNamespace
    from keras_tta.evaluation import pseudo_perplexity
    from keras_tta.tasks import TokenScore


    class EvenOdds:
        tokenizer = SimpleNamespace(oov_token="[UNK]")

        def token_scores(self, texts):
            return [[TokenScore(c, math.log(0.5)) for c in text] for text in texts]


    result = pseudo_perplexity(EvenOdds(), ["ab", "abcd"])
    assert round(result.by_token, 6) == 2 and round(result.by_word, 6) == 8
    print(result)
    ```
    """
    if isinstance(texts, str | os.PathLike):
        texts = (line for _, line in numbered_lines(texts))
    texts = list(texts)
    unknown = scorer.tokenizer.oov_token
    rows = [
        (
            -sum(score.log_probability for score in scores),
            len(scores),
            len(text.split()),
            sum(score.token == unknown for score in scores),
        )
        for text, scores in zip(
            texts, scorer.token_scores(texts, **options), strict=True
        )
    ]
    nats, *counts = np.asarray(rows, "float64").reshape(-1, 4).T
    tokens, words, unknown = (count.astype(int) for count in counts)
    if not (tokens.sum() and words.sum()):
        raise ValueError(
            f"`texts` must hold words to score. Received: {len(texts)} texts without."
        )
    return PseudoPerplexity(nats, tokens, words, unknown)
