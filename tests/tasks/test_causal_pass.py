"""Scores of a causal language model, against its logits."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import CausalLM
from keras_tta.tasks import TextScorer
from keras_tta.visibility import Causal, SameSegment

TEXTS = ["the cats sat on the mat .", "", "walking cats", "dog"]
LENGTH = 16
SIZES = {
    "vocabulary_size": 18,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": LENGTH,
}


def make_model(backbone_class=TransformerBackbone):
    model = CausalLM(backbone_class(**SIZES, visibility=Causal()))
    random = np.random.default_rng(1)
    for weight in model.trainable_variables:
        if weight.name != "gamma":
            weight.assign(random.normal(0, 0.7, weight.shape))
    return model


@pytest.fixture(scope="module")
def causal_lm():
    return make_model()


@pytest.fixture(scope="module")
def scorer(causal_lm, tokenizer):
    return TextScorer(causal_lm, tokenizer, batch_size=8, bucket_lengths=(LENGTH,))


def predict(model, ids):
    """Log-probabilities (T, V): row i is of token i + 1."""
    token_ids = np.zeros((1, LENGTH), "int32")
    token_ids[0, : len(ids)] = ids
    padding_mask = (np.arange(LENGTH) < len(ids)).astype("int32")[None]
    logits = model.language_model.predict_on_batch(
        {"token_ids": token_ids, "padding_mask": padding_mask}
    )[0].astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def values(scores):
    return [score.log_probability for score in scores]


@pytest.mark.parametrize("backbone_class", [TransformerBackbone, TTABackbone])
def test_a_token_is_scored_from_those_before_it(backbone_class, tokenizer):
    model = make_model(backbone_class)
    scorer = TextScorer(model, tokenizer, batch_size=8, bucket_lengths=(LENGTH,))
    sums = []
    for text, scores in zip(
        TEXTS, scorer.token_scores(TEXTS, specials="end"), strict=True
    ):
        ids = [3, *tokenizer.encode(text), 1]
        expected = predict(model, ids)[np.arange(len(ids) - 1), ids[1:]]
        np.testing.assert_allclose(values(scores), expected, atol=1e-4)
        sums.append(expected.sum())
    np.testing.assert_allclose(scorer.score(TEXTS, specials="end"), sums, atol=1e-4)


def test_one_rule_and_no_other(scorer):
    assert scorer.score("a cat", visibility="left") == scorer.score("a cat")
    for options in ({"visibility": "others"}, {"window": 2}):
        with pytest.raises(ValueError, match="leave `visibility` and `window` out"):
            scorer.score("a cat", **options)
    with pytest.raises(ValueError, match='use `specials="end"`'):
        scorer.score("a cat", specials="all")


def test_positions_and_windows(scorer):
    whole = values(scorer.token_scores("the cat sat"))
    chosen = values(scorer.token_scores("the cat sat", positions=[2]))
    np.testing.assert_allclose(chosen, whole[2:], atol=1e-5)
    words = "the cat sat on a mat .".split() * 3
    scores = scorer.token_scores(" ".join(words), stride=7)
    assert [score.token for score in scores] == words
    # The first window tells as much as it can.
    first = scorer.token_scores(" ".join(words[:14]))
    np.testing.assert_allclose(values(scores)[:14], values(first), atol=1e-5)


def test_blanks_are_filled_from_the_left(scorer, causal_lm, tokenizer):
    (candidates,) = scorer.fill("the ___ sat", top_k=3)
    table = predict(causal_lm, [3, 7, 1])[1]
    ordinary = np.arange(7, 18)
    best = ordinary[np.argsort(-table[ordinary])[:3]]
    assert [c.token for c in candidates] == [tokenizer.id_to_token(i) for i in best]
    np.testing.assert_allclose(values(candidates), table[best], atol=1e-4)
    with pytest.raises(ValueError, match="Two blanks in a row"):
        scorer.fill("the ___ ___")


def test_a_packed_model_scores_a_text_as_one_segment(scorer, causal_lm, tokenizer):
    packed = causal_lm.backbone.with_visibility(Causal() & SameSegment())
    packed = SimpleNamespace(backbone=packed, head=causal_lm.head)
    packed = TextScorer(packed, tokenizer, batch_size=8, bucket_lengths=(LENGTH,))
    np.testing.assert_allclose(packed.score(TEXTS), scorer.score(TEXTS), atol=1e-5)


def test_pairs_are_no_texts(causal_lm, tokenizer):
    backbone = TransformerBackbone(**SIZES, num_segments=2, visibility=Causal())
    pairs = SimpleNamespace(backbone=backbone, head=causal_lm.head)
    with pytest.raises(ValueError, match="num_segments=2"):
        TextScorer(pairs, tokenizer)


def test_from_preset(scorer, causal_lm, tokenizer, tmp_path):
    causal_lm.save_to_preset(tmp_path, tokenizer=tokenizer)
    loaded = TextScorer.from_preset(tmp_path, batch_size=8, bucket_lengths=(LENGTH,))
    np.testing.assert_allclose(loaded.score(TEXTS), scorer.score(TEXTS), atol=1e-5)
