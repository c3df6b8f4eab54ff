import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from scipy import stats

from keras_tta.layers.corruption import SpanCorruption

END = 1
SETTINGS = {
    "t5": {"noise_density": 0.3, "sentinel_token_ids": (7, 180, 11, 50, 51)},
    "anywhere": {"spans_anywhere": True, "closing_sentinel": True},
    "specials": {
        "special_token_ids": (2, 3),
        "end_token_id": None,
        "noise_density": 0.5,
        "mean_noise_span_length": 2.0,
    },
}


def corruption(**kwargs):
    return SpanCorruption(**{"vocabulary_size": 300, **kwargs})


def sides(batch, row=None):
    """What is real on both sides, as lists."""
    batch = batch if row is None else {k: v[row] for k, v in batch.items()}
    read = batch["encoder_token_ids"][batch["encoder_padding_mask"]].tolist()
    labels = batch["labels"][batch["sample_weight"] == 1].tolist()
    return read, labels


def reconstruct(read, labels, sentinels):
    """The text, from what the encoder reads and the decoder must give back."""
    assert read[-1:] == labels[-1:] == [END]
    spans, sentinel = {}, None
    for token in labels[:-1]:
        if token in sentinels:
            sentinel = token
            spans[sentinel] = []
        else:
            spans[sentinel].append(token)
    pieces = [spans[t] if t in sentinels else [t] for t in read[:-1]]
    return [token for piece in pieces for token in piece]


@pytest.mark.parametrize("name", SETTINGS)
def test_all_doors_and_backends_give_the_same_integers(
    name, random_rows, assert_doors_agree
):
    inputs = random_rows(vocabulary_size=180, lowest=60)
    inputs["token_ids"][:, ::7] = 2
    assert_doors_agree(corruption(**SETTINGS[name]), inputs)


@pytest.fixture(scope="session")
def golden(reference_data):
    return json.loads((reference_data / "golden/t5_span_corruption.json").read_text())


@pytest.mark.agnostic
def test_given_masks_as_t5(golden):
    layer = corruption(vocabulary_size=100, num_sentinels=20, end_token_id=None)
    sentinel = corruption(
        vocabulary_size=100, end_token_id=None, inputs="sentinel", targets="noise"
    )
    drop = corruption(
        vocabulary_size=100, end_token_id=None, inputs="drop", targets="noise"
    )
    for case in golden["span_cases"]:
        rows = np.array(case["tokens"]), None, np.array(case["noise_mask"])
        assert sides(layer.corrupt(*rows)) == (case["inputs"], case["targets"])
        assert sides(sentinel.corrupt(*rows)) == (
            *(case["single_sentinel"], case["drop_nonnoise"]),
        )
        assert sides(drop.corrupt(*rows)) == (case["drop_noise"], case["drop_nonnoise"])


@pytest.mark.agnostic
def test_expanded_length_as_t5(golden):
    for inputs, density, mean, tokens, _ in golden["length_table"]:
        layer = corruption(noise_density=density, mean_noise_span_length=mean)
        assert layer.expanded_length(inputs, t5_exact=True) == tokens
        # Ours fills the input and never overflows it.
        own = layer.expanded_length(inputs)
        lengths = np.arange(own + 2)
        kept = layer._kept(lengths, *layer._noise_plan(own + 1)) + 1
        assert kept[own] <= inputs < kept[own + 1]


@pytest.mark.agnostic
def test_counts_as_t5(golden):
    for case in golden["mask_statistics"]:
        length = case["length"]
        layer = corruption(
            noise_density=case["noise_density"],
            mean_noise_span_length=case["mean_noise_span_length"],
            t5_exact=True,
        )
        noise, spans = layer._noise_plan(length)
        assert [noise[length]] == case["num_noise_tokens"]
        assert [spans[length]] == case["num_noise_spans"]


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "tokens,mask,read,labels",
    [
        ("abcdef", "TTFFTF", "XcdYf", "abXeY"),
        ("abc", "FFF", "abc", "X"),
        ("abc", "TTT", "X", "abc"),
        ("a", "F", "a", "X"),
        ("", "", "", ""),
    ],
)
def test_published_layouts(tokens, mask, read, labels):
    ids = {letter: 10 + i for i, letter in enumerate("abcdef")}
    ids |= {"X": 299, "Y": 298}
    rows = [[ids[t] for t in tokens], None, [m == "T" for m in mask]]
    end = [END] if tokens else []
    assert sides(corruption().corrupt(*rows)) == (
        [ids[t] for t in read] + end,
        [ids[t] for t in labels] + end,
    )


@pytest.mark.agnostic
def test_the_decoder_reads_the_labels_one_place_late():
    layer = corruption(start_token_id=5, closing_sentinel=True)
    batch = layer.corrupt([[10, 11, 12, 13, 0]], [[1, 1, 1, 1, 0]], [[0, 1, 0, 1, 0]])
    assert sides(batch, 0) == ([10, 299, 12, 298, END], [299, 11, 298, 13, 297, END])
    assert batch["decoder_token_ids"][0].tolist() == [5, 299, 11, 298, 13, 297, 0]
    assert batch["decoder_padding_mask"][0].tolist() == [True] * 6 + [False]


ROWS = 8


@pytest.mark.agnostic
@settings(max_examples=60, deadline=None)
@given(
    length=st.sampled_from([1, 2, 3, 17, 64]),
    real=st.lists(st.integers(0, 64), min_size=ROWS, max_size=ROWS),
    density=st.floats(0.05, 0.95),
    mean=st.floats(1, 64),
    anywhere=st.booleans(),
    closing=st.booleans(),
    seed=st.integers(0, 2**31 - 1),
)
def test_what_every_row_keeps(length, real, density, mean, anywhere, closing, seed):
    layer = corruption(
        noise_density=density,
        mean_noise_span_length=mean,
        spans_anywhere=anywhere,
        closing_sentinel=closing,
    )
    token_ids = np.random.default_rng(seed).integers(2, 200, (ROWS, length))
    real = np.minimum(real, length)
    mask = np.arange(length) < real[:, None]
    batch = layer.numpy(token_ids, mask, key=seed)
    assert not batch["num_clamped"].any()
    sentinels = set(layer.sentinel_token_ids)
    for row, n in enumerate(real):
        read, labels = sides(batch, row)
        if n == 0:
            assert read == labels == []
            continue
        assert reconstruct(read, labels, sentinels) == token_ids[row, :n].tolist()
        noise = min(max(round(n * density), 1), n - 1)
        spans = min(max(round(noise / mean), 1), noise, n - noise)
        assert len(read) == n - noise + spans + 1
        # A row of one token has no noise; T5's targets then are one sentinel.
        marks = max(spans, 1 - anywhere) + (closing and (anywhere or n > 1))
        assert len(labels) == noise + marks + 1
        used = [t for t in labels if t in sentinels]
        assert used == list(range(299, 299 - marks, -1))
        if not anywhere:
            assert read[0] == token_ids[row, 0]
            assert read[-2] in sentinels or n == 1


@pytest.mark.agnostic
@pytest.mark.parametrize("length", [50, 90, 100, 190, 200])
@pytest.mark.parametrize("density", [0.15, 0.3])
def test_counts_are_float64_halves_to_even(length, density):
    batch = corruption(noise_density=density).numpy(np.full((1, length), 9))
    read, labels = sides(batch, 0)
    exact = round(length * density)
    assert sum(t == 9 for t in labels) == exact
    as_t5 = corruption(noise_density=density, t5_exact=True)._noise_plan(length)[0]
    assert as_t5[length] == int(np.rint(np.float32(length) * np.float32(density)))
    assert (as_t5[length] != exact) == (length == 190 and density == 0.15)


@pytest.mark.agnostic
def test_masks_are_uniform():
    """Of 6 tokens, 3 in 2 spans: 2 x 2 compositions in T5's way, 12 masks in any."""
    token_ids = np.tile(np.arange(10, 16), (12_000, 1))
    token_ids[:, 0] = np.arange(12_000) + 100
    for anywhere, masks in ((False, 4), (True, 12)):
        batch = SpanCorruption(
            20_000,
            noise_density=0.5,
            mean_noise_span_length=1.5,
            spans_anywhere=anywhere,
        ).numpy(token_ids)
        shown = np.where(batch["encoder_token_ids"] >= 19_900, 1, 0)
        kept = np.where(batch["encoder_token_ids"] < 100, batch["encoder_token_ids"], 9)
        codes = np.concatenate([shown, np.where(shown, 0, kept)], axis=1)
        _, counts = np.unique(codes, axis=0, return_counts=True)
        assert len(counts) == masks
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.agnostic
def test_specials_stay_and_end_the_spans_they_are_in():
    rng = np.random.default_rng(0)
    token_ids = rng.integers(10, 100, (200, 40))
    token_ids[:, 0], token_ids[:, 15], token_ids[:, -1] = 2, 3, END
    layer = corruption(
        noise_density=0.5, special_token_ids=(2, 3, END), end_token_id=None
    )
    batch = layer.numpy(token_ids)
    sentinels = set(layer.sentinel_token_ids)
    shorter = 0
    for row in range(200):
        read, labels = sides(batch, row)
        assert reconstruct(read + [END], labels + [END], sentinels) == (
            token_ids[row].tolist()
        )
        assert [t for t in read if t in (2, 3, END)] == [2, 3, END]
        noise = sum(t not in sentinels for t in labels)
        assert noise <= 18  # round(37 / 2), half to even
        shorter += noise < 18
    assert 0 < shorter < 200


@pytest.mark.agnostic
def test_settings_that_cannot_work_are_refused():
    wide = np.zeros((1, 2010), int)
    with pytest.raises(ValueError, match="needs 101 sentinels, and there are 100"):
        SpanCorruption(32_100).numpy(wide)
    SpanCorruption(32_100).numpy(wide[:, :2009])
    crowded = {"noise_density": 0.8, "mean_noise_span_length": 1.0}
    corruption(**crowded).numpy(wide[:, :10])
    with pytest.raises(ValueError, match="too few for"):
        corruption(**crowded, strict=True).numpy(wide[:, :10])
    with pytest.raises(ValueError, match="must differ"):
        corruption(vocabulary_size=100)
    with pytest.raises(ValueError, match="must differ"):
        corruption(special_token_ids=(250,))
    with pytest.raises(ValueError, match="sentinel_token_ids=300"):
        corruption(sentinel_token_ids=(300,))
    for name, value in [
        ("noise_density", 1.0),
        ("mean_noise_span_length", 0.5),
        ("inputs", "mask"),
        ("targets", "all"),
        ("random_share", 0.1),
        ("num_sentinels", 0),
        ("num_sentinels", 2.5),
        ("num_sentinels", 301),
        ("end_token_id", 300),
    ]:
        with pytest.raises(ValueError, match=f"`{name}`"):
            corruption(**{name: value})
    with pytest.raises(ValueError, match="num_sentinels=100, sentinel_token_ids=.299"):
        corruption(num_sentinels=100, sentinel_token_ids=(299, 298))
    for targets in ("noise", "full"):
        with pytest.raises(ValueError, match="`closing_sentinel` ends targets"):
            corruption(targets=targets, closing_sentinel=True)


def test_a_text_with_sentinels_raises_eagerly():
    layer = corruption()
    token_ids = np.full((2, 8), 9, "int32")
    token_ids[1, 3] = 250
    for call in (layer, layer.numpy):
        with pytest.raises(ValueError, match="250 in row 1 at position 3"):
            call(token_ids)


def test_given_masks_of_tensors_and_masks_that_ask_too_much():
    layer = corruption(num_sentinels=3, special_token_ids=(2,))
    token_ids = np.array([[2, 10, 11, 12, 13, 14, 15]], "int32")
    mask = np.array([[0, 1, 0, 1, 0, 0, 0]], "int32")
    expected = layer.corrupt(token_ids, None, mask)
    got = layer.corrupt(*map(ops.convert_to_tensor, (token_ids, token_ids > 0, mask)))
    for name, array in expected.items():
        np.testing.assert_array_equal(ops.convert_to_numpy(got[name]), array)
    assert sides(expected, 0) == (
        [2, 299, 11, 298, 13, 14, 15, END],
        [299, 10, 298, 12, 297, END],
    )
    for too_much in ([[0, 1, 0, 1, 0, 1, 0]], [[1, 0, 0, 0, 0, 0, 0]]):
        with pytest.raises(ValueError, match="Row 0: `noise_mask`"):
            layer.corrupt(token_ids, None, np.array(too_much))
