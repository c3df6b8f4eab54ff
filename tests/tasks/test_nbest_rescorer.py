"""Rescoring against sums worked out by hand; a real model once."""

import json

import matplotlib.image
import numpy as np
import pytest

from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
from keras_tta.evaluation import Hypothesis, NBestList
from keras_tta.tasks import HypothesisForm, NBestRescorer, TextScorer

KEEP = HypothesisForm("keep", False)
COSTS = {"sat": 1.0, "sad": 3.0, "mat": 9.0}


class WordScorer:
    """A word costs what `COSTS` says, or 0.5 nats."""

    def __init__(self, lowercase=True, words=("the", "cat", "sat", "sad", ".")):
        self.tokenizer = TTATokenizer([*SPECIAL_TOKENS, *words], lowercase=lowercase)
        self.asked = []

    def score(self, texts, **options):
        self.asked.append(texts)
        self.options = options
        return np.array(
            [-sum(COSTS.get(word.lower(), 0.5) for word in t.split()) for t in texts]
        )


def nbest(name, reference, *hypotheses):
    return NBestList(name, [Hypothesis(*each) for each in hypotheses], reference)


LISTS = [
    nbest("u1", "the cat sat", ("the cat sad", -1.0), ("the cat sat", -2.0)),
    nbest("u2", "the cat", ("the cat sat", -4.0), ("the cat", -3.5), ("cat", -3.0)),
    nbest("u3", "sat", ("sat", 0.0)),
]


@pytest.mark.agnostic
def test_scores_are_combined_as_documented():
    rescorer = NBestRescorer(WordScorer(), 0.75, 0.5, KEEP)
    rescored = list(rescorer.rescore(LISTS))
    first = rescored[0]
    assert first.log_probabilities.tolist() == [-4.0, -2.0]
    assert first.tokens.tolist() == [3, 3]
    penalty = (8 / 6) ** 0.5
    np.testing.assert_allclose(
        first.combined, [-1 - 0.75 * 4 / penalty, -2 - 0.75 * 2 / penalty]
    )
    assert first.text == "the cat sat" and first.best == 1
    assert [each.nbest.utterance for each in rescored] == ["u1", "u2", "u3"]


@pytest.mark.agnostic
def test_a_weight_of_zero_is_the_one_best():
    rescorer = NBestRescorer(WordScorer(), weight=0.0, form=KEEP)
    assert [each.best for each in rescorer.rescore(LISTS)] == [0, 2, 0]


@pytest.mark.agnostic
def test_a_text_is_scored_once_for_all_utterances():
    scorer = WordScorer()
    rescorer = NBestRescorer(scorer, form=KEEP, visibility="left")
    list(rescorer.rescore(LISTS))
    (asked,) = scorer.asked
    assert sorted(asked) == ["cat", "sat", "the cat", "the cat sad", "the cat sat"]
    assert scorer.options == {"visibility": "left"}


@pytest.mark.agnostic
def test_lists_are_a_stream():
    def endless():
        while True:
            yield from LISTS

    scorer = WordScorer()
    rescored = NBestRescorer(scorer, form=KEEP, utterances_at_once=3).rescore(endless())
    texts = [next(rescored).text for _ in range(4)]
    assert texts[0] == texts[3] and len(scorer.asked) == 2


@pytest.mark.agnostic
def test_tuning_finds_the_fewest_errors_and_the_least_weight():
    rescorer = NBestRescorer(WordScorer(), form=KEEP)
    tuning = rescorer.tune(LISTS, (0.0, 0.4, 0.6, 0.8), (0.0,))
    # Above 0.5 the first list is right; the second stays with "cat".
    assert tuning.word_error_rates.ravel().tolist() == [2 / 6, 2 / 6, 1 / 6, 1 / 6]
    assert tuning.best == (0.6, 0.0) == (rescorer.weight, rescorer.length_penalty)
    assert tuning.one_best == 2 / 6 and tuning.oracle == 0
    assert tuning.at_edge == () and "edge of the grid" not in str(tuning)


@pytest.mark.agnostic
def test_every_point_of_the_grid_is_what_rescoring_gives():
    rescorer = NBestRescorer(WordScorer(), form=KEEP)
    tuning = rescorer.tune(LISTS, (0.0, 0.55, 2.0), (0.0, 0.7))
    for row in tuning.rows:
        at = NBestRescorer(WordScorer(), row["weight"], row["length_penalty"], KEEP)
        assert at.word_error_rates(LISTS).wer["rescored"] == row["wer"]


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "weights, penalties, edge",
    [
        ((0.0, 0.6), (0.0, 0.5), ("weight",)),
        ((0.6, 0.8), (0.2, 0.3), ("weight", "length_penalty")),
        ((0.0,), (0.0, 1.0), ()),
        ((0.6,), (0.1,), ()),
    ],
)
def test_a_best_at_the_edge_of_the_grid_is_said(weights, penalties, edge):
    tuning = NBestRescorer(WordScorer(), form=KEEP).tune(LISTS, weights, penalties)
    assert tuning.at_edge == edge
    assert ("edge of the grid" in str(tuning)) == bool(edge)


@pytest.mark.agnostic
def test_a_model_that_does_not_help_gets_no_weight():
    lists = [nbest("u", "the cat mat", ("the cat mat", -1.0), ("the cat sat", -1.1))]
    tuning = NBestRescorer(WordScorer(), form=KEEP).tune(lists)
    assert tuning.best == (0.0, 0.0) and tuning.at_edge == ()


@pytest.mark.agnostic
def test_word_error_rates():
    result = NBestRescorer(WordScorer(), 0.6, form=KEEP).word_error_rates(LISTS)
    assert result.wer == {"1-best": 2 / 6, "rescored": 1 / 6, "oracle": 0}
    assert [row["rescored"] for row in result.per_utterance] == [0, 1, 0]


UPPER = [nbest("u", "THE CAT SAT", ("THE CAT SAD", -1.0), ("THE ZEBRA SAT", -1.5))]


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "lowercase, words, read",
    [
        (True, ("the", "cat", "."), "THE CAT SAD ."),
        (True, ("the", "cat"), "THE CAT SAD"),
        (False, ("The", "the", "cat", "."), "The cat sad ."),
    ],
)
def test_the_form_follows_the_model_s_text(lowercase, words, read):
    scorer = WordScorer(lowercase, words)
    rescorer = NBestRescorer(scorer)
    list(rescorer.rescore(UPPER))
    assert read in scorer.asked[0]
    assert ("full stop added" in str(rescorer.form)) == (not read.endswith("."))


@pytest.mark.agnostic
def test_texts_that_have_case_and_stops_are_left_alone():
    lists = [nbest("u", "The cat sat.", ("The cat sat.", -1.0), ("the cat", -2.0))]
    scorer = WordScorer(lowercase=False)
    list(NBestRescorer(scorer).rescore(lists))
    assert sorted(scorer.asked[0]) == ["The cat sat.", "the cat"]
    assert HypothesisForm("lower", True).write("THE CAT.") == "the cat."
    assert HypothesisForm("sentence", True).write("") == ""


@pytest.mark.agnostic
@pytest.mark.parametrize("form", [("Lower", True), ("lower", "yes")])
def test_a_form_that_is_none_is_refused_at_once(form):
    with pytest.raises(ValueError, match="HypothesisForm must be one of"):
        HypothesisForm(*form)


@pytest.mark.agnostic
def test_what_the_model_read_and_did_not_know_is_said():
    scorer = WordScorer(lowercase=False, words=("The", "the", "cat", "sat", "sad", "."))
    tuning = NBestRescorer(scorer).tune(UPPER)
    assert "in lower case after a first capital, with a final full stop" in str(tuning)
    assert "1 of 8 tokens, in 1 of 2 hypotheses" in str(tuning)


@pytest.mark.agnostic
def test_a_file_in_and_lines_out(tmp_path):
    path = tmp_path / "lists.jsonl"
    row = {
        "utt": "u",
        "hyps": [{"text": "sad", "score": 0}, {"text": "sat", "score": 0}],
    }
    path.write_text(json.dumps(row) + "\n{}")
    rescored = NBestRescorer(WordScorer(), form=KEEP, utterances_at_once=1).rescore(
        path
    )
    assert next(rescored).as_dict() == {
        "utt": "u",
        "hyps": [
            dict(text="sat", score=0, lm_score=-1, combined=-1, unknown_tokens=0),
            dict(text="sad", score=0, lm_score=-3, combined=-3, unknown_tokens=0),
        ],
    }
    with pytest.raises(ValueError, match="lists.jsonl:2: an n-best list must"):
        next(rescored)
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match="utterance 'u' has none"):
        NBestRescorer(WordScorer()).tune(path)


@pytest.mark.agnostic
def test_tuning_is_kept_and_drawn(tmp_path):
    tuning = NBestRescorer(WordScorer(), form=KEEP).tune(LISTS, (0, 0.6, 1), (0, 1))
    tuning.to_csv(tmp_path / "grid.csv")
    assert len((tmp_path / "grid.csv").read_text().splitlines()) == 7
    tuning.to_json(tmp_path / "grid.json")
    assert json.loads((tmp_path / "grid.json").read_text())["weight"] == 0.6
    tuning.plot(tmp_path / "grid.png")
    assert matplotlib.image.imread(tmp_path / "grid.png").std() > 0.01


@pytest.mark.agnostic
def test_options_out_of_range():
    with pytest.raises(ValueError, match="`form` of NBestRescorer"):
        NBestRescorer(WordScorer(), form="upper")
    with pytest.raises(ValueError, match="must hold a value each"):
        NBestRescorer(WordScorer()).tune(LISTS, weights=())


@pytest.mark.agnostic
@pytest.mark.parametrize("options", [{"weight": np.nan}, {"positions": [[0]]}])
def test_settings_that_make_no_sense(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        NBestRescorer(WordScorer(), **options)


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "hypotheses", [[], [("sat", np.nan)], [("sat", "-1")], [(None, -1.0)]]
)
def test_lists_that_are_none_name_the_utterance(hypotheses):
    lists = [*LISTS, nbest("u4", "sat", *hypotheses)]
    with pytest.raises(ValueError, match="Utterance 'u4'"):
        list(NBestRescorer(WordScorer(), form=KEEP).rescore(lists))


def test_a_real_model(model, tokenizer):
    scorer = TextScorer(model, tokenizer)
    rescorer = NBestRescorer(scorer, weight=0.5)
    (rescored, *_) = rescorer.rescore(LISTS)
    texts = ["the cat [UNK] .", "the cat sat ."]
    assert rescored.unknown_tokens.tolist() == [1, 0]
    np.testing.assert_allclose(
        rescored.log_probabilities[1], scorer.score([texts[1]])[0], atol=1e-4
    )
    np.testing.assert_allclose(
        rescored.combined, [-1, -2] + 0.5 * rescored.log_probabilities
    )
