"""Embeddings of texts, against pooling by hand of what the layers say."""

from functools import cache

import numpy as np
import pytest
from keras import ops

from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.tasks import TextEmbedder
from keras_tta.visibility import HideWord, NotSelf, SameSegment

TEXTS = ["the cats sat on the mat .", "walking dogs", "dog", "a cat sat"]
SIZES = {
    "vocabulary_size": 18,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": 16,
}


@pytest.fixture(scope="module")
def backbone():
    return make_backbone(TTABackbone)


def make_backbone(backbone_class, **options):
    backbone = backbone_class(**SIZES, **options)
    random = np.random.default_rng(1)
    for weight in backbone.trainable_variables:
        if weight.name != "gamma":
            weight.assign(random.normal(0, 0.7, weight.shape))
    return backbone


@cache
def states(backbone, *ids):
    """Memory and layers 1, 2 of a T-TA for one text, a list of (T, D)."""
    token_ids = np.array([ids], "int32")
    query, memory = backbone.embeddings(token_ids)
    visible = ~np.eye(len(ids), dtype=bool)[None]
    layers = backbone.encoder.layer_outputs(query, memory, visible)
    return [ops.convert_to_numpy(x)[0] for x in (memory, *layers)]


def by_hand(backbone, tokenizer, text, pooling, layer=2):
    ids = [3, *tokenizer.encode(text), 1]
    hidden = states(backbone, *ids)
    if pooling == "mean":
        return hidden[layer][1:-1].mean(axis=0)
    if pooling == "mean_with_specials":
        return hidden[layer].mean(axis=0)
    if pooling == "first":
        return hidden[layer][0]
    if pooling == "max":
        return hidden[layer][1:-1].max(axis=0)
    assert pooling == "first_last"
    return ((hidden[0] + hidden[layer]) / 2)[1:-1].mean(axis=0)


def make_embedder(*arguments, **options):
    """An embedder that does not compile: these tests have many models, few texts."""
    embedder = TextEmbedder(*arguments, **options)
    embedder._model.compile(run_eagerly=True)
    return embedder


@pytest.mark.parametrize(
    "pooling", ["mean", "mean_with_specials", "first", "max", "first_last"]
)
def test_pooling(backbone, tokenizer, pooling):
    embeddings = make_embedder(backbone, tokenizer, pooling).encode(TEXTS[:2])
    assert embeddings.shape == (2, 8) and embeddings.dtype == "float32"
    expected = [by_hand(backbone, tokenizer, text, pooling) for text in TEXTS[:2]]
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)


@pytest.mark.parametrize("layer, number", [(0, 0), (1, 1), (-2, 1), (-3, 0)])
def test_any_layer(backbone, tokenizer, layer, number):
    embedder = make_embedder(backbone, tokenizer, layer=layer)
    expected = [by_hand(backbone, tokenizer, t, "mean", number) for t in TEXTS[:2]]
    np.testing.assert_allclose(embedder.encode(TEXTS[:2]), expected, atol=1e-5)


def test_idf_weighs_rare_tokens_more(backbone, tokenizer):
    embedder = make_embedder(backbone, tokenizer, "idf")
    with pytest.raises(ValueError, match="call `fit_idf"):
        embedder.encode(["a cat"])
    embedder.fit_idf(["a a cat", "a dog", "a mat"])
    rare, common = 1 + np.log(4 / 2), 1 + np.log(4 / 4)
    hidden = states(backbone, 3, 8, 9, 1)[-1]
    expected = (common * hidden[1] + rare * hidden[2]) / (common + rare)
    np.testing.assert_allclose(embedder.encode("a cat"), expected, atol=1e-5)


def test_the_tokens_themselves_can_be_fused_in(backbone, tokenizer):
    table = ops.convert_to_numpy(backbone.token_embedding.embeddings)[[8, 9]]
    gamma, beta = map(ops.convert_to_numpy, backbone.embeddings.norm.weights)
    tokens = (table - table.mean(1, keepdims=True)) / table.std(1, keepdims=True)
    tokens = (tokens * gamma + beta).mean(axis=0)
    hidden = by_hand(backbone, tokenizer, "a cat", "mean")
    for share in (0.25, 1.0):
        embedder = make_embedder(backbone, tokenizer, fuse_tokens=share)
        expected = (1 - share) * hidden + share * tokens
        np.testing.assert_allclose(embedder.encode("a cat"), expected, atol=1e-4)
    # Nothing but tokens: their order is lost.
    bag = make_embedder(backbone, tokenizer, fuse_tokens=1.0)
    np.testing.assert_allclose(bag.encode("cat a"), bag.encode("a cat"), atol=1e-5)


def test_neighbours_and_padding_do_not_matter(backbone, tokenizer):
    embedder = TextEmbedder(backbone, tokenizer, "max")
    alone = [embedder.encode([text], batch_size=1)[0] for text in TEXTS]
    turned = embedder.encode(TEXTS[::-1], batch_size=8)[::-1]
    np.testing.assert_allclose(turned, alone, atol=1e-5)


def test_empty_texts(backbone, tokenizer):
    for pooling in ("mean", "max", "first_last"):
        embeddings = make_embedder(backbone, tokenizer, pooling).encode(["", "a cat"])
        assert not embeddings[0].any() and embeddings[1].any()
    for pooling in ("mean_with_specials", "first"):
        assert make_embedder(backbone, tokenizer, pooling).encode("").any()
    embedder = make_embedder(backbone, tokenizer)
    assert embedder.encode([]).shape == (0, 8)
    assert not embedder.encode("", normalize=True).any()
    assert embedder.similarity(embedder.encode(""), embedder.encode("dog")) == 0


def test_cosines(backbone, tokenizer):
    embedder = make_embedder(backbone, tokenizer)
    a, b = embedder.encode(TEXTS), embedder.encode(TEXTS[:3], normalize=True)
    np.testing.assert_allclose(np.linalg.norm(b, axis=1), 1, rtol=1e-5)
    cosines = embedder.similarity(a, b)
    assert cosines.shape == (4, 3)
    expected = a[3] @ b[1] / np.linalg.norm(a[3])
    assert cosines[3, 1] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(np.diag(cosines), 1, rtol=1e-5)


@pytest.mark.parametrize("magnitude", [1e-30, 1e-15, 1e30])
def test_cosines_of_any_magnitude(backbone, tokenizer, magnitude):
    vectors = magnitude * np.array([[1.0, 0.0], [1.0, 1.0]], "float32")
    cosines = make_embedder(backbone, tokenizer).similarity(vectors, vectors)
    half = 0.5**0.5
    np.testing.assert_allclose(cosines, [[1, half], [half, 1]], rtol=1e-6)


def test_long_texts(backbone, tokenizer):
    embedder = make_embedder(backbone, tokenizer)
    long = "a cat sat on the mat . " * 3
    with pytest.raises(ValueError, match="1 of 2 texts .* 14 tokens.*index 1, with 21"):
        embedder.encode(["a cat", long])
    with pytest.warns(UserWarning, match="first 14 tokens are embedded"):
        cut = embedder.encode(["a cat", long], truncate=True)
    np.testing.assert_allclose(
        cut[1], embedder.encode(long[: len(long) // 3 * 2]), atol=1e-5
    )


def test_unknown_tokens_are_counted(backbone, tokenizer):
    with pytest.warns(UserWarning, match="1 of 4 tokens, in 1 of 2 texts, are unknown"):
        make_embedder(backbone, tokenizer).encode(["a cat", "a zebra"])


RANDOM_TEXTS = [
    " ".join(np.random.default_rng(i).choice(["the", "a", "cat", "dog", "on"], 6))
    for i in range(64)
]


def test_whitened_embeddings_have_unit_covariance(backbone, tokenizer):
    embedder = make_embedder(backbone, tokenizer)
    plain = embedder.encode(RANDOM_TEXTS)
    white = embedder.fit_whitening(RANDOM_TEXTS).encode(RANDOM_TEXTS)
    width = white.shape[1]
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(width), atol=2e-2)
    few = embedder.fit_whitening(RANDOM_TEXTS, dim=3).encode(RANDOM_TEXTS)
    np.testing.assert_allclose(few, white[:, :3], atol=1e-4)
    # The kept directions are those of the greatest variance.
    spread = np.linalg.eigvalsh(np.cov(plain.T, bias=True))[::-1][:3]
    np.testing.assert_allclose(
        1 / np.linalg.norm(embedder.transform.kernel, axis=0) ** 2, spread, rtol=1e-3
    )
    assert not embedder.encode("").any()
    for dim in (5, 1.0):
        with pytest.raises(ValueError, match="between 1 and"):
            embedder.fit_whitening(RANDOM_TEXTS[:3], dim=dim)


def test_top_components_are_taken_out(backbone, tokenizer):
    embedder = make_embedder(backbone, tokenizer)
    plain = embedder.encode(RANDOM_TEXTS)
    rest = embedder.fit_top_component_removal(RANDOM_TEXTS, 2).encode(RANDOM_TEXTS)
    centred = plain - plain.mean(axis=0)
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(rest, (u[:, 2:] * s[2:]) @ vt[2:], atol=1e-3)
    for count in (8, 1.0):
        with pytest.raises(ValueError, match="between 0 and 7"):
            embedder.fit_top_component_removal(RANDOM_TEXTS, count)
    with pytest.raises(ValueError, match="at least two texts"):
        embedder.fit_top_component_removal(["a cat", ""])


@pytest.mark.parametrize("rule", [NotSelf() & SameSegment(), HideWord()])
def test_a_model_under_another_rule(backbone, tokenizer, rule):
    embedder = make_embedder(backbone.with_visibility(rule), tokenizer)
    same = rule != HideWord()
    plain = make_embedder(backbone, tokenizer).encode("a cat sat")
    # No word has two pieces, one segment: the rules see what the model's own sees.
    np.testing.assert_allclose(embedder.encode("a cat sat"), plain, atol=1e-5)
    pieces = make_embedder(backbone, tokenizer).encode("cats"), embedder.encode("cats")
    assert np.allclose(*pieces, atol=1e-5) == same


@pytest.mark.agnostic
def test_words_cost_no_second_tokenization(backbone, tokenizer, monkeypatch):
    calls = []

    def encode_batch(texts, **options):
        calls.append(options)
        return type(tokenizer).encode_batch(tokenizer, texts, **options)

    monkeypatch.setattr(tokenizer, "encode_batch", encode_batch)
    make_embedder(backbone.with_visibility(HideWord()), tokenizer).encode("a cat sat")
    assert calls == [{"return_word_ids": True}]


@pytest.mark.parametrize("options", [{}, {"num_segments": 2}, {"embedding_dim": 4}])
def test_contextual_models(tokenizer, options):
    backbone = make_backbone(TransformerBackbone, **options)
    ids = np.array([[3, 8, 9, 1]], "int32")
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    if "num_segments" in options:
        inputs["segment_ids"] = np.zeros_like(ids)
    hidden = ops.convert_to_numpy(backbone(inputs))[0]
    embedder = make_embedder(backbone, tokenizer)
    expected = hidden[1:-1].mean(axis=0)
    np.testing.assert_allclose(embedder.encode("a cat"), expected, atol=1e-5)
    embedder = make_embedder(backbone, tokenizer, layer=1, fuse_tokens=0.5)
    assert embedder.encode("a cat").shape == (8,)


def test_mixed_precision_pools_in_float32(tokenizer):
    backbone = make_backbone(TTABackbone, dtype="mixed_bfloat16")
    embeddings = make_embedder(backbone, tokenizer).encode(TEXTS)
    full = make_embedder(make_backbone(TTABackbone), tokenizer).encode(TEXTS)
    assert embeddings.dtype == "float32"
    np.testing.assert_allclose(embeddings, full, atol=0.15)


def test_from_preset(backbone, model, tokenizer, tmp_path):
    model.save_to_preset(tmp_path, tokenizer=tokenizer)
    loaded = TextEmbedder.from_preset(tmp_path, pooling="max").encode(TEXTS)
    np.testing.assert_allclose(
        loaded, make_embedder(model, tokenizer, "max").encode(TEXTS), atol=1e-5
    )


def test_options_out_of_range(backbone, tokenizer):
    for options, message in (
        ({"pooling": "sum"}, "`pooling` of TextEmbedder must be one of"),
        ({"layer": 3}, "between 0, the embeddings, and 2"),
        ({"layer": True}, "Received: layer=True"),
        ({"fuse_tokens": 1.5}, "`fuse_tokens` must be a share"),
        ({"fuse_tokens": "half"}, "Received: fuse_tokens='half'"),
    ):
        with pytest.raises(ValueError, match=message):
            make_embedder(backbone, tokenizer, **options)
    with pytest.raises(ValueError, match="without a tokenizer"):
        make_embedder(backbone)
