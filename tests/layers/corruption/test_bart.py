from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from keras_tta.layers.corruption import BARTDenoising
from keras_tta.layers.corruption.bart import poisson_shares

START, END, STOP, MASK = 0, 2, 4, 99
NOISES = {
    "infilling": {},
    "masking": {"infilling_rate": 0.0, "masking_rate": 0.3, "random_share": 0.2},
    "deletion": {"infilling_rate": 0.0, "deletion_rate": 0.3},
    "permutation": {"infilling_rate": 0.0, "permutation_rate": 0.6},
    "rotation": {"infilling_rate": 0.0, "rotation_rate": 0.5},
    "all": {
        "masking_rate": 0.1,
        "deletion_rate": 0.2,
        "permutation_rate": 1.0,
        "rotation_rate": 1.0,
    },
}


def bart(**kwargs):
    """Rows bring their own <s> and </s>, as fairseq's do."""
    kwargs = {
        "special_token_ids": (START, END),
        "end_token_id": None,
        "start_token_id": END,
        "pad_token_id": 1,
        "sentence_end_token_ids": (STOP,),
        **kwargs,
    }
    return BARTDenoising(20_000, MASK, **kwargs)


def alone(noise, **kwargs):
    return bart(**{"infilling_rate": 0.0, noise: 1.0, **kwargs})


def texts(rows, length, seed=0):
    """Rows of distinct tokens, and the number of words in each."""
    rng = np.random.default_rng(seed)
    words = np.concatenate([np.arange(6), rng.integers(0, length - 1, rows - 6)])
    token_ids = 200 + rng.permuted(np.tile(np.arange(length), (rows, 1)), axis=1)
    token_ids[:, 0] = START
    token_ids[np.arange(rows), words + 1] = END
    return token_ids, np.arange(length) < words[:, None] + 2, words


def read(batch, row):
    return batch["encoder_token_ids"][row][batch["encoder_padding_mask"][row]].tolist()


@pytest.mark.parametrize("noise", ["masking", "all"])
def test_all_doors_and_backends_give_the_same_integers(
    noise, random_rows, assert_doors_agree
):
    inputs = random_rows(vocabulary_size=90)
    inputs["token_ids"][:, 5::7] = STOP
    inputs["token_ids"][:, 0] = START
    assert_doors_agree(bart(**NOISES[noise]), inputs)


@pytest.mark.agnostic
@pytest.mark.parametrize("noise", NOISES)
def test_what_every_noise_keeps(noise):
    token_ids, mask, words = texts(300, 40)
    batch = bart(**NOISES[noise]).numpy(token_ids, mask)
    np.testing.assert_array_equal(batch["labels"], np.where(mask, token_ids, 1))
    np.testing.assert_array_equal(batch["sample_weight"], mask)
    np.testing.assert_array_equal(
        batch["decoder_token_ids"][:, 1:][mask[:, 1:]],
        token_ids[:, :-1][mask[:, 1:]],
    )
    assert (batch["decoder_token_ids"][:, 0] == END).all()
    assert batch["encoder_token_ids"].shape == token_ids.shape
    for row in range(300):
        noised = read(batch, row)
        assert noised[0] == START
        assert noised[-1] == END
        assert len(noised) <= words[row] + 2


@pytest.mark.agnostic
@settings(max_examples=40, deadline=None)
@given(
    rates=st.tuples(*[st.floats(0, 0.33)] * 3),
    mean=st.floats(0.2, 10),
    seed=st.integers(0, 2**31 - 1),
)
def test_budgets_are_exact_together(rates, mean, seed):
    infilling, masking, deletion = rates
    token_ids, mask, words = texts(24, 30, seed % 1000)
    batch = bart(
        infilling_rate=infilling,
        masking_rate=masking,
        deletion_rate=deletion,
        poisson_lambda=mean,
    ).numpy(token_ids, mask, key=seed)
    for row, n in enumerate(words):
        noised = read(batch, row)[1:-1]
        budgets = [int(np.ceil(n * rate - 1e-9)) for rate in rates]
        kept = [t for t in noised if t != MASK]
        assert len(kept) == n - min(sum(budgets), n)
        masks = len(noised) - len(kept)
        token_masks = min(budgets[1], n - budgets[0])
        spans = masks - token_masks
        assert (budgets[0] > 0) <= spans <= budgets[0]
        order = token_ids[row].tolist()
        assert kept == sorted(kept, key=order.index)


@pytest.mark.agnostic
@pytest.mark.parametrize("length,budget", [(50, 15), (90, 27), (100, 30), (200, 60)])
def test_thirty_per_cent_is_exact_where_float32_is_not(length, budget):
    """fairseq's ceil(float32(n) * 0.3) gives 16, 28, 31 and 61."""
    token_ids = np.arange(length)[None] + 200
    batch = bart().numpy(token_ids)
    assert np.isin(batch["encoder_token_ids"], token_ids).sum() == length - budget


@pytest.mark.agnostic
def test_masking_and_deletion_keep_their_places():
    token_ids, mask, words = texts(200, 30)
    masked = alone("masking_rate", masking_rate=0.3).numpy(token_ids, mask)
    hidden = masked["encoder_token_ids"] == MASK
    np.testing.assert_array_equal(hidden.sum(axis=1), np.ceil(words * 0.3 - 1e-9))
    expected = np.where(hidden, MASK, np.where(mask, token_ids, 1))
    np.testing.assert_array_equal(masked["encoder_token_ids"], expected)
    # The same draw deletes what it would mask.
    deleted = alone("deletion_rate", deletion_rate=0.3).numpy(token_ids, mask)
    for row in range(200):
        assert read(deleted, row) == token_ids[row][mask[row] & ~hidden[row]].tolist()


@pytest.mark.agnostic
def test_span_lengths_are_poisson_and_places_uniform():
    shares = np.diff(poisson_shares(3.0), prepend=0)
    published = [0.049787, 0.149361, 0.224042, 0.224042, 0.168031, 0.100819]
    np.testing.assert_allclose(shares[:6], published, atol=2e-6)
    assert len(shares) + 1 == 18

    rows, length = 4000, 200
    token_ids = 200 + np.arange(length) + np.arange(rows)[:, None]
    batch = bart(special_token_ids=()).numpy(token_ids)
    lengths, place_counts = [], np.zeros(length, int)
    for row in range(rows):
        noised = read(batch, row)
        kept = [t - 200 - row for t in noised if t != MASK]
        place_counts[kept] += 1
        previous, masks = -1, 0
        for token in [*noised, 200 + row + length]:
            if token == MASK:
                masks += 1
                continue
            place = token - 200 - row
            if masks == 1:  # Alone, so the gap is the span it stands for.
                lengths.append(place - previous - 1)
            previous, masks = place, 0
    # A row's last span is trimmed, and neighbours of each other are left out here.
    shares = np.bincount(lengths, minlength=6)[:6] / len(lengths)
    np.testing.assert_allclose(shares, published, atol=0.02)
    sigma = np.sqrt(rows * 0.3 * 0.7)
    assert np.all(np.abs(place_counts - rows * 0.7)[5:-5] < 4.5 * sigma)


@pytest.mark.agnostic
def test_short_rows_are_infilled():
    """fairseq turns one word into up to four masks; one token can only be one."""
    token_ids = np.tile([START, 50, END, 1], (300, 1))
    token_ids[:, 1] = np.arange(300) + 200
    batch = bart(sentence_end_token_ids=()).numpy(token_ids, token_ids != 1)
    assert (batch["encoder_token_ids"] == [START, MASK, END, 1]).all()
    empty = bart().numpy(np.array([[START, END], [1, 1]]), [[1, 1], [0, 0]])
    assert empty["encoder_token_ids"].tolist() == [[START, END], [1, 1]]
    assert bart().numpy(np.zeros((2, 0)))["labels"].shape == (2, 0)


@pytest.mark.agnostic
def test_sentences_change_places():
    text = [START, 10, 11, STOP, 20, 21, 22, STOP, 30, STOP, END]
    sentences = [[10, 11, STOP], [20, 21, 22, STOP], [30, STOP]]
    token_ids = np.tile(text, (3000, 1))
    token_ids[:, 0] = np.arange(3000) + 200
    layer = alone("permutation_rate", special_token_ids=(*range(200, 3200), END))
    batch = layer.numpy(token_ids)
    results, counts = np.unique(
        batch["encoder_token_ids"][:, 1:-1], axis=0, return_counts=True
    )
    expected = [sum(order, []) for order in permutations(sentences)]
    assert sorted(results.tolist()) == sorted(expected)
    assert stats.chisquare(counts).pvalue > 1e-4

    layer = alone(
        "permutation_rate",
        permutation_rate=0.5,  # ceil(1.5) = 2 sentences change places or stay
        special_token_ids=(*range(200, 3200), END),
    )
    results = np.unique(layer.numpy(token_ids)["encoder_token_ids"][:, 1:-1], axis=0)
    assert len(results) == 4


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "text,expected",
    [
        # Of two stops the first ends a sentence; a second one at the end stays last.
        (
            [10, 4, 4, 20, 21, 4, 4],
            {(10, 4, 4, 20, 21, 4, 4), (4, 20, 21, 4, 10, 4, 4)},
        ),
        # The last sentence needs no stop.
        ([10, 4, 20], {(10, 4, 20), (20, 10, 4)}),
        ([10, 11], {(10, 11)}),
    ],
)
def test_where_sentences_end(text, expected):
    layer, token_ids = alone("permutation_rate"), np.array([[START, *text, END]])
    results = {
        tuple(layer.numpy(token_ids, key=key)["encoder_token_ids"][0, 1:-1].tolist())
        for key in range(30)
    }
    assert results == expected


@pytest.mark.agnostic
@pytest.mark.parametrize("end_token_id", [None, 2])
def test_rotation_starts_at_any_token(end_token_id):
    token_ids = np.tile([START, 5, 6, 7, 8, END, 1], (4000, 1))
    token_ids[:, 0] = np.arange(4000) + 200
    layer = alone(
        "rotation_rate",
        special_token_ids=(*range(200, 4200), END),
        end_token_id=end_token_id,
    )
    batch = layer.numpy(token_ids, token_ids != 1)
    ends = [END] if end_token_id is None else [END, END]
    assert read(batch, 0)[5:] == ends
    results, counts = np.unique(
        batch["encoder_token_ids"][:, 1:5], axis=0, return_counts=True
    )
    assert results.tolist() == [
        *([5, 6, 7, 8], [6, 7, 8, 5], [7, 8, 5, 6], [8, 5, 6, 7]),
    ]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.agnostic
def test_specials_inside_are_kept():
    token_ids, mask, _ = texts(200, 40)
    token_ids[:, 20] = END
    batch = bart(**NOISES["all"]).numpy(token_ids, mask)
    for row in range(200):
        given = token_ids[row][mask[row]].tolist()
        assert read(batch, row).count(END) == given.count(END)
        assert read(batch, row)[-1] == given[-1]


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "settings,message",
    [
        ({"masking_rate": 0.5, "deletion_rate": 0.5}, "at most 1"),
        ({"rotation_rate": -0.1}, "`rotation_rate`"),
        ({"poisson_lambda": 0.0}, "`poisson_lambda`"),
        ({"random_share": 1.5}, r"Received: random_share=1\.5"),
        (
            {"random_share": 0.1, "special_token_ids": range(20_000)},
            "tokens to draw from",
        ),
        (
            {"permutation_rate": 1.0, "sentence_end_token_ids": ()},
            "`sentence_end_token_ids`",
        ),
        ({"sentence_end_token_ids": (STOP, 20_000)}, "sentence_end_token_ids=20000"),
        ({"sentence_end_token_ids": (4.0,)}, "sentence_end_token_ids=4.0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        bart(**settings)
