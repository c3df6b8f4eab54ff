"""Minimal pairs: does a model prefer the acceptable sentence?"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from keras_tta.charts import BASELINE, draw_bars
from keras_tta.evaluation.files import json_rows
from keras_tta.evaluation.results import Result

# Two ways of writing the same tokens score alike up to float32's rounding, in nats.
TIE = 1e-4


@dataclass(frozen=True, eq=False)
class MinimalPairs(Result):
    """How often the acceptable sentence of a pair has the higher score.

    Args:
        differences: float64 (N,), the score of each good sentence less the bad one's.
        phenomena: list of str, the linguistic phenomenon of each pair.
        paradigms: list of str, its paradigm (BLiMP's `UID`).
    """

    differences: np.ndarray = field(repr=False)
    phenomena: list[str] = field(repr=False)
    paradigms: list[str] = field(repr=False)

    title = "Minimal pairs"
    formats = {"accuracy": "{:.1%}"}

    @property
    def accuracy(self) -> float:
        """The share of pairs whose good sentence wins; a tie is no win."""
        return self.figures["accuracy"]

    @property
    def figures(self):
        return _figures(self.differences)

    @property
    def by_phenomenon(self) -> dict[str, dict[str, Any]]:
        """Pairs, accuracy and ties of each phenomenon."""
        return self._by(self.phenomena)

    @property
    def by_paradigm(self) -> dict[str, dict[str, Any]]:
        """Pairs, accuracy and ties of each paradigm."""
        return self._by(self.paradigms)

    @property
    def rows(self):
        phenomenon_of = dict(zip(self.paradigms, self.phenomena, strict=True))
        return [
            {"phenomenon": phenomenon_of[paradigm], "paradigm": paradigm, **figures}
            for paradigm, figures in self.by_paradigm.items()
        ]

    def _by(self, names):
        names = np.asarray(names, dtype=object)
        return {
            name: _figures(self.differences[names == name])
            for name in sorted(set(names))
        }

    def _printed(self):
        parts = {**self.by_phenomenon, "all pairs": self.figures}
        return [{"phenomenon": name, **figures} for name, figures in parts.items()]

    @property
    def chart_size(self):
        return 7.2, 1.4 + 0.32 * (len(set(self.phenomena)) + 1)

    def _draw(self, axes):
        parts = {**self.by_phenomenon, "all pairs": self.figures}
        values = [100 * figures["accuracy"] for figures in parts.values()]
        names = [name.replace("_", " ") for name in parts]
        draw_bars(axes, names, values, [f"{value:.1f}" for value in values])
        axes.axvline(50, zorder=0, **BASELINE)
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of pairs in which the good sentence has the higher score")


def minimal_pairs(
    scorer,
    pairs: str | os.PathLike | Iterable[Mapping[str, Any]],
    normalize: str = "none",
    **options,
) -> MinimalPairs:
    """Score minimal pairs in BLiMP's format and count the right preferences.

    The good sentence must have the higher sum of log-probabilities, as in Warstadt et
    al. (TACL 2020) and Salazar et al. (ACL 2020). A tie counts as wrong: pairs that
    are the same to the tokenizer, or apart by no more than rounding (1e-4 nats). Ties
    are counted. `accuracy` is over pairs; in BLiMP, whose paradigms have 1,000 pairs
    each, that is the mean over paradigms too.

    Args:
        scorer: a `keras_tta.tasks.TextScorer`, or anything with its `score`.
        pairs: a JSONL file, plain, `.gz` or `.zst`, or an iterable of dicts, with
            `sentence_good` and `sentence_bad`; the phenomenon in `linguistics_term`,
            `phenomenon` or `field`, the first that is there; the paradigm in `UID`.
        normalize: `"none"`, `"tokens"` or `"words"`, as for `TextScorer.score`.
            Defaults to `"none"`, sums.
        **options: as for `TextScorer.score`, such as `visibility` and `progress`.

    Returns:
        A `MinimalPairs`.

    Raises:
        ValueError: if there are no pairs, or a line is not JSON or lacks a sentence.

    Example:
    ```python
    import numpy as np
    from keras_tta.evaluation import minimal_pairs


    class ShorterIsBetter:
        def score(self, texts, **options):
            return np.array([-float(len(text)) for text in texts])


    pairs = [
        {"sentence_good": "It sleeps.", "sentence_bad": "It sleepses.", "UID": "verbs"},
        {"sentence_good": "She hurt herself.", "sentence_bad": "She hurt himself."},
    ]
    result = minimal_pairs(ShorterIsBetter(), pairs)
    assert result.accuracy == 0.5 and result.figures["ties"] == 1
    print(result)
    ```
    """
    sentences, phenomena, paradigms = [], [], []
    for place, row in json_rows(pairs):
        sentences += _sentences(place, row)
        phenomena.append(
            str(_first(row, "linguistics_term", "phenomenon", "field", "UID"))
        )
        paradigms.append(str(_first(row, "UID", "linguistics_term", "phenomenon")))
    if not sentences:
        raise ValueError(f"`pairs` must hold minimal pairs; there are none in {pairs}.")
    unique, index = np.unique(np.asarray(sentences, object), return_inverse=True)
    scores = scorer.score(unique.tolist(), normalize=normalize, **options)[index]
    return MinimalPairs(scores[::2] - scores[1::2], phenomena, paradigms)


def _sentences(place, row):
    for name in ("sentence_good", "sentence_bad"):
        if not isinstance(row.get(name), str):
            raise ValueError(
                f"{place}: a minimal pair must have `sentence_good` and "
                f"`sentence_bad`, both text. Received: {name}={row.get(name)!r}"
            )
        yield row[name]


def _first(row, *names):
    return next((row[name] for name in names if name in row), "unnamed")


def _figures(differences):
    return {
        "pairs": len(differences),
        "accuracy": float(np.mean(differences > TIE)),
        "ties": int(np.sum(np.abs(differences) <= TIE)),
    }
