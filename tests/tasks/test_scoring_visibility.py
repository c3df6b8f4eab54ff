"""Rules, chosen positions and blanks, each against the model called by definition."""

import keras
import numpy as np
import pytest

from keras_tta.layers import SharedKVEncoder
from keras_tta.tasks import TextScorer
from keras_tta.visibility import All

TEXT = "the cats walking on a dog sat ."
WORD_OF_TOKEN = [0, 1, 1, 2, 2, 3, 4, 5, 6, 7]
LENGTH = 24


@pytest.fixture(scope="module")
def scorer(model, tokenizer):
    return TextScorer(model, tokenizer, batch_size=8, bucket_lengths=(LENGTH,))


def hidden_from(target, visibility):
    """The slots hidden from a target, by the rules' definitions; [SOS] is slot 0."""
    word = [-1, *WORD_OF_TOKEN, -2]
    return {
        "others": lambda slot: slot == target,
        "word_left_to_right": lambda slot: (
            word[slot] == word[target] and slot >= target
        ),
        "whole_word": lambda slot: word[slot] == word[target],
        "left": lambda slot: slot >= target,
    }[visibility]


@pytest.fixture(scope="module")
def everything(model):
    """The model that sees all keys; those to be hidden are taken away as padding."""
    backbone = model.backbone.with_visibility(All())
    return keras.Model(backbone.input, model.head(backbone.output))


def log_distributions(everything, ids, hidden):
    """(len(hidden), T, V), with hidden[i] taken from the keys of row i."""
    token_ids = np.zeros((LENGTH, LENGTH), "int32")
    token_ids[:, : len(ids)] = ids
    mask = np.zeros((LENGTH, LENGTH), "int32")
    mask[:, : len(ids)] = 1
    for row, slots in enumerate(hidden):
        mask[row, list(slots)] = 0
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    logits = everything.predict_on_batch(inputs).astype("float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(
    "visibility", ["others", "word_left_to_right", "whole_word", "left"]
)
def test_one_pass_equals_a_pass_for_each_token(scorer, everything, visibility, window):
    ids = [3, *scorer.tokenizer.encode(TEXT), 1]
    hidden = [
        {
            slot
            for slot in range(len(ids))
            if hidden_from(target, visibility)(slot)
            or (window and abs(slot - target) > window)
        }
        for target in range(len(ids))
    ]
    each = log_distributions(everything, ids, hidden)
    targets = np.arange(len(ids))
    scores = scorer.token_scores(
        ["a", TEXT], specials="all", visibility=visibility, window=window
    )[1]
    np.testing.assert_allclose(
        [score.log_probability for score in scores],
        each[targets, targets, ids],
        atol=1e-5,
    )


def test_the_rules_differ(scorer):
    names = ["others", "word_left_to_right", "whole_word", "left"]
    texts = ["walking cats", "a"]
    scores = [scorer.score(texts, visibility=name)[0] for name in names]
    assert len({round(score, 3) for score in scores}) == 4


def test_chosen_positions_score_as_in_the_whole(scorer):
    texts = [TEXT, "a cat", "dog", ""]
    whole = scorer.token_scores(texts)
    chosen = [[4, 1], [], [0], []]
    parts = scorer.token_scores(texts, positions=chosen)
    for tokens, part, positions in zip(whole, parts, chosen, strict=True):
        assert [t for t, _ in part] == [tokens[i].token for i in sorted(positions)]
        np.testing.assert_allclose(
            [score.log_probability for score in part],
            [tokens[i].log_probability for i in sorted(positions)],
            atol=1e-5,
        )
    mean = scorer.score(texts, positions=chosen, normalize="words")
    sums = [sum(s.log_probability for s in part) for part in parts]
    np.testing.assert_allclose(mean, np.array(sums) / [2, 1, 1, 1])


def test_chosen_positions_alone_are_computed(model, tokenizer, monkeypatch):
    """The encoder's query stream is as long as the positions are many."""
    widths = set()
    call = SharedKVEncoder.call

    def spy(self, query, *arguments, **options):
        widths.add(query.shape[1])
        return call(self, query, *arguments, **options)

    monkeypatch.setattr(SharedKVEncoder, "call", spy)
    scorer = TextScorer(model, tokenizer, bucket_lengths=(LENGTH,))
    scorer.token_scores([TEXT], positions=[[2, 3, 4]])
    assert widths == {4}


def test_surprising_tokens_come_first(scorer):
    ranked = scorer.surprising(TEXT)
    values = [score.log_probability for score in ranked]
    assert values == sorted(values) and len(ranked) == 10
    tokens = scorer.token_scores(TEXT)
    for position, token, log_probability in ranked:
        assert tokens[position] == (token, log_probability)
    assert scorer.surprising(TEXT, top_k=3) == ranked[:3]


def test_fill_gives_the_distribution_at_the_blank(scorer, everything):
    tokenizer = scorer.tokenizer
    (candidates,) = scorer.fill("the ___ sat", top_k=30)
    ids = [3, tokenizer.token_to_id("the"), 4, tokenizer.token_to_id("sat"), 1]
    each = log_distributions(everything, ids, [[2]])[0, 2]
    expected = sorted(range(7, 18), key=lambda i: -each[i])
    assert [token for token, _ in candidates] == [
        tokenizer.id_to_token(i) for i in expected
    ]
    np.testing.assert_allclose(
        [score.log_probability for score in candidates], each[expected], atol=1e-5
    )


def test_blanks_do_not_see_each_other(scorer, everything):
    tokenizer = scorer.tokenizer
    found = scorer.fill("<> cat <> sat <>", top_k=1, blank="<>", visibility="others")
    ids = [3, 4, tokenizer.token_to_id("cat"), 4, tokenizer.token_to_id("sat"), 4, 1]
    each = log_distributions(everything, ids, [[1, 3, 5]])[0]
    for slot, ((_, log_probability),) in zip((1, 3, 5), found, strict=True):
        np.testing.assert_allclose(log_probability, each[slot, 7:].max(), atol=1e-5)


def test_fill_every_position(scorer):
    found = scorer.fill("the cats sat", top_k=11, blank=None)
    scores = scorer.token_scores("the cats sat")
    assert len(found) == 4
    for candidates, (token, log_probability) in zip(found, scores, strict=True):
        assert dict(candidates)[token] == pytest.approx(log_probability, abs=1e-5)
    assert scorer.fill("", blank=None) == []


def test_fill_needs_a_blank(scorer):
    with pytest.raises(ValueError, match="no blank '___'"):
        scorer.fill("the cat sat")
    with pytest.raises(ValueError, match="at most 22"):
        scorer.fill("a ___ " * 20)
