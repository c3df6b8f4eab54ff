import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tta.data import TokenBatches, TokenSequences
from keras_tta.data.orders import random_order

ROWS = [[i] * (1 + i % 13) for i in range(10, 110)]


def real_rows(batches, step):
    (batch,) = batches.batch(step)
    ids, mask = batch["token_ids"], batch["padding_mask"]
    assert ids.dtype == np.int32 and mask.dtype == bool and ids.shape == mask.shape
    assert (ids[~mask] == batches.pad_token_id).all()
    # The mask is a prefix of the row.
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()
    return [
        tuple(row[real].tolist())
        for row, real in zip(ids, mask, strict=True)
        if real.any()
    ]


def epoch_rows(batches, epoch=0):
    start = epoch * len(batches)
    return [
        row
        for step in range(start, start + len(batches))
        for row in real_rows(batches, step)
    ]


def expected_rows(sequences, content):
    return [
        (3, *row[i : i + content], 1)
        for row in sequences
        for i in range(0, len(row), content)
    ]


def small_model(width):
    token_ids = keras.Input((width,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((width,), dtype="bool", name="padding_mask")
    outputs = keras.layers.Embedding(128, 1)(token_ids)

    class Model(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.mean(y_pred**2)

    model = Model({"token_ids": token_ids, "padding_mask": padding_mask}, outputs)
    model.compile("sgd")
    return model


@pytest.mark.agnostic
@settings(max_examples=60, deadline=None)
@given(
    sequences=st.lists(st.lists(st.integers(7, 99), max_size=40), max_size=30),
    batch_size=st.integers(1, 5),
    width=st.integers(3, 12),
    buckets=st.sets(st.integers(3, 12)),
    remainder=st.sampled_from(["pad", "keep"]),
    shuffle=st.booleans(),
    seed=st.integers(-(2**70), 2**70),
)
def test_every_token_once_an_epoch(
    sequences, batch_size, width, buckets, remainder, shuffle, seed
):
    rows = expected_rows(sequences, width - 2)
    if not rows:
        with pytest.raises(ValueError, match="no batch"):
            TokenBatches(sequences, batch_size, width)
        return
    batches = TokenBatches(
        sequences,
        batch_size,
        width,
        bucket_lengths=[bucket for bucket in buckets if bucket <= width],
        remainder=remainder,
        shuffle=shuffle,
        seed=seed,
    )
    for epoch in (0, 3):
        assert sorted(epoch_rows(batches, epoch)) == sorted(rows)
    assert batches.rows == len(rows)
    assert batches.dropped_rows == 0
    slots = sum(batches.batch(i)[0]["token_ids"].size for i in range(len(batches)))
    assert np.isclose(batches.padding_share, 1 - sum(map(len, rows)) / slots)


@pytest.mark.agnostic
def test_a_batch_depends_on_seed_and_step_alone():
    first, second = (TokenBatches(ROWS, 8, 16, seed=5) for _ in range(2))
    order = [0, 7, 30, 12, 1, 0]
    assert [real_rows(first, step) for step in order] == [
        real_rows(second, step) for step in order
    ]
    other = TokenBatches(ROWS, 8, 16, seed=6)
    assert epoch_rows(first) != epoch_rows(first, 1)
    assert epoch_rows(first) != epoch_rows(other)
    fixed = TokenBatches(ROWS, 8, 16, shuffle=False)
    assert epoch_rows(fixed) == epoch_rows(fixed, 1) == expected_rows(ROWS, 14)


@pytest.mark.agnostic
def test_the_order_never_changes_with_a_version():
    assert random_order(8, seed=0, data_pass=0, purpose=0).tolist() == [
        *(0, 1, 4, 2, 3, 6, 7, 5)
    ]


@pytest.mark.agnostic
def test_resuming_from_one_integer():
    whole = TokenBatches(ROWS, 8, 16)
    resumed = TokenBatches(ROWS, 8, 16, first_step=17)
    assert len(list(resumed)) == len(whole)
    (batch,) = resumed[2]
    (expected,) = whole.batch(17 + len(whole) + 2)
    np.testing.assert_array_equal(batch["token_ids"], expected["token_ids"])


@pytest.mark.agnostic
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("buckets", [(), (6, 10)])
def test_processes_share_every_batch(processes, buckets):
    options = {"batch_size": 8, "sequence_length": 16, "bucket_lengths": buckets}
    whole = TokenBatches(ROWS, **options)
    shares = [
        TokenBatches(ROWS, process_index=i, process_count=processes, **options)
        for i in range(processes)
    ]
    if not buckets:
        for step in range(2 * len(whole)):
            rows = [row for share in shares for row in real_rows(share, step)]
            assert sorted(rows) == sorted(real_rows(whole, step))
    rows = [row for share in shares for row in epoch_rows(share)]
    assert sorted(rows) == sorted(epoch_rows(whole))
    assert len({len(share) for share in shares}) == 1
    for step in range(len(shares[0])):
        shapes = {share.batch(step)[0]["token_ids"].shape for share in shares}
        assert len(shapes) == 1


@pytest.mark.agnostic
def test_remainders():
    shapes = {
        remainder: {batches.batch(i)[0]["token_ids"].shape for i in range(len(batches))}
        for remainder in ("pad", "keep", "drop")
        for batches in [TokenBatches(ROWS, 8, 16, remainder=remainder)]
    }
    assert shapes == {"pad": {(8, 16)}, "keep": {(8, 16), (4, 16)}, "drop": {(8, 16)}}
    batches = TokenBatches(ROWS, 8, 16, remainder="drop")
    assert batches.dropped_rows == 4 and len(epoch_rows(batches)) == 96


@pytest.mark.agnostic
def test_buckets_are_few_shapes_and_less_padding():
    plain = TokenBatches(ROWS, 8, 16)
    bucketed = TokenBatches(ROWS, 8, 16, bucket_lengths=(4, 8))
    shapes = {bucketed.batch(i)[0]["token_ids"].shape for i in range(len(bucketed))}
    assert shapes == {(8, 16), (16, 8), (32, 4)}
    assert bucketed.padding_share < plain.padding_share


@pytest.mark.agnostic
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_first_two_batches_differ_in_width(shuffle):
    options = {"bucket_lengths": (4, 8), "shuffle": shuffle}
    for seed in range(20):
        batches = TokenBatches(ROWS * 3, 8, 16, seed=seed, **options)
        widths = [batches.batch(i)[0]["token_ids"].shape[1] for i in (0, 1)]
        assert widths[0] != widths[1]


@pytest.mark.parametrize("shuffle", [True, False])
def test_fit_takes_every_width(shuffle):
    model = small_model(width=None)
    options = {"bucket_lengths": (4, 8), "shuffle": shuffle}
    batches = TokenBatches(ROWS * 3, 8, 16, **options)
    model.fit(batches, epochs=2, shuffle=False, verbose=0)
    assert batches.epoch == 2


@pytest.mark.agnostic
def test_counts_of_odd_sequences():
    sequences = [[], [7] * 14, [7] * 15, [7] * 29, []]
    batches = TokenBatches(sequences, 8, 16)
    assert batches.empty_sequences == 2
    assert batches.cut_sequences == 2
    assert batches.rows == 6


@pytest.mark.agnostic
def test_without_start_and_end():
    batches = TokenBatches(
        [[7, 8, 9]], 1, 2, start_token_id=None, end_token_id=None, shuffle=False
    )
    assert epoch_rows(batches) == [(7, 8), (9,)]


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "options, message",
    [
        ({"sequence_length": 2}, "must exceed 2"),
        ({"batch_size": 0}, "batch_size"),
        ({"process_count": 3}, "multiple of.*process_count=3"),
        ({"process_index": 1}, "process_index"),
        ({"process_count": 0}, "process_count=0"),
        ({"remainder": "wrap"}, "remainder='wrap'"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0"),
        ({"steps_per_epoch": 2.5}, "steps_per_epoch=2.5"),
        ({"first_step": -1}, "first_step=-1"),
        ({"first_step": 1.5}, "first_step=1.5"),
        ({"bucket_lengths": (2,)}, "bucket_lengths"),
        ({"bucket_lengths": (32,)}, "bucket_lengths"),
        ({"sequences": []}, "no batch"),
        ({"sequences": [[7]], "remainder": "drop"}, "no batch"),
    ],
)
def test_bad_arguments(options, message):
    arguments = {"sequences": ROWS, "batch_size": 8, "sequence_length": 16, **options}
    with pytest.raises(ValueError, match=message):
        TokenBatches(**arguments)


@pytest.mark.agnostic
def test_batch_numbers_have_bounds():
    batches = TokenBatches(ROWS, 8, 16)
    with pytest.raises(IndexError):
        batches[len(batches)]


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_fit_sees_every_epoch_in_its_own_order(built, workers):
    model = small_model(width=16)
    validation = TokenBatches(ROWS[:20], 8, 16, shuffle=False)
    if built:
        model.evaluate(validation, verbose=0)
    steps = []

    class Recorder(TokenBatches):
        def batch(self, step):
            steps.append(step)
            return super().batch(step)

    sequences = TokenSequences.from_lists(ROWS)
    train = Recorder(sequences, 8, 16, workers=workers)
    history = model.fit(
        train, validation_data=validation, epochs=3, shuffle=False, verbose=0
    )
    assert len(history.history["val_loss"]) == 3
    # Keras reads a few batches ahead, and throws them away.
    assert set(steps) >= set(range(3 * len(train)))
    assert max(steps) < 4 * len(train)
    assert train.epoch == 3
