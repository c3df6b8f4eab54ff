"""Scores of a masked language model, against its logits of texts masked by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.pretraining import MaskedLM
from keras_tta.tasks import TextScorer
from keras_tta.visibility import All, SameSegment

TEXTS = ["the cats sat on the mat .", "", "walking cats", "dog"]
LENGTH = 16
MASK = 4


@pytest.fixture(scope="module")
def masked_lm(tokenizer):
    backbone = TransformerBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=LENGTH,
    )
    model = MaskedLM(backbone, TokenMasking(18, MASK, (0, 1, 3, 5, 6)))
    random = np.random.default_rng(1)
    for weight in model.trainable_variables:
        if weight.name != "gamma":
            weight.assign(random.normal(0, 0.7, weight.shape))
    return model


@pytest.fixture(scope="module")
def scorer(masked_lm, tokenizer):
    return TextScorer(masked_lm, tokenizer, batch_size=8, bucket_lengths=(LENGTH,))


@pytest.fixture(scope="module")
def predict(masked_lm):
    """Log-probabilities (T, V) of a row in which the given slots are masked."""

    def run(ids, masked):
        token_ids = np.zeros((1, LENGTH), "int32")
        token_ids[0, : len(ids)] = ids
        token_ids[0, list(masked)] = MASK
        padding_mask = (np.arange(LENGTH) < len(ids)).astype("int32")[None]
        logits = masked_lm.language_model.predict_on_batch(
            {"token_ids": token_ids, "padding_mask": padding_mask}
        )[0].astype("float64")
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    return run


def values(scores):
    return [score.log_probability for score in scores]


def test_every_token_is_masked_in_a_pass_of_its_own(scorer, predict, tokenizer):
    sums = []
    for text, scores in zip(TEXTS, scorer.token_scores(TEXTS), strict=True):
        ids = [3, *tokenizer.encode(text), 1]
        expected = [predict(ids, [i])[i, ids[i]] for i in range(1, len(ids) - 1)]
        np.testing.assert_allclose(values(scores), expected, atol=1e-4)
        sums.append(sum(expected))
    np.testing.assert_allclose(scorer.score(TEXTS), sums, atol=1e-4)
    np.testing.assert_allclose(
        [scorer.score(text) for text in TEXTS], scorer.score(TEXTS), atol=1e-5
    )


@pytest.mark.parametrize(
    ("visibility", "masked"),
    [
        # the cat ##s sat, of which the pieces of "cats" are 2 and 3.
        ("others", [[1], [2], [3], [4]]),
        ("word_left_to_right", [[1], [2, 3], [3], [4]]),
        ("whole_word", [[1], [2, 3], [2, 3], [4]]),
        ("left", [[1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5], [4, 5]]),
    ],
)
def test_what_a_rule_hides_is_masked(scorer, predict, tokenizer, visibility, masked):
    ids = [3, *tokenizer.encode("the cats sat"), 1]
    expected = [predict(ids, m)[i + 1, ids[i + 1]] for i, m in enumerate(masked)]
    scores = scorer.token_scores("the cats sat", visibility=visibility)
    np.testing.assert_allclose(values(scores), expected, atol=1e-4)


def test_specials_and_positions(scorer, predict):
    ids = [3, 7, 9, 1]
    expected = [predict(ids, [i])[i, ids[i]] for i in range(4)]
    scores = scorer.token_scores("the cat", specials="all")
    np.testing.assert_allclose(values(scores), expected, atol=1e-4)
    scores = scorer.token_scores("the cat", positions=[1])
    np.testing.assert_allclose(values(scores), expected[2:3], atol=1e-4)


def test_long_texts_are_read_in_windows(scorer):
    words = "the cat sat on a mat .".split() * 3
    scores = scorer.token_scores(" ".join(words), stride=7)
    assert [score.token for score in scores] == words
    first = scorer.token_scores(" ".join(words[:14]))
    np.testing.assert_allclose(values(scores)[:7], values(first)[:7], atol=1e-5)


def test_blanks_are_mask_tokens(scorer, predict, tokenizer):
    blanks = scorer.fill("the ___ sat ___ .", top_k=3)
    ids = [3, 7, MASK, 13, MASK, 17, 1]
    table = predict(ids, [])
    for slot, candidates in zip((2, 4), blanks, strict=True):
        ordinary = np.arange(7, 18)
        best = ordinary[np.argsort(-table[slot, ordinary])[:3]]
        assert [c.token for c in candidates] == [tokenizer.id_to_token(i) for i in best]
        np.testing.assert_allclose(values(candidates), table[slot, best], atol=1e-4)
    everywhere = scorer.fill("the cat", top_k=11, blank=None)
    (ranked,) = [[c for c in everywhere[1] if c.token == "cat"]]
    np.testing.assert_allclose(
        values(ranked), predict([3, 7, 9, 1], [2])[2, [9]], atol=1e-4
    )


def test_segments_are_a_pairs_first_or_the_rows_only(masked_lm, tokenizer):
    with_pairs = TransformerBackbone(18, 1, 2, 8, 8, LENGTH, num_segments=2)
    packed = masked_lm.backbone.with_visibility(All() & SameSegment())
    for backbone in (with_pairs, packed):
        model = SimpleNamespace(backbone=backbone, head=masked_lm.head)
        scorer = TextScorer(model, tokenizer, bucket_lengths=(LENGTH,))
        assert np.isfinite(scorer.score("the cat sat"))
    expected = TextScorer(masked_lm, tokenizer, bucket_lengths=(LENGTH,))
    np.testing.assert_allclose(
        scorer.score("the cat sat"), expected.score("the cat sat"), atol=1e-5
    )


def test_from_preset(scorer, masked_lm, tokenizer, tmp_path):
    masked_lm.save_to_preset(tmp_path, tokenizer=tokenizer)
    loaded = TextScorer.from_preset(tmp_path, batch_size=8, bucket_lengths=(LENGTH,))
    np.testing.assert_allclose(loaded.score(TEXTS), scorer.score(TEXTS), atol=1e-5)
