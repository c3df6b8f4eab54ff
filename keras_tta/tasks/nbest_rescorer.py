"""Rescoring of n-best lists: the recogniser's score and the model's, together."""

import os
import warnings
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from keras_tta.checks import check_one_of, check_positive_integers
from keras_tta.evaluation.nbest_lists import (
    NBestList,
    check_nbest_list,
    read_nbest_lists,
)
from keras_tta.evaluation.word_errors import (
    WordErrorRates,
    hypothesis_errors,
    nbest_word_error_rates,
)
from keras_tta.tasks.hypothesis_form import HypothesisForm
from keras_tta.tasks.nbest_tuning import NBestTuning, penalized

Lists = str | os.PathLike | Iterable[NBestList]


class RescoredList(NamedTuple):
    """An n-best list with the model's scores.

    Args:
        nbest: the `NBestList`.
        log_probabilities: float64 (N,), the model's score of each hypothesis.
        tokens: int (N,), tokens of each for the model.
        unknown_tokens: int (N,), how many of them are unknown to its tokenizer.
        combined: float64 (N,), what decides.
    """

    nbest: NBestList
    log_probabilities: np.ndarray
    tokens: np.ndarray
    unknown_tokens: np.ndarray
    combined: np.ndarray

    @property
    def best(self) -> int:
        """The index of the hypothesis with the highest combined score."""
        return int(np.argmax(self.combined))

    @property
    def text(self) -> str:
        """The best hypothesis."""
        return self.nbest.hypotheses[self.best].text

    def as_dict(self) -> dict[str, Any]:
        """What a line of JSONL takes: the input's fields, the best hypothesis first.

        A hypothesis has, beside `text` and `score`, `lm_score`, `combined` and
        `unknown_tokens`.
        """
        hyps = [
            {
                "text": self.nbest.hypotheses[i].text,
                "score": self.nbest.hypotheses[i].score,
                "lm_score": float(self.log_probabilities[i]),
                "combined": float(self.combined[i]),
                "unknown_tokens": int(self.unknown_tokens[i]),
            }
            for i in np.argsort(-self.combined, kind="stable")
        ]
        row = {"utt": self.nbest.utterance, "hyps": hyps}
        if self.nbest.reference is not None:
            row["ref"] = self.nbest.reference
        return row


class NBestRescorer:
    """Picks from n-best lists with the help of a language model.

    A hypothesis's combined score is

        score + weight * log_probability / ((5 + tokens) / 6) ** length_penalty

    as in the code of Salazar et al. (ACL 2020), `score` being the recogniser's own and
    the length penalty that of Wu et al. (2016). `tune` finds weight and penalty on
    lists with references; use others to say how good they are.

    Lists are read as a stream. The hypotheses of many utterances go through the model
    together, each text once, however many lists have it.

    Recognisers write as they please, and a model knows its own text: see `form`.

    Args:
        scorer: a `keras_tta.tasks.TextScorer`.
        weight: of the model's score. Defaults to 1.0.
        length_penalty: its exponent. Defaults to 0.0, none.
        form: how hypotheses are written for the model: a `HypothesisForm`, or `"auto"`
            to find one from the first lists that come: see `HypothesisForm.matching`.
            Word errors are of the hypotheses as they came. Defaults to `"auto"`.
        utterances_at_once: lists that are held in memory. Defaults to 1,000.
        **options: for `scorer.score`, such as `visibility` or `stride`.

    Attributes:
        form: the `HypothesisForm`; what it does is its `str`.

    Example:
    ```python
    from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
    from keras_tta.evaluation import Hypothesis, NBestList
    from keras_tta.models import TTABackbone
    from keras_tta.pretraining import LanguageAutoencoder
    from keras_tta.tasks import NBestRescorer, TextScorer

    tokenizer = TTATokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "."])
    backbone = TTABackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    scorer = TextScorer(LanguageAutoencoder(backbone), tokenizer)
    hypotheses = [Hypothesis("THE CAT SAT", -1.5), Hypothesis("THE SAT", -1.0)]
    lists = [NBestList("u1", hypotheses, reference="THE CAT SAT")]

    rescorer = NBestRescorer(scorer)
    print(rescorer.tune(lists))
    (rescored,) = rescorer.rescore(lists)
    assert rescored.text in ("THE CAT SAT", "THE SAT")
    print(rescorer.word_error_rates(lists))
    ```
    """

    def __init__(
        self,
        scorer,
        weight: float = 1.0,
        length_penalty: float = 0.0,
        form: HypothesisForm | str = "auto",
        utterances_at_once: int = 1000,
        **options,
    ):
        check_positive_integers(self, utterances_at_once=utterances_at_once)
        for name, value in (("weight", weight), ("length_penalty", length_penalty)):
            if not np.isfinite(value):
                raise ValueError(
                    f"`{name}` must be a finite number. Received: {name}={value!r}"
                )
        if "positions" in options:
            raise ValueError(
                "NBestRescorer scores whole hypotheses: it takes no `positions`."
            )
        if not isinstance(form, HypothesisForm):
            check_one_of(self, ("auto",), form=form)
        self.scorer = scorer
        self.weight = weight
        self.length_penalty = length_penalty
        self.form = form
        self.utterances_at_once = utterances_at_once
        self.options = options

    def rescore(self, lists: Lists) -> Iterator[RescoredList]:
        """Rescore n-best lists, one after another.

        Args:
            lists: `NBestList`s, or a file that `keras_tta.evaluation.read_nbest_lists`
                reads.

        Returns:
            Iterator of `RescoredList`, in the order of the lists.

        Raises:
            ValueError: if a line of a file is no n-best list; it names file and line.
                If a list has no hypotheses, or a score is not finite.
        """
        for nbest, log_probabilities, tokens, unknown in self._scored(lists):
            scores = np.array([hypothesis.score for hypothesis in nbest.hypotheses])
            combined = scores + self.weight * penalized(
                log_probabilities, tokens, self.length_penalty
            )
            yield RescoredList(nbest, log_probabilities, tokens, unknown, combined)

    def word_error_rates(self, lists: Lists) -> WordErrorRates:
        """Word error rates of the 1-best, of the rescored lists, and of the oracle.

        With bootstrap intervals, and for each utterance in `per_utterance`.

        Args:
            lists: as for `rescore`, with references.

        Raises:
            ValueError: as for `rescore`, or if a list has no reference.
            ImportError: if jiwer is not installed.
        """
        rescored = list(self.rescore(lists))
        return nbest_word_error_rates(
            [each.nbest for each in rescored],
            {"rescored": [each.best for each in rescored]},
        )

    def tune(
        self,
        lists: Lists,
        weights: Iterable[float] | None = None,
        length_penalties: Iterable[float] | None = None,
    ) -> NBestTuning:
        """Find weight and length penalty with the fewest word errors, and keep them.

        Args:
            lists: as for `rescore`, with references; not those the result is for.
            weights: defaults to 0, 0.05, ..., 4. A weight of 0 is the 1-best.
            length_penalties: defaults to 0, 0.1, ..., 1.

        Returns:
            An `NBestTuning`, which says whether the best lies at an edge of the grid,
            how the model read the texts, and how many tokens it did not know.

        Raises:
            ValueError: as for `word_error_rates`, or if a grid is empty.
            ImportError: if jiwer is not installed.
        """
        weights = np.arange(81) / 20 if weights is None else np.sort([*weights])
        penalties = (
            np.arange(11) / 10
            if length_penalties is None
            else np.sort([*length_penalties])
        )
        if not (len(weights) and len(penalties)):
            raise ValueError(
                "`weights` and `length_penalties` must hold a value each at least."
            )
        scored = list(self._scored(lists))
        nbest = [each[0] for each in scored]
        baseline = nbest_word_error_rates(nbest)
        errors = _padded(hypothesis_errors(nbest), 0)
        own = _padded([[h.score for h in each.hypotheses] for each in nbest], -np.inf)
        log_probabilities = _padded([each[1] for each in scored], 0)
        tokens = _padded([each[2] for each in scored], 0)
        rates = np.empty((len(weights), len(penalties)))
        for column, penalty in enumerate(penalties):
            added = penalized(log_probabilities, tokens, penalty)
            for row, weight in enumerate(weights):
                best = np.argmax(own + weight * added, axis=1)
                rates[row, column] = errors[np.arange(len(best)), best].sum()
        tuning = NBestTuning(
            weights,
            penalties,
            rates / baseline.words.sum(),
            baseline.wer["1-best"],
            baseline.wer["oracle"],
            self._notes(scored),
        )
        self.weight, self.length_penalty = tuning.best
        return tuning

    def _scored(self, lists):
        """Lists with log-probabilities, tokens and unknown tokens of the hypotheses."""
        if isinstance(lists, str | os.PathLike):
            lists = read_nbest_lists(lists)
        lists = iter(lists)
        while part := list(islice(lists, self.utterances_at_once)):
            for nbest in part:
                check_nbest_list(nbest)
            texts = [h.text for nbest in part for h in nbest.hypotheses]
            if self.form == "auto":
                self.form = HypothesisForm.matching(texts, self.scorer.tokenizer)
            written = np.asarray(list(map(self.form.write, texts)), object)
            unique, index = np.unique(written, return_inverse=True)
            columns = [column[index] for column in self._score(unique.tolist())]
            ends = np.cumsum([len(nbest.hypotheses) for nbest in part])[:-1]
            yield from zip(part, *(np.split(x, ends) for x in columns), strict=True)

    def _score(self, texts):
        tokenizer = self.scorer.tokenizer
        rows = tokenizer.encode_batch(texts)
        tokens = np.array([len(row) for row in rows])
        unknown = np.array([row.count(tokenizer.unknown_token_id) for row in rows])
        with warnings.catch_warnings():
            # They are counted here, and shown with the result.
            warnings.filterwarnings("ignore", ".*unknown to the tokenizer")
            return self.scorer.score(texts, **self.options), tokens, unknown

    def _notes(self, scored):
        tokens = sum(each[2].sum() for each in scored)
        unknown = np.concatenate([each[3] for each in scored])
        return (
            f"{self.form} Unknown to its tokenizer: {unknown.sum():,} of {tokens:,} "
            f"tokens, in {np.sum(unknown > 0):,} of {len(unknown):,} hypotheses."
        )


def _padded(rows, filling):
    """Rows of unequal lengths as one array (N, K), float64."""
    array = np.full((len(rows), max(map(len, rows))), filling, "float64")
    for into, row in zip(array, rows, strict=True):
        into[: len(row)] = row
    return array
