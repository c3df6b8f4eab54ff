"""Scores against the model's logits, and what must not change them."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from keras_tta.layers import TokenPredictionHead
from keras_tta.models import TTABackbone
from keras_tta.tasks import TextScorer
from keras_tta.visibility import All, NotSelf, SameSegment
from tests.tasks.conftest import make_model

TEXTS = [
    "the cats sat on the mat .",
    "a dog",
    "",
    "walking cats",
    "mat the on sat cats the .",
    "dog",
]
LENGTH = 24


@pytest.fixture(scope="module")
def scorer(model, tokenizer):
    return TextScorer(model, tokenizer, batch_size=8, bucket_lengths=(LENGTH,))


@pytest.fixture(scope="module")
def log_probabilities(model, tokenizer):
    """Of a text's [SOS], tokens and [EOS], from the language model's logits."""

    def reference(text):
        ids = [3, *tokenizer.encode(text), 1]
        logits = model.language_model.predict_on_batch(padded(ids))[0]
        logits = logits[np.arange(len(ids))].astype("float64")
        values = log_softmax(logits)
        return values[np.arange(len(ids)), ids]

    return reference


def padded(ids, hidden=(), length=LENGTH):
    token_ids = np.zeros((1, length), "int32")
    token_ids[0, : len(ids)] = ids
    padding_mask = (np.arange(length) < len(ids)).astype("int32")
    padding_mask[list(hidden)] = 0
    return {"token_ids": token_ids, "padding_mask": padding_mask[None]}


def log_softmax(logits):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(
    "specials, part",
    [("exclude", slice(1, -1)), ("end", slice(1, None)), ("all", slice(None))],
)
def test_a_score_is_the_sum_of_log_probabilities(
    scorer, log_probabilities, specials, part
):
    scores = scorer.score(TEXTS, specials=specials)
    assert scores.dtype == "float64"
    expected = [log_probabilities(text)[part].sum() for text in TEXTS]
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert np.ptp(scores) > 1


def test_normalized_scores_are_means(scorer, tokenizer):
    sums = scorer.score(TEXTS, specials="end")
    tokens = [len(tokenizer.encode(text)) + 1 for text in TEXTS]
    np.testing.assert_allclose(
        scorer.score(TEXTS, specials="end", normalize="tokens"), sums / tokens
    )
    # "cats" and "walking" are one word each, in two pieces; no words: the sum itself.
    words = [7, 2, 1, 2, 7, 1]
    np.testing.assert_allclose(
        scorer.score(TEXTS, specials="end", normalize="words"), sums / words
    )


def test_token_scores_name_the_tokens(scorer, log_probabilities):
    first, empty = scorer.token_scores(["the cats", ""], specials="end")
    assert [token for token, _ in first] == ["the", "cat", "##s", "[EOS]"]
    np.testing.assert_allclose(
        [score.log_probability for score in first],
        log_probabilities("the cats")[1:],
        atol=1e-5,
    )
    assert [token for token, _ in empty] == ["[EOS]"]


def test_one_string_in_one_score_out(scorer):
    assert scorer.score(TEXTS[0]) == scorer.score(TEXTS[:1])[0]
    assert scorer.token_scores(TEXTS[0]) == scorer.token_scores(TEXTS[:1])[0]
    chosen = scorer.token_scores(TEXTS[0], positions=[1, 2])
    assert [token for token, _ in chosen] == ["cat", "##s"]


def test_nothing_to_score(scorer):
    assert scorer.score([]).shape == (0,) and scorer.score([]).dtype == "float64"
    assert scorer.token_scores([]) == []
    assert scorer.score(["", " "], normalize="words").tolist() == [0.0, 0.0]
    assert scorer.token_scores("") == []


def test_a_score_depends_on_its_own_text_alone(scorer, model, tokenizer):
    together = scorer.score(TEXTS)
    alone = np.array([scorer.score(text) for text in TEXTS])
    np.testing.assert_allclose(alone, together, atol=1e-5)
    backwards = scorer.score(iter(TEXTS[::-1]))[::-1]
    np.testing.assert_allclose(backwards, together, atol=1e-5)
    narrow = TextScorer(model, tokenizer, batch_size=3, bucket_lengths=(10, LENGTH))
    np.testing.assert_allclose(narrow.score(TEXTS), together, atol=1e-5)
    many = scorer.score(TEXTS * 3, progress=True)
    np.testing.assert_allclose(many, np.tile(together, 3), atol=1e-5)


def test_scoring_never_asks_for_logits(model, tokenizer, monkeypatch):
    def call(self, hidden):
        raise AssertionError("(B, T, V) logits were computed")

    monkeypatch.setattr(TokenPredictionHead, "call", call)
    TextScorer(model, tokenizer, batch_size=1, bucket_lengths=(LENGTH,)).score("a")


def test_scores_follow_the_weights(tokenizer):
    model = make_model(tokenizer)
    scorer = TextScorer(model, tokenizer, bucket_lengths=(LENGTH,))
    before = scorer.score("a cat")
    model.head.bias.assign(model.head.bias + np.arange(18))
    assert abs(scorer.score("a cat") - before) > 1


def test_unknown_tokens_are_warned_of_once(scorer, log_probabilities):
    texts = ["a cat", "a zebra sat", "zebra zebra"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = scorer.score(texts)
    messages = [str(w.message) for w in caught if "unknown" in str(w.message)]
    assert len(messages) == 1
    assert "3 of 7 tokens, in 2 of 3 texts" in messages[0]
    assert "index 1, 'a zebra sat'" in messages[0]
    assert caught[0].filename == __file__
    expected = log_probabilities("a zebra sat")[1:-1].sum()
    np.testing.assert_allclose(scores[1], expected, atol=1e-4)
    with pytest.raises(ValueError, match="3 of 7 tokens.*index 1.*zebra"):
        scorer.score(texts, unknown="raise")


def test_known_texts_pass_in_silence(scorer):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        scorer.score(TEXTS, unknown="raise")
        scorer.score(TEXTS)


def test_texts_too_long_are_refused_or_read_in_windows(scorer, log_probabilities):
    fits, words = "a cat sat .", "the cat sat on a mat .".split() * 8
    texts = [fits, " ".join(words)]
    with pytest.raises(ValueError, match="index 1 has 56 tokens; .* at most 22"):
        scorer.score(texts)
    scores = scorer.token_scores(texts, specials="all", stride=5)
    np.testing.assert_allclose(
        [s.log_probability for s in scores[0]], log_probabilities(fits), atol=1e-5
    )
    assert [s.token for s in scores[1]] == ["[SOS]", *words, "[EOS]"]
    begins = [0, 5, 10, 15, 20, 25, 30, 34]
    windows = [log_probabilities(" ".join(words[b : b + 22])) for b in begins]
    for slot, (_, log_probability) in enumerate(scores[1]):
        # Farthest from the nearer end, where the text goes on beyond it.
        context = [
            min(slot - begin if begin else 99, begin + 23 - slot if begin < 34 else 99)
            for begin in begins
        ]
        window = int(np.argmax(context))
        expected = windows[window][slot - begins[window]]
        np.testing.assert_allclose(log_probability, expected, atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"specials": "none"}, "`specials`"),
        ({"normalize": "mean"}, "`normalize`"),
        ({"unknown": "drop"}, "`unknown`"),
        ({"stride": 0}, "`stride`"),
        ({"stride": 23}, "`stride` must not exceed .* 22"),
        ({"positions": [[0]]}, "1 lists for 2 texts"),
        ({"positions": [[0], [1]]}, r"`positions\[1\]` must lie below 1"),
        ({"visibility": All()}, "hides self"),
    ],
)
def test_options_that_make_no_sense_are_refused(scorer, options, message):
    with pytest.raises(ValueError, match=message):
        scorer.score(["a", "cat"], **options)


def test_texts_must_be_strings(scorer):
    with pytest.raises(TypeError, match=r"texts\[1\]=None"):
        scorer.score(["a", None])


def test_a_model_that_sees_its_targets_is_refused(model, tokenizer):
    cheat = SimpleNamespace(
        backbone=model.backbone.with_visibility(All()), head=model.head
    )
    with pytest.raises(ValueError, match="copied, not predicted"):
        TextScorer(cheat, tokenizer)


def test_of_electra_the_generator_scores(model, tokenizer):
    electra = SimpleNamespace(
        backbone=model.backbone, head=model.head, generator=model.backbone
    )
    with pytest.raises(ValueError, match="A generator that learnt does"):
        TextScorer(electra, tokenizer)


def test_model_and_tokenizer_must_belong_together(model, tokenizer):
    with pytest.raises(ValueError, match="came without a tokenizer"):
        TextScorer(model)
    backbone = TTABackbone(10, 1, 1, 4, 4)
    small = SimpleNamespace(backbone=backbone, head=model.head)
    with pytest.raises(ValueError, match="18 tokens, the model knows 10"):
        TextScorer(small, tokenizer)
    with pytest.raises(ValueError, match="longest input, 24"):
        TextScorer(model, tokenizer, bucket_lengths=(8,))


@pytest.mark.parametrize("texts", [None, 5, b"the cat", {"the cat": 1}])
def test_what_is_no_list_of_texts_is_refused(scorer, texts):
    with pytest.raises(TypeError, match="Texts must be a list of str, or one str"):
        scorer.score(texts)


def test_calls_that_make_no_sense_are_refused(scorer, model, tokenizer):
    with pytest.raises(TypeError, match="options are `specials`.*Received: windo=2"):
        scorer.score(["the cat"], windo=2)
    with pytest.raises(TypeError, match="takes one text"):
        scorer.surprising(["the cat"])
    with pytest.raises(ValueError, match="top_k=-1"):
        scorer.surprising("the cat", top_k=-1)
    with pytest.raises(TypeError, match="`fill` takes one text"):
        scorer.fill(None)
    with pytest.raises(TypeError, match="blank=''"):
        scorer.fill("the ___", blank="")
    with pytest.raises(ValueError, match=r"`positions\[0\]` must hold integers"):
        scorer.token_scores("the cat", positions=[0.5])
    with pytest.raises(TypeError, match="`model` must have a `backbone`"):
        TextScorer(model.backbone, tokenizer)
    with pytest.raises(TypeError, match="`tokenizer` must be one of"):
        TextScorer(model, str.split)


def test_a_packed_model_scores_a_text_as_one_segment(scorer, model, tokenizer):
    packed = model.backbone.with_visibility(NotSelf() & SameSegment())
    packed = SimpleNamespace(backbone=packed, head=model.head)
    packed = TextScorer(packed, tokenizer, bucket_lengths=(LENGTH,), batch_size=8)
    np.testing.assert_allclose(packed.score(TEXTS), scorer.score(TEXTS), atol=1e-5)


def test_mixed_precision_stays_near_float32(model, tokenizer):
    mixed = make_model(tokenizer, dtype="mixed_bfloat16")
    scores = TextScorer(mixed, tokenizer, bucket_lengths=(LENGTH,)).score(TEXTS)
    exact = TextScorer(model, tokenizer, bucket_lengths=(LENGTH,)).score(TEXTS)
    assert scores.dtype == "float64"
    np.testing.assert_allclose(scores, exact, rtol=0.03, atol=0.03)


def test_from_preset(scorer, model, tokenizer, tmp_path):
    model.save_to_preset(tmp_path, tokenizer=tokenizer)
    loaded = TextScorer.from_preset(tmp_path, batch_size=8, bucket_lengths=(LENGTH,))
    np.testing.assert_allclose(loaded.score(TEXTS), scorer.score(TEXTS), atol=1e-5)
