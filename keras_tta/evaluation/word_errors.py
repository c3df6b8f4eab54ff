"""Word error rates, of 1-best, oracle and whatever else picks from n-best lists."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from keras_tta.charts import draw_bars
from keras_tta.data.optional_packages import import_optional
from keras_tta.evaluation.nbest_lists import NBestList
from keras_tta.evaluation.results import Result

RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class WordErrorRates(Result):
    """Word error rates of ways to pick a hypothesis, with bootstrap intervals.

    An interval is the middle 95 % of 1,000 resamples of the utterances, always the same
    ones, so that the intervals of two results over the same lists compare.

    Args:
        utterances: list of str, names.
        words: int (N,), words of each reference.
        errors: dict from each way's name to int (N,), its word errors in each.
    """

    utterances: list[str] = field(repr=False)
    words: np.ndarray = field(repr=False)
    errors: dict[str, np.ndarray] = field(repr=False)

    title = "Word error rate"
    formats = dict.fromkeys(("wer", "low", "high"), "{:.2%}") | {
        "relative_change": "{:+.1%}"
    }
    chart_size = (6.4, 2.6)

    @property
    def wer(self) -> dict[str, float]:
        """The word error rate of each way: errors over words of the references."""
        words = self.words.sum()
        return {name: float(e.sum() / words) for name, e in self.errors.items()}

    @property
    def figures(self):
        return {
            "utterances": len(self.words),
            "words": int(self.words.sum()),
            **{f"wer_{name}": value for name, value in self.wer.items()},
        }

    @property
    def rows(self):
        wer = self.wer
        first = next(iter(wer.values()))
        rows = []
        for name, errors in self.errors.items():
            low, high = np.quantile(self._resampled(errors), (0.025, 0.975)).tolist()
            rows.append(
                {
                    "chosen": name,
                    "wer": wer[name],
                    "low": low,
                    "high": high,
                    "errors": int(errors.sum()),
                    "words": int(self.words.sum()),
                    "relative_change": wer[name] / first - 1 if first else 0.0,
                }
            )
        return rows

    @property
    def per_utterance(self) -> list[dict]:
        """For each utterance its name, words, and the errors of each way."""
        columns = self.words, *self.errors.values()
        return [
            {"utterance": name, **dict(zip(("words", *self.errors), row, strict=True))}
            for name, *row in zip(
                self.utterances, *(c.tolist() for c in columns), strict=True
            )
        ]

    def difference(self, name: str, base: str) -> tuple[float, float, float]:
        """How much lower the rate of `name` is than that of `base`.

        Returns:
            The difference, and the 95 % interval of it over the same resamples: if it
            leaves out 0, the gain is not an accident of these utterances.
        """
        saved = self.errors[base] - self.errors[name]
        low, high = np.quantile(self._resampled(saved), (0.025, 0.975)).tolist()
        return float(saved.sum() / self.words.sum()), low, high

    def _resampled(self, errors):
        count = len(self.words)
        random = np.random.default_rng(0)
        draws = random.multinomial(count, np.full(count, 1 / count), RESAMPLES)
        return (draws @ errors) / np.maximum(draws @ self.words, 1)

    def _printed(self):
        return self.rows

    def _draw(self, axes):
        rows = self.rows
        draw_bars(
            axes,
            [row["chosen"] for row in rows],
            [100 * row["wer"] for row in rows],
            [f"{100 * row['wer']:.2f}" for row in rows],
            [(100 * row["low"], 100 * row["high"]) for row in rows],
        )
        axes.margins(x=0.12)
        axes.set_xlabel("word error rate, %, with 95 % bootstrap intervals")


def word_errors(
    references: Sequence[str], hypotheses: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Word errors of hypotheses: substitutions, deletions and insertions, by jiwer.

    Words are what blanks divide, and compared as they are, case included.

    Args:
        references, hypotheses: texts, as many of one as of the other.

    Returns:
        Errors and numbers of reference words, int64 (N,) both.

    Raises:
        ImportError: if jiwer is not installed.

    Example:
    ```python
    from keras_tta.evaluation import word_errors

    errors, words = word_errors(["a cat sat", "so"], ["the cat sat down", "so"])
    assert errors.tolist() == [2, 0] and words.tolist() == [3, 1]
    ```
    """
    jiwer = import_optional("jiwer", "evaluation", "Counting word errors")
    words = np.array([len(text.split()) for text in references], "int64")
    if not len(words):
        return words, words
    aligned = jiwer.process_words(
        [" ".join(text.split()) for text in references],
        [" ".join(text.split()) for text in hypotheses],
    )
    errors = [
        sum(
            max(
                part.ref_end_idx - part.ref_start_idx,
                part.hyp_end_idx - part.hyp_start_idx,
            )
            for part in parts
            if part.type != "equal"
        )
        for parts in aligned.alignments
    ]
    return np.array(errors, "int64"), words


def hypothesis_errors(lists: Sequence[NBestList]) -> list[np.ndarray]:
    """Word errors of every hypothesis: for each list an int array, one each.

    Raises:
        ValueError: if a list has no reference.
    """
    for nbest in lists:
        if nbest.reference is None:
            raise ValueError(
                f"Word errors need references, and utterance {nbest.utterance!r} has "
                "none: its line lacks `ref`."
            )
    counts = [len(nbest.hypotheses) for nbest in lists]
    errors, _ = word_errors(
        [nbest.reference for nbest in lists for _ in nbest.hypotheses],
        [hypothesis.text for nbest in lists for hypothesis in nbest.hypotheses],
    )
    return np.split(errors, np.cumsum(counts)[:-1]) if counts else []


def nbest_word_error_rates(
    lists: Iterable[NBestList],
    chosen: Mapping[str, Sequence[int]] | None = None,
) -> WordErrorRates:
    """Word error rates of n-best lists: of the 1-best, the oracle, and other choices.

    The oracle picks from each list a hypothesis with the fewest errors: no rescoring
    can do better.

    Args:
        lists: `NBestList`s with references, such as `read_nbest_lists` reads.
        chosen: from a name to the indices of the hypotheses picked, one a list, such
            as a rescorer's.

    Returns:
        A `WordErrorRates`.

    Raises:
        ValueError: if there are no lists, or one has no reference.
        ImportError: if jiwer is not installed.

    Example:
    ```python
    from keras_tta.evaluation import Hypothesis, NBestList, nbest_word_error_rates

    hypotheses = [Hypothesis("a cat sad", -1.0), Hypothesis("a cat sat", -1.5)]
    lists = [NBestList("u1", hypotheses, "a cat sat")]
    result = nbest_word_error_rates(lists, {"second": [1]})
    assert result.wer == {"1-best": 1 / 3, "second": 0.0, "oracle": 0.0}
    print(result)
    ```
    """
    lists = list(lists)
    errors = hypothesis_errors(lists)
    words = np.array([len(nbest.reference.split()) for nbest in lists], "int64")
    if not words.sum():
        raise ValueError(
            "A word error rate needs n-best lists whose references have words. "
            f"Received: {len(lists)} lists."
        )
    choices = {"1-best": [nbest.best for nbest in lists], **(chosen or {})}
    rates = {
        name: np.array([e[i] for e, i in zip(errors, picked, strict=True)])
        for name, picked in choices.items()
    }
    rates["oracle"] = np.array([e.min() for e in errors])
    return WordErrorRates([nbest.utterance for nbest in lists], words, rates)
