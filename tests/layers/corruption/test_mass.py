import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_tta.layers.corruption import MASSDenoising

START, END, MASK = 2, 3, 4


def mass(**settings):
    settings = {"special_token_ids": (0, START, END), **settings}
    return MASSDenoising(100, MASK, **settings)


def test_all_doors_and_backends_give_the_same_integers(random_rows, assert_doors_agree):
    masker = mass(mask_share=0.8, random_share=0.1, seed=5)
    assert_doors_agree(masker, random_rows())


@pytest.mark.agnostic
def test_the_layout_of_the_paper():
    token_ids = np.array([[START, 10, 11, 12, 13, 14, 15, END]])
    batch = mass().corrupt(token_ids, None, np.isin(token_ids, (12, 13, 14)))
    assert {k: v[0].tolist() for k, v in batch.items() if v.ndim == 2} == {
        "encoder_token_ids": [START, 10, 11, MASK, MASK, MASK, 15, END],
        "encoder_padding_mask": [True] * 8,
        "cross_attention_mask": [True] * 3 + [False] * 3 + [True] * 2,
        "decoder_token_ids": [11, 12, 13, 0, 0, 0, 0, 0],
        "decoder_position_ids": [2, 3, 4, 0, 0, 0, 0, 0],
        "decoder_padding_mask": [True] * 3 + [False] * 5,
        "labels": [12, 13, 14, 0, 0, 0, 0, 0],
        "sample_weight": [1, 1, 1, 0, 0, 0, 0, 0],
    }


@pytest.mark.agnostic
@pytest.mark.parametrize("span_share", [0.15, 0.5, 1.0])
def test_one_span_of_the_share_and_no_leak(span_share):
    rng = np.random.default_rng(0)
    rows, length = 200, 24
    words = np.concatenate([np.arange(6), rng.integers(0, 23, rows - 6)])
    token_ids = rng.integers(5, 100, (rows, length))
    token_ids[:, 0] = START
    token_ids[np.arange(rows), words + 1] = END
    mask = np.arange(length) < words[:, None] + 2
    batch = mass(span_share=span_share).numpy(token_ids, mask)
    for row, n in enumerate(words):
        hidden = np.flatnonzero(mask[row] & ~batch["cross_attention_mask"][row])
        assert len(hidden) == max(round(n * span_share), min(n, 1))
        used = batch["sample_weight"][row] == 1
        np.testing.assert_array_equal(
            batch["encoder_token_ids"][row],
            np.where(np.isin(np.arange(length), hidden), MASK, token_ids[row]),
        )
        if n:
            assert hidden[-1] - hidden[0] == len(hidden) - 1
        labels, read = (batch[k][row][used] for k in ("labels", "decoder_token_ids"))
        np.testing.assert_array_equal(labels, token_ids[row, hidden])
        np.testing.assert_array_equal(read, token_ids[row, hidden - 1])
        np.testing.assert_array_equal(
            batch["decoder_position_ids"][row][used], hidden - 1
        )


@pytest.mark.agnostic
def test_where_the_span_lies():
    token_ids = np.random.default_rng(0).integers(5, 100, (8000, 12))
    token_ids[:, 0], token_ids[:, -1] = START, END
    batch = mass(start_share=0.3, end_share=0.1).numpy(token_ids)
    starts = np.argmin(batch["cross_attention_mask"], axis=1)
    counts = np.bincount(starts, minlength=7)[1:]
    expected = np.full(6, 0.6 / 6)
    expected[0] += 0.3
    expected[-1] += 0.1
    assert stats.chisquare(counts, 8000 * expected).pvalue > 1e-4


def test_a_large_seed_is_the_same_for_tensors_as_for_arrays():
    masker = mass(mask_share=0.0, random_share=1.0, seed=2**31 + 5)
    token_ids = np.arange(10, 18)[None]
    given = token_ids, token_ids > 0, token_ids > 13
    got = masker.corrupt(*map(ops.convert_to_tensor, given))
    for name, array in masker.corrupt(*given).items():
        np.testing.assert_array_equal(ops.convert_to_numpy(got[name]), array)


@pytest.mark.agnostic
def test_the_first_token_is_never_hidden():
    """Nothing stands before it, for the decoder to start from."""
    token_ids = np.array([[50, 51, 52]])
    batch = mass(span_share=1.0).numpy(token_ids)
    assert batch["encoder_token_ids"].tolist() == [[50, MASK, MASK]]
    assert batch["labels"].shape == (1, 2)
    with pytest.raises(ValueError, match="the row's first token"):
        mass().corrupt(token_ids, None, token_ids == 50)
    assert mass().numpy(token_ids[:, :1])["labels"].shape == (1, 0)


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "settings,message",
    [
        ({"span_share": 0.0}, "`span_share`"),
        ({"start_share": 0.7, "end_share": 0.7}, "at most 1"),
        ({"mask_share": 0.7, "random_share": 0.7}, "at most 1"),
        ({"pad_token_id": 100}, "`pad_token_id`"),
        (
            {"mask_share": 0.8, "random_share": 0.1, "special_token_ids": range(100)},
            "tokens to draw from",
        ),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        mass(**settings)
