import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_tta.layers.corruption import TokenMasking

PAD, END, START, MASK, CLS = 0, 1, 3, 4, 5
SPECIALS = (PAD, END, START, MASK)
RECIPES = {
    "bert": {},
    "electra": {"mask_share": 0.85, "random_share": 0.0, "count_specials": True},
    "whole words": {"whole_word": True},
    "spans": {"span_p": 0.2},
    "spans of words": {"span_p": 0.2, "whole_word": True, "replace_per_unit": True},
    "static": {"static_copies": 2, "random_specials": True},
}


def masking(**settings):
    settings = {"vocabulary_size": 100, "special_token_ids": SPECIALS, **settings}
    return TokenMasking(mask_token_id=MASK, **settings)


def many_rows(rows, length, vocabulary_size=100):
    return np.random.default_rng(0).integers(5, vocabulary_size, (rows, length))


@pytest.mark.parametrize("recipe", ["bert", "whole words", "spans of words"])
def test_all_doors_and_backends_give_the_same_integers(
    recipe, random_rows, assert_doors_agree
):
    keras.config.set_dtype_policy("mixed_bfloat16" if recipe == "bert" else "float32")
    masker = masking(seed=-3, static_copies=2, **RECIPES[recipe])
    assert_doors_agree(masker, random_rows(), eager=recipe == "bert")


@pytest.mark.agnostic
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_every_recipe_keeps(recipe, random_rows):
    settings = RECIPES[recipe]
    inputs = random_rows(seed=1, batch=64, lowest=0)
    token_ids, real = inputs["token_ids"], inputs["padding_mask"]
    if not settings.get("whole_word"):
        del inputs["word_ids"]
    masked = masking(mask_rate=0.3, **settings).numpy(**inputs, key=(5, 6))

    chosen = masked["dense_sample_weight"] == 1
    assert not (chosen & (~real | np.isin(token_ids, SPECIALS))).any()
    np.testing.assert_array_equal(masked["token_ids"][~chosen], token_ids[~chosen])
    restored = np.where(chosen, masked["dense_labels"], masked["token_ids"])
    np.testing.assert_array_equal(restored, token_ids)
    assert not masked["dense_labels"][~chosen].any()

    used = masked["sample_weight"] == 1
    for row in range(len(token_ids)):
        positions = masked["masked_positions"][row][used[row]]
        np.testing.assert_array_equal(positions, np.flatnonzero(chosen[row]))
        labels = masked["labels"][row][used[row]]
        np.testing.assert_array_equal(labels, token_ids[row][positions])
    assert not masked["labels"][~used].any()
    assert not masked["masked_positions"][~used].any()
    candidates = (real & ~np.isin(token_ids, SPECIALS)).any(axis=1)
    if not settings.get("whole_word"):
        np.testing.assert_array_equal(used.any(axis=1), candidates)


@pytest.mark.agnostic
@pytest.mark.parametrize("settings", [{}, {"span_p": 0.2}], ids=["tokens", "spans"])
def test_counts_are_exact_at_every_length(settings):
    lengths = np.arange(129)
    token_ids = many_rows(129, 128)
    mask = np.arange(128) < lengths[:, None]
    masked = masking(**settings).numpy(token_ids, mask)
    expected = np.maximum(np.rint(lengths * 0.15), np.minimum(lengths, 1))
    counts = masked["dense_sample_weight"].sum(axis=1)
    np.testing.assert_array_equal(counts, expected)
    assert masked["labels"].shape[1] == 19
    # BERT's Python 3 counts, halves to even: 1.5, 4.5, 7.5, 10.5.
    assert counts[[5, 10, 23, 24, 30, 50, 70, 128]].tolist() == [
        *(1, 2, 3, 4, 4, 8, 10, 19)
    ]


@pytest.mark.agnostic
def test_count_specials_is_the_share_of_bert_and_electra():
    token_ids = np.array([[CLS, *range(20, 48), END]])
    settings = {"special_token_ids": (*SPECIALS, CLS), "mask_rate": 0.25}
    counts = [
        masking(count_specials=c, **settings).numpy(token_ids)["sample_weight"].sum()
        for c in (False, True)
    ]
    assert counts == [7, 8]  # of 28 and of 30 (7.5, half to even)
    only_specials = np.array([[CLS, END]])
    masked = masking(count_specials=True, **settings).numpy(only_specials)
    assert masked["sample_weight"].sum() == 0


@pytest.mark.agnostic
@pytest.mark.parametrize("settings", [{}, {"span_p": 0.2}], ids=["tokens", "spans"])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_short_rows(length, settings):
    masked = masking(**settings).numpy(np.full((2, length), 50))
    assert masked["token_ids"].shape == (2, length)
    assert masked["sample_weight"].sum(axis=1).tolist() == [min(length, 1)] * 2


@pytest.mark.agnostic
@pytest.mark.parametrize("whole_word", [False, True])
def test_rows_with_nothing_or_one_token_to_predict(whole_word):
    token_ids = np.array([[START, END, PAD, PAD], [PAD] * 4, [START, 9, END, PAD]])
    masked = masking(mask_rate=0.9, whole_word=whole_word).numpy(
        token_ids, token_ids != PAD, word_ids=np.zeros((3, 4)) if whole_word else None
    )
    np.testing.assert_array_equal(masked["token_ids"][:2], token_ids[:2])
    assert masked["sample_weight"].sum(axis=1).tolist() == [0, 0, 1]
    assert masked["masked_positions"][2, 0] == 1
    assert masked["labels"][2, 0] == 9


@pytest.mark.agnostic
@pytest.mark.parametrize("rate,expected", [(0.0, 0), (1.0, 24)])
def test_the_ends_of_the_rate(rate, expected):
    masked = masking(mask_rate=rate, mask_share=1.0, random_share=0.0).numpy(
        many_rows(500, 24)
    )
    assert masked["labels"].shape == (500, expected)
    assert (masked["sample_weight"].sum(axis=1) == expected).all()
    assert (masked["token_ids"] == MASK).sum() == 500 * expected


@pytest.mark.agnostic
@pytest.mark.parametrize("shares", [(0.8, 0.1), (0.85, 0.0), (1.0, 0.0), (0.0, 1.0)])
def test_shares_hold_within_four_sigma(shares):
    mask_share, random_share = shares
    token_ids = many_rows(4000, 128, vocabulary_size=30_000)
    masked = masking(
        vocabulary_size=30_000, mask_share=mask_share, random_share=random_share
    ).numpy(token_ids)
    chosen = masked["dense_sample_weight"] == 1
    read, original = masked["token_ids"][chosen], token_ids[chosen]
    is_mask = read == MASK
    is_random = ~is_mask & (read != original)
    for hits, share in [(is_mask, mask_share), (is_random, random_share)]:
        sigma = np.sqrt(share * (1 - share) / hits.size)
        # A random token is the original one in 30,000 times.
        assert abs(hits.mean() - share) <= 4 * sigma + 1e-4
    if random_share:
        counts, _ = np.histogram(read[is_random], bins=50, range=(0, 30_000))
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.agnostic
@pytest.mark.parametrize("recipe", ["bert", "whole words", "spans"])
def test_every_position_is_chosen_equally_often(recipe):
    rows, length = 8000, 64
    # All words of two tokens, and a row's only differing content is its tokens.
    word_ids = np.broadcast_to(np.arange(length) // 2, (rows, length))
    settings = RECIPES[recipe]
    masked = masking(**settings).numpy(
        many_rows(rows, length), word_ids=word_ids if "whole_word" in settings else None
    )
    counts = masked["dense_sample_weight"].sum(axis=0)
    if recipe == "bert":  # Without replacement: less than binomial variance.
        assert stats.chisquare(counts).pvalue > 1e-4
    mean = counts.mean()
    sigma = np.sqrt(mean * (1 - 10 / length))
    if (
        recipe == "spans"
    ):  # A row's end cuts spans short, and short ones fit more often.
        edges = np.concatenate([counts[:4], counts[-4:]])
        assert np.all(np.abs(edges - mean) < 0.1 * mean + 4 * sigma)
        counts = counts[4:-4]
    assert np.all(np.abs(counts - mean) < 4.5 * sigma)


@pytest.mark.agnostic
@pytest.mark.parametrize("random_specials", [False, True])
def test_the_range_of_random_tokens(random_specials):
    specials = (0, 3, 4, 7, 8, 11)
    token_ids = many_rows(2000, 24, vocabulary_size=12)
    masked = masking(
        vocabulary_size=12,
        special_token_ids=specials,
        mask_rate=0.5,
        mask_share=0.0,
        random_share=1.0,
        random_specials=random_specials,
    ).numpy(token_ids)
    drawn = masked["token_ids"][masked["dense_sample_weight"] == 1]
    allowed = set(range(12)) - (set() if random_specials else set(specials))
    assert set(drawn.tolist()) == allowed
    counts = np.bincount(drawn, minlength=12)[sorted(allowed)]
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.agnostic
def test_whole_words_are_chosen_whole_and_fill_the_number(random_rows):
    inputs = random_rows(batch=400, length=64)
    candidates = inputs["padding_mask"].sum(axis=1)
    masked = masking(whole_word=True, replace_per_unit=True, mask_rate=0.3).numpy(
        **inputs
    )
    chosen = masked["dense_sample_weight"] == 1
    is_mask = masked["token_ids"] == MASK
    longest = 0
    for row in range(400):
        sizes = []
        for word in np.unique(inputs["word_ids"][row]):
            members = inputs["padding_mask"][row] & (inputs["word_ids"][row] == word)
            assert len(set(chosen[row][members])) <= 1
            assert len(set(is_mask[row][members])) <= 1
            sizes.append(members.sum())
        longest = max(longest, *sizes)
        # No unchosen word would still have fitted in.
        budget = max(round(candidates[row] * 0.3), min(candidates[row], 1))
        left = budget - chosen[row].sum()
        unchosen = [
            s
            for w, s in enumerate(sizes)
            if s
            and not chosen[row][
                inputs["word_ids"][row] == np.unique(inputs["word_ids"][row])[w]
            ].any()
        ]
        assert left < min(unchosen, default=99)
    assert longest > 4


@pytest.mark.agnostic
def test_a_row_of_one_long_word():
    """BERT skips the word, and the row teaches nothing."""
    token_ids, mask = np.full((1, 64), 9), np.arange(64)[None] < 3
    words = np.zeros((1, 64))
    masked = masking(whole_word=True).numpy(token_ids, mask, word_ids=words)
    assert masked["sample_weight"].sum() == 3
    longer = np.arange(64)[None] < 11  # K is 10: a word of 11 cannot be predicted
    masked = masking(whole_word=True).numpy(token_ids, longer, word_ids=words)
    assert masked["sample_weight"].sum() == 0


@pytest.mark.agnostic
def test_span_lengths_follow_spanbert():
    rows, length = 3000, 200
    masked = masking(span_p=0.2, mask_rate=0.1).numpy(many_rows(rows, length))
    chosen = np.pad(masked["dense_sample_weight"], ((0, 0), (1, 1)))
    edges = np.diff(chosen, axis=1)
    starts, ends = np.nonzero(edges == 1), np.nonzero(edges == -1)
    lengths = ends[1] - starts[1]
    # Neighbouring tiles merge, and a row's last span is cut: only about geometric.
    assert 3.4 < lengths.mean() < 4.2  # SpanBERT's mean is 3.797
    shares = np.bincount(lengths, minlength=11)[1:6] / len(lengths)
    np.testing.assert_allclose(shares, [0.224, 0.179, 0.143, 0.115, 0.092], atol=0.04)


@pytest.mark.agnostic
def test_spans_do_not_reach_across_a_special_token():
    token_ids = many_rows(2000, 24)
    token_ids[:, 12] = END
    masked = masking(span_p=0.05, mask_rate=0.3, replace_per_unit=True).numpy(token_ids)
    chosen = masked["dense_sample_weight"]
    both = (chosen[:, 11] & chosen[:, 13]).mean()
    assert both < 0.15  # Spans of mean 4.6 that crossed would give about 0.3.


@pytest.mark.agnostic
def test_masks_ignore_batch_order_batch_size_and_padding():
    token_ids = many_rows(6, 16)
    masks = masking().numpy(token_ids)["token_ids"]
    np.testing.assert_array_equal(
        masking().numpy(token_ids[::-1])["token_ids"], masks[::-1]
    )
    np.testing.assert_array_equal(masking().numpy(token_ids[2])["token_ids"], masks[2])
    wider = np.pad(token_ids, ((0, 0), (0, 9)))
    padded = masking().numpy(wider, np.arange(25) < np.full((6, 1), 16))
    np.testing.assert_array_equal(padded["token_ids"][:, :16], masks)


@pytest.mark.agnostic
def test_static_copies_are_the_numpy_masks_of_their_keys():
    token_ids = many_rows(20, 32)
    copies = [masking().numpy(token_ids, key=(9, c))["token_ids"] for c in (1, 2)]
    seen = set()
    for step in range(1, 20):
        static = masking(static_copies=2).numpy(token_ids, key=(9, step))["token_ids"]
        which = [[(row == c[i]).all() for c in copies] for i, row in enumerate(static)]
        assert np.any(which, axis=1).all()
        seen |= set(np.argmax(which, axis=1))
    assert seen == {0, 1}


@pytest.mark.agnostic
def test_tf_map_takes_the_step_of_an_enumerated_dataset():
    tf = pytest.importorskip("tensorflow")
    token_ids = many_rows(4, 16)
    rows = tf.data.Dataset.from_tensor_slices({"token_ids": token_ids}).enumerate()
    layer = masking(mask_rate=0.5)
    masked = rows.map(lambda step, row: layer.tf_map((5, step))(row))
    for step, row in enumerate(masked.as_numpy_iterator()):
        expected = layer.numpy(token_ids[step], key=(5, step))
        np.testing.assert_array_equal(row["token_ids"], expected["token_ids"])


def test_training_draws_afresh_and_validation_does_not():
    layer, token_ids = masking(), ops.convert_to_tensor(many_rows(8, 32), "int32")
    fresh = [
        ops.convert_to_numpy(layer(token_ids, training=True)["token_ids"])
        for _ in range(2)
    ]
    fixed = [ops.convert_to_numpy(layer(token_ids)["token_ids"]) for _ in range(2)]
    assert (fresh[0] != fresh[1]).any()
    np.testing.assert_array_equal(*fixed)


def model_with(layer):
    token_ids = keras.Input((16,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((16,), dtype="bool", name="padding_mask")
    masked = layer(token_ids, padding_mask)
    x = keras.layers.Embedding(100, 4)(masked["token_ids"])
    return keras.Model([token_ids, padding_mask], keras.layers.Dense(1)(x))


@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_fit_advances_the_step_once_a_step_and_saves_it(tmp_path, jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("Keras compiles no PyTorch training step by default")
    layer = masking(seed=11)
    model = model_with(layer)
    model.compile("sgd", "mse", jit_compile=jit_compile)
    x, y = [many_rows(12, 16), np.ones((12, 16), bool)], np.zeros((12, 16, 1))
    model.fit(x, y, batch_size=4, validation_data=(x, y), verbose=0)
    assert ops.convert_to_numpy(layer.state).tolist() == [11, 3]

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    [restored] = [i for i in loaded.layers if isinstance(i, TokenMasking)]
    assert ops.convert_to_numpy(restored.state).tolist() == [11, 3]
    model.save_weights(tmp_path / "model.weights.h5")
    other = masking(seed=0)
    model_with(other).load_weights(tmp_path / "model.weights.h5")
    assert ops.convert_to_numpy(other.state).tolist() == [11, 3]


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "settings,message",
    [
        ({"mask_rate": 1.5}, "`mask_rate` must be in"),
        ({"mask_share": 0.9, "random_share": 0.2}, "at most 1"),
        ({"special_token_ids": (3.5,)}, r"Received: special_token_ids=3\.5"),
        ({"special_token_ids": (100,)}, "`special_token_ids` must be an integer in"),
        ({"max_predictions": 0}, "`max_predictions`"),
        ({"span_p": 1.0}, "`span_p`"),
        ({"span_p": 0.2, "max_span_length": 0}, "`max_span_length`"),
        ({"span_p": 0.2, "max_span_length": 2**14 + 1}, "at most 16384"),
        ({"max_span_length": 5}, "set `span_p`"),
        ({"replace_per_unit": True}, "`whole_word` or `span_p`"),
        ({"static_copies": 0}, "`static_copies`"),
        ({"vocabulary_size": 5, "special_token_ids": range(5)}, "tokens to draw from"),
        ({"vocabulary_size": 0}, "`vocabulary_size`"),
        ({"vocabulary_size": 30.7}, r"Received: vocabulary_size=30\.7"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        masking(**settings)


def test_tokens_outside_the_vocabulary_raise_eagerly_and_are_counted_compiled():
    token_ids = np.full((3, 8), 50, "int32")
    token_ids[1, 6] = 100
    layer = masking(mask_rate=1.0, mask_share=1.0, random_share=0.0)
    for call in (layer, layer.numpy):
        with pytest.raises(ValueError, match="100 in row 1 at position 6"):
            call(token_ids)
    padded = np.arange(8) != np.full((3, 1), 6)
    assert layer.numpy(token_ids, padded)["num_clamped"].tolist() == [0, 0, 0]

    tf = pytest.importorskip("tensorflow")
    batch = next(
        iter(tf.data.Dataset.from_tensors({"token_ids": token_ids}).map(layer.tf_map()))
    )
    assert batch["num_clamped"].numpy().tolist() == [0, 1, 0]
    assert batch["token_ids"][1, 6] == 100
    assert batch["sample_weight"].numpy().sum(axis=1).tolist() == [8, 7, 8]


def test_an_unknown_length_and_missing_word_ids_are_refused():
    with pytest.raises(ValueError, match="T known"):
        masking()(keras.Input((None,), dtype="int32"))
    with pytest.raises(ValueError, match="needs `word_ids`"):
        masking(whole_word=True)(keras.Input((8,), dtype="int32"))
