import numpy as np
import pytest
from scipy import stats

from keras_tta.layers.corruption import (
    Deshuffling,
    PrefixLM,
    TokenDenoising,
    UL2Denoising,
)

END, RNG = 1, np.random.default_rng(0)
MASKERS = {
    "random": lambda: TokenDenoising(
        300, inputs="token_sentinel", targets="full", random_share=0.3
    ),
    "deshuffling": lambda: Deshuffling(300, special_token_ids=(2,)),
    "prefix": lambda: PrefixLM(300, noise_density=0.25, static_copies=3),
    "ul2": lambda: UL2Denoising(300, mode_token_ids=(5, 6, 7)),
}


@pytest.mark.parametrize("name", MASKERS)
def test_all_doors_and_backends_give_the_same_integers(
    name, random_rows, assert_doors_agree
):
    inputs = random_rows(vocabulary_size=180, lowest=10)
    inputs["token_ids"][:, ::5] = 2
    assert_doors_agree(MASKERS[name](), inputs)


def read_and_labels(batch, row):
    read = batch["encoder_token_ids"][row][batch["encoder_padding_mask"][row]]
    labels = batch["labels"][row][batch["sample_weight"][row] == 1]
    return read.tolist(), labels.tolist()


def padded_rows(rows, length):
    token_ids = RNG.integers(10, 180, (rows, length))
    real = np.concatenate([np.arange(6), RNG.integers(0, length + 1, rows - 6)])
    return token_ids, np.arange(length) < real[:, None], real


def rejoin(read, labels, sentinels):
    """Puts what follows each sentinel of the labels in its place in the input."""
    held, sentinel = {}, None
    for token in labels:
        if token in sentinels:
            sentinel = token
        held.setdefault(sentinel, []).extend([token] * (token != sentinel))
    return [t for i in read for t in (held[i] if i in sentinels else [i])]


@pytest.mark.agnostic
@pytest.mark.parametrize("density", [0.15, 0.5, 0.9])
def test_token_denoising(density):
    token_ids, mask, real = padded_rows(100, 40)
    layer = TokenDenoising(300, noise_density=density)
    batch = layer.numpy(token_ids, mask)
    sentinels = set(layer.sentinel_token_ids)
    for row, n in enumerate(real):
        read, labels = read_and_labels(batch, row)
        assert read[-1:] == labels[-1:] == ([END] if n else [])
        assert rejoin(read[:-1], labels[:-1], sentinels) == token_ids[row, :n].tolist()
        noise = sum(t not in sentinels for t in labels[:-1])
        assert noise == (min(max(round(n * density), 1), n - 1) if n > 1 else 0)


@pytest.mark.agnostic
def test_every_token_is_noise_equally_often():
    token_ids = RNG.integers(10, 180, (5000, 20))
    batch = TokenDenoising(300, inputs="token_sentinel", targets="full").numpy(
        token_ids
    )
    counts = (batch["encoder_token_ids"] == 299).sum(axis=0)[:20]
    assert counts.sum() == 5000 * 3
    assert stats.chisquare(counts).pvalue > 1e-4
    np.testing.assert_array_equal(batch["labels"][:, :20], token_ids)


@pytest.mark.agnostic
def test_the_variants_of_the_input_and_the_target():
    token_ids, mask = [10, 11, 12, 13, 14, 15], [1, 1, 0, 0, 1, 0]
    cases = {
        ("sentinels", "noise"): ([299, 12, 13, 298, 15], [10, 11, 14]),
        ("sentinel", "full"): ([299, 12, 13, 299, 15], token_ids),
        ("token_sentinel", "noise"): ([299, 299, 12, 13, 299, 15], [10, 11, 14]),
        ("drop", "sentinels"): ([12, 13, 15], [299, 10, 11, 298, 14]),
        ("drop", "noise"): ([12, 13, 15], [10, 11, 14]),
    }
    for (inputs, targets), expected in cases.items():
        layer = TokenDenoising(300, inputs=inputs, targets=targets, end_token_id=None)
        batch = layer.corrupt([token_ids], None, [mask])
        assert read_and_labels(batch, 0) == expected


@pytest.mark.agnostic
def test_random_replacement_is_the_share_it_says():
    token_ids = RNG.integers(10, 180, (3000, 40))
    batch = TokenDenoising(
        300, inputs="token_sentinel", targets="full", random_share=0.1
    ).numpy(token_ids)
    read = batch["encoder_token_ids"][:, :40]
    noise = 3000 * 6
    is_random = (read != token_ids) & (read != 299)
    # One in 299 random tokens is the one that stood there.
    sigma = np.sqrt(noise * 0.1 * 0.9)
    assert abs(is_random.sum() - noise * 0.1 * 298 / 299) < 4 * sigma
    assert (read == 299).sum() == pytest.approx(noise * 0.9, abs=4 * sigma)


@pytest.mark.agnostic
def test_sentinels_that_are_not_used_are_ordinary_tokens():
    token_ids = np.full((1, 8), 99)
    batch = TokenDenoising(100, inputs="drop", targets="noise").numpy(token_ids)
    assert read_and_labels(batch, 0) == ([99] * 7 + [END], [99, END])
    with pytest.raises(ValueError, match='needs `inputs="token_sentinel"`'):
        TokenDenoising(100, inputs="drop", targets="noise", random_share=0.1)
    for share in (-0.1, 1.5):
        with pytest.raises(ValueError, match=rf"Received: random_share={share}"):
            TokenDenoising(200, inputs="token_sentinel", random_share=share)
    with pytest.raises(ValueError, match="tokens to draw from"):
        TokenDenoising(
            10,
            num_sentinels=4,
            inputs="token_sentinel",
            random_share=0.1,
            special_token_ids=range(6),
        )
    with pytest.raises(ValueError, match="needs 11 sentinels, and there are 10"):
        TokenDenoising(100, num_sentinels=10, noise_density=0.5).numpy(
            np.full((1, 22), 9)
        )


@pytest.mark.agnostic
def test_deshuffling_is_a_uniform_order():
    token_ids = np.tile([2, 10, 11, 12, 3], (6000, 1))
    token_ids[:, 0] = np.arange(6000) + 20
    layer = Deshuffling(9000, special_token_ids=(*range(20, 6020), 3))
    batch = layer.numpy(token_ids)
    read = batch["encoder_token_ids"]
    np.testing.assert_array_equal(read[:, [0, 4, 5]], batch["labels"][:, [0, 4, 5]])
    np.testing.assert_array_equal(batch["labels"][:, :5], token_ids)
    orders, counts = np.unique(read[:, 1:4], axis=0, return_counts=True)
    assert len(orders) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.agnostic
@pytest.mark.parametrize("density,shortest", [(0.5, 1), (0.25, 4)])
def test_prefixes_are_uniform(density, shortest):
    """T5's `prefix_lm` of 10 tokens: 1..9 and 4..9."""
    token_ids = RNG.integers(10, 180, (6000, 10))
    batch = PrefixLM(300, noise_density=density, end_token_id=None).numpy(token_ids)
    prefix = batch["encoder_padding_mask"].sum(axis=1)
    counts = np.bincount(prefix, minlength=10)
    assert not counts[:shortest].any()
    assert stats.chisquare(counts[shortest:]).pvalue > 1e-4
    assert batch["labels"].shape == (6000, 10 - shortest)


@pytest.mark.agnostic
def test_a_prefix_and_its_suffix_are_the_row():
    token_ids, mask, real = padded_rows(60, 20)
    batch = PrefixLM(300).numpy(token_ids, mask)
    for row, n in enumerate(real):
        read, labels = read_and_labels(batch, row)
        assert read[:-1] + labels[:-1] == token_ids[row, :n].tolist()
        assert len(labels) > 1 or n == 0
        assert len(read) > 1 or n < 2


@pytest.mark.agnostic
def test_ul2_is_a_mixture_of_its_denoisers():
    token_ids = RNG.integers(10, 180, (4000, 64))
    rates = (2, 1, 2, 1, 1, 0, 1)
    layer = UL2Denoising(300, mode_token_ids=(5, 6, 7), rates=rates)
    batch = layer.numpy(token_ids)
    counts = np.bincount(batch["denoiser"], minlength=7)
    expected = 4000 * np.array(rates) / 8
    assert counts[5] == 0
    used = expected > 0
    assert stats.chisquare(counts[used], expected[used]).pvalue > 1e-4

    sentinels = set(layer.sentinel_token_ids)
    for row in range(300):
        mode, mean, density = layer.denoisers[batch["denoiser"][row]]
        read, labels = read_and_labels(batch, row)
        assert read.pop(0) == {"R": 5, "S": 6, "X": 7}[mode]
        if mode == "S":
            assert read[:-1] + labels[:-1] == token_ids[row].tolist()
            assert 32 <= len(read) - 1 <= 63
            continue
        assert rejoin(read[:-1], labels[:-1], sentinels) == token_ids[row].tolist()
        noise, spans = round(64 * density), max(round(round(64 * density) / mean), 1)
        assert (len(read), len(labels)) == (64 - noise + spans + 1, noise + spans + 1)


@pytest.mark.agnostic
def test_ul2_pads_short_and_empty_rows():
    token_ids, mask, real = padded_rows(40, 16)
    batch = UL2Denoising(300, mode_token_ids=(5, 6, 7)).numpy(token_ids, mask)
    assert not batch["encoder_padding_mask"][0].any()
    assert not batch["sample_weight"][0].any()
    assert (batch["sample_weight"].sum(axis=1)[1:] > 0).all() or (real[6:] == 0).any()


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "settings,message",
    [
        ({"denoisers": [("Q", 3, 0.5)]}, "mode must be"),
        ({"denoisers": [("R", None, 0.5)]}, "mean span length"),
        ({"denoisers": [("S", None, 0.8)]}, "must be in \\(0, 0.5\\]"),
        ({"rates": (1, 2)}, "`rates` must be 7 numbers"),
        ({"mode_token_ids": (5,)}, "`mode_token_ids`"),
        ({"mode_token_ids": (5, 6, 299)}, "is a sentinel"),
    ],
)
def test_impossible_mixtures_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        UL2Denoising(300, **settings)
    with pytest.raises(ValueError, match="needs 128 sentinels"):
        UL2Denoising(900).numpy(np.full((1, 768), 9))
