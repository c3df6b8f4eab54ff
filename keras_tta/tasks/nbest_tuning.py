"""The search for the weights of a rescorer, and its result."""

from dataclasses import dataclass, field

import numpy as np

from keras_tta.charts import BASELINE, BLUE, GRID, INK
from keras_tta.evaluation.results import Result


def penalized(log_probabilities, tokens, length_penalty):
    """Log-probabilities over ((5 + tokens) / 6) ** length_penalty (Wu et al., 2016)."""
    return log_probabilities / ((5 + tokens) / 6) ** length_penalty


@dataclass(frozen=True, eq=False)
class NBestTuning(Result):
    """Word error rates over a grid of weights and length penalties.

    Args:
        weights: float (W,).
        length_penalties: float (P,).
        word_error_rates: float (W, P).
        one_best: the rate without rescoring.
        oracle: the rate of the best hypotheses.
        notes: str, how the model read the texts, and what it did not know.
    """

    weights: np.ndarray
    length_penalties: np.ndarray
    word_error_rates: np.ndarray = field(repr=False)
    one_best: float
    oracle: float
    notes: str

    title = "Tuning of an n-best rescorer"
    formats = dict.fromkeys(("wer", "wer_1_best", "wer_oracle"), "{:.2%}") | dict(
        weight="{:.2f}", length_penalty="{:.2f}"
    )

    @property
    def best(self) -> tuple[float, float]:
        """Weight and length penalty of the lowest rate; of equals, the least."""
        best = np.unravel_index(
            np.argmin(self.word_error_rates), self.word_error_rates.shape
        )
        return float(self.weights[best[0]]), float(self.length_penalties[best[1]])

    @property
    def at_edge(self) -> tuple[str, ...]:
        """Which of `"weight"` and `"length_penalty"` are best at an end of the grid.

        The true best may then lie beyond. An end at 0, beyond which nothing makes
        sense, and a grid of one value do not count.
        """
        grids = (self.weights, self.length_penalties)
        names = ("weight", "length_penalty")
        return tuple(
            name
            for name, best, grid in zip(names, self.best, grids, strict=True)
            if len(grid) > 1
            and (best == grid.max() or (best == grid.min() and best > 0))
        )

    @property
    def figures(self):
        weight, length_penalty = self.best
        return {
            "weight": weight,
            "length_penalty": length_penalty,
            "wer": float(self.word_error_rates.min()),
            "wer_1_best": self.one_best,
            "wer_oracle": self.oracle,
            "at_edge": " and ".join(self.at_edge) or "none",
        }

    @property
    def rows(self):
        return [
            {"weight": float(w), "length_penalty": float(p), "wer": float(rate)}
            for w, rates in zip(self.weights, self.word_error_rates, strict=True)
            for p, rate in zip(self.length_penalties, rates, strict=True)
        ]

    def __str__(self):
        text = f"{super().__str__()}\n{self.notes}"
        if self.at_edge:
            text += (
                f"\nThe best {' and '.join(self.at_edge)} lies at the edge of the "
                "grid: a wider grid may find a better one."
            )
        return text

    def _draw(self, axes):
        weight, length_penalty = self.best
        at = int(np.flatnonzero(self.length_penalties == length_penalty)[0])
        for index, rates in enumerate(100 * self.word_error_rates.T):
            style = {"color": BLUE, "lw": 2.2} if index == at else {"color": "#c9d6dd"}
            axes.plot(self.weights, rates, zorder=2 + (index == at), **style)
        axes.plot(weight, 100 * self.word_error_rates.min(), "o", color=BLUE, zorder=4)
        axes.axhline(100 * self.one_best, **BASELINE)
        axes.annotate(
            "1-best",
            (self.weights.max(), 100 * self.one_best),
            (0, 4),
            textcoords="offset points",
            ha="right",
            color=INK,
            fontsize=9,
        )
        axes.grid(axis="y", **GRID)
        axes.set_xlabel(
            f"weight; a line is a length penalty, the blue one {length_penalty:.2f}"
        )
        axes.set_ylabel("word error rate, %")
