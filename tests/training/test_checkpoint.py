"""A training in parts is the training in one, bit for bit, whatever interrupts it."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_tta.training import (
    CheckpointError,
    TrainingCheckpoint,
    WallClockBudget,
)
from tests.training.interrupted_runs import (
    Interruption,
    assert_same,
    fit,
    fit_in_parts,
    interrupt,
    make_model,
    steps_in,
)
from tests.training.resumable_run import (
    EPOCHS,
    STEPS,
    TOTAL,
    At,
    NumberBatches,
    train,
)

BACKEND = keras.backend.backend()


# === Killed and run again ===


@pytest.mark.parametrize(
    "objective, step, writing",
    [
        ("tta", 8, []),
        pytest.param("electra", 6, ["writing"], marks=pytest.mark.slow),
    ],
)
def test_a_killed_pretraining_goes_on_bit_for_bit(tmp_path, objective, step, writing):
    arguments = [str(tmp_path / "parts"), objective, str(step), *writing]
    child = subprocess.run(
        [sys.executable, "-m", "tests.training.resumable_run", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    last = steps_in(tmp_path / "parts")[-1]
    assert step - 2 <= last <= step
    whole = train(tmp_path / "whole", objective)
    parts = train(tmp_path / "parts", objective)
    assert_same(parts, whole)
    read = [[s for s in steps if last <= s < TOTAL] for *_, steps in (whole, parts)]
    assert read[0] == read[1] == list(range(last, TOTAL))


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "torch", reason="Keras compiles PyTorch unasked never.")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_with_and_without_compilation(tmp_path, jit_compile):
    whole = train(tmp_path / "whole", jit_compile=jit_compile)
    with pytest.raises(Interruption):
        train(tmp_path / "parts", "tta", [At(8, interrupt)], jit_compile)
    assert_same(train(tmp_path / "parts", jit_compile=jit_compile), whole)


@pytest.mark.parametrize("step", [1, STEPS])
def test_any_step_will_do(tmp_path, whole, step):
    assert_same(fit_in_parts(tmp_path, step), whole)


def test_interrupted_again_and_again(tmp_path, whole):
    for step in (3, 1, 4, 2):
        with pytest.raises(Interruption):
            fit(tmp_path, At(step, interrupt))
    assert_same(fit(tmp_path), whole)


def test_data_of_any_kind_go_on_between_epochs(tmp_path):
    x = np.random.default_rng(0).normal(size=(12, 8)).astype("float32")

    def train(folder, *callbacks):
        model = make_model()
        checkpoint = TrainingCheckpoint(tmp_path / folder, every_steps=1)
        history = model.fit(
            x,
            x[:, :1],
            batch_size=4,
            epochs=4,
            shuffle=False,
            verbose=0,
            callbacks=[checkpoint, *callbacks],
        )
        return model.get_weights(), history.history["loss"]

    whole = train("whole")
    with pytest.raises(Interruption):
        train("parts", At(8, interrupt))
    weights, losses = train("parts")
    assert_same((weights, losses), (whole[0], whole[1][2:]))


def test_a_finished_run_trains_nothing_and_a_longer_one_goes_on(tmp_path, whole):
    fit(tmp_path, epochs=1)
    assert_same(fit(tmp_path), whole)
    assert_same(fit(tmp_path, At(0, interrupt)), whole)


def test_what_comes_after_a_resumed_fit_begins_at_its_beginning(tmp_path):
    fit(tmp_path, epochs=1)
    model = make_model()
    fit(tmp_path, model=model)
    history = model.fit(NumberBatches(), shuffle=False, verbose=0)
    assert history.epoch == [0]


def test_what_comes_after_a_resumed_fit_that_fails_begins_at_its_beginning(tmp_path):
    fit(tmp_path, epochs=1)
    model = make_model()
    with pytest.raises(Interruption):
        fit(tmp_path, At(0, interrupt), model=model)
    history = model.fit(NumberBatches(), shuffle=False, verbose=0)
    assert history.epoch == [0]


# === Disks ===


def flip(path):
    """Alters one bit of a checkpoint's weights."""
    content = bytearray((path / "model.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "model.safetensors").write_bytes(content)


def test_of_a_damaged_checkpoint_the_one_before_is_used(tmp_path, whole):
    with pytest.raises(Interruption):
        fit(tmp_path, At(8, interrupt))
    flip(tmp_path / "checkpoints" / f"step-{steps_in(tmp_path)[-1]:010d}")
    with pytest.warns(UserWarning, match="is damaged: .* set aside as damaged-step-"):
        parts = fit(tmp_path)
    assert_same(parts, whole)


def test_what_is_not_the_first_process_reads_and_writes_nothing(
    tmp_path, whole, monkeypatch
):
    with pytest.raises(Interruption):
        fit(tmp_path, At(8, interrupt))
    folder = tmp_path / "checkpoints"
    flip(folder / f"step-{steps_in(tmp_path)[-1]:010d}")
    (folder / ".new-step-0000000009").mkdir()
    before = sorted(folder.rglob("*"))
    monkeypatch.setattr("keras_tta.training.checkpoint.is_first_process", lambda: False)
    # The first has found the one before.
    monkeypatch.setattr(
        "keras_tta.training.checkpoint.of_first_process",
        lambda step: steps_in(tmp_path)[-2],
    )
    assert_same(fit(tmp_path), whole)
    assert sorted(folder.rglob("*")) == before


def test_if_all_are_damaged_nothing_is_trained(tmp_path):
    fit(tmp_path)
    for step in steps_in(tmp_path):
        flip(tmp_path / "checkpoints" / f"step-{step:010d}")
    with pytest.raises(CheckpointError, match="Every checkpoint .* is damaged"):
        with pytest.warns(UserWarning):
            fit(tmp_path)


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, whole, monkeypatch):
    write = safetensors.numpy.save_file

    def save_file(tensors, path):
        if path.match("*6/optimizer.safetensors"):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(tensors, path)

    monkeypatch.setattr(safetensors.numpy, "save_file", save_file)
    with pytest.raises(CheckpointError, match="step 6 .*No space left .* of step 4"):
        fit(tmp_path)
    assert steps_in(tmp_path) == [2, 4]
    assert not list(tmp_path.glob("checkpoints/.*"))
    monkeypatch.undo()
    assert_same(fit(tmp_path), whole)


def test_a_folder_that_cannot_be_written_is_told_before_training(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot be written to .*checkpoints"):
        fit(tmp_path, At(0, interrupt))


def test_data_that_vanish_leave_the_last_checkpoint(tmp_path, whole):
    class Vanishing(NumberBatches):
        def batch(self, step):
            if step == 8:
                raise OSError("tokens.npy is gone")
            return super().batch(step)

    with pytest.raises(Exception, match="tokens.npy is gone"):
        fit(tmp_path, batches=Vanishing())
    assert steps_in(tmp_path)[-1] >= 4
    assert_same(fit(tmp_path), whole)


# === What belongs together ===


def test_another_training_is_refused_with_what_differs(tmp_path):
    with pytest.raises(Interruption):
        fit(tmp_path, At(3, interrupt))
    for changed, said in (
        (
            {"model": make_model(units=4)},
            r"model\.layers\.1\.config\.units: was 3, is 4",
        ),
        ({"model": make_model(rate=0.5)}, r"optimizer\.learning_rate: was 0\.00.*0\.5"),
        ({"batches": NumberBatches(seed=4)}, r"data\.seed: was 3, is 4"),
        ({"callbacks": []}, r"callbacks\.0: was \{'MetricsCSV': \{\}\}, is None"),
    ):
        with pytest.raises(CheckpointError, match=said):
            fit(tmp_path, **changed)


def test_another_corpus_is_another_training(tmp_path, monkeypatch):
    with pytest.raises(Interruption):
        fit(tmp_path, At(3, interrupt))
    batches = NumberBatches()
    batches.sequences.tokens[7] += 1
    with pytest.raises(CheckpointError, match=r"data\.sha256: was"):
        fit(tmp_path, batches=batches)


def test_other_versions_are_told(tmp_path):
    fit(tmp_path)
    newest = tmp_path / "checkpoints" / f"step-{TOTAL:010d}"
    state = json.loads((newest / "training.json").read_text())
    assert state["versions"]["keras"] == keras.version()
    assert (state["epoch"], state["batch"], state["step"]) == (EPOCHS, 0, TOTAL)


def test_epochs_of_another_length_than_the_data_say_are_refused(tmp_path):
    batches = NumberBatches(steps_per_epoch=None)
    checkpoint = TrainingCheckpoint(tmp_path, batches)
    with pytest.raises(ValueError, match="`steps_per_epoch` to the batches"):
        make_model().fit(batches, steps_per_epoch=2, verbose=0, callbacks=[checkpoint])


@pytest.mark.agnostic
@pytest.mark.parametrize(
    "settings, message",
    [
        ({"keep": 0}, "`keep` .* positive integer"),
        ({"keep": None}, "`keep` .* positive integer"),
        ({"every_steps": 0.5}, "`every_steps` .* positive integer"),
        ({"every_minutes": -1}, "`every_minutes` .* above 0"),
        ({"mode": "least"}, "`mode` .* one of 'min', 'max'"),
        ({"callbacks": [keras.callbacks.Callback()]}, "get_state"),
    ],
)
def test_arguments_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingCheckpoint("checkpoints", **settings)


# === Which are kept ===


class Scores(keras.callbacks.Callback):
    """Puts a value into the logs of every epoch."""

    def __init__(self, *values):
        super().__init__()
        self.values = values

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = self.values[epoch]


def test_the_last_and_the_best_are_kept(tmp_path):
    model = make_model()
    batches = NumberBatches()
    checkpoint = TrainingCheckpoint(
        tmp_path / "checkpoints", batches, keep=2, every_steps=2, monitor="score"
    )
    best = []

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            best.append(self.model.get_weights())

    model.fit(
        batches,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[Scores(2.0, 1.0, 3.0), checkpoint, Weights()],
    )
    assert steps_in(tmp_path) == [10, 14, 15]
    other = make_model()
    assert checkpoint.restore_weights(other) == 10
    assert_same((other.get_weights(), 0), (best[1], 0))
    uncompiled = keras.models.clone_model(model)
    assert checkpoint.restore_weights(uncompiled, "last") == 15
    assert_same((uncompiled.get_weights(), 0), (best[2], 0))
    unmonitored = TrainingCheckpoint(tmp_path / "checkpoints")
    assert unmonitored.restore_weights(other) == 15
    with pytest.raises(ValueError, match="`which` .* one of 'best', 'last'"):
        checkpoint.restore_weights(other, "beast")


@pytest.mark.parametrize(
    "scores, mode", [((np.nan, 2, 3), "min"), ((1, 2, 0.5), "max")]
)
def test_the_best_is_a_number(tmp_path, scores, mode):
    batches = NumberBatches()
    checkpoint = TrainingCheckpoint(tmp_path, batches, monitor="score", mode=mode)
    make_model().fit(
        batches,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[Scores(*scores), checkpoint],
    )
    assert checkpoint.restore_weights(make_model()) == 2 * STEPS


def test_the_best_of_another_measure_is_forgotten(tmp_path):
    # No mae is as high as the losses are: it would never be the best.
    fit(tmp_path, epochs=2, monitor="loss", mode="max")
    fit(tmp_path, epochs=EPOCHS, monitor="mae", mode="max")
    checkpoint = TrainingCheckpoint(tmp_path / "checkpoints", monitor="mae", mode="max")
    assert checkpoint.restore_weights(make_model()) == EPOCHS * STEPS


def test_going_back_repeats_no_draw(tmp_path):
    model, batches = make_model(), NumberBatches()
    checkpoint = TrainingCheckpoint(tmp_path, batches)
    model.fit(batches, shuffle=False, verbose=0, callbacks=[checkpoint])
    weights, counts = model.get_weights(), []
    for variable in [*model.variables, model.optimizer.iterations]:
        if "float" not in variable.dtype:
            variable.assign(variable.value + 1)
            counts.append((variable, keras.ops.convert_to_numpy(variable)))
    model.layers[0].kernel.assign(np.full((8, 3), np.nan))
    assert checkpoint.roll_back() == STEPS
    assert_same((model.get_weights(), 0), (weights, 0))
    assert len(counts) == 2  # A seed and the steps.
    for variable, count in counts:
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), count)


def test_going_back_leaves_the_gradients_of_a_group(tmp_path):
    model, batches = make_model(), NumberBatches()
    model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=4), loss="mse")
    checkpoint = TrainingCheckpoint(tmp_path, batches)
    model.fit(batches, shuffle=False, verbose=0, callbacks=[checkpoint])
    sums = [v for v in model.optimizer.variables if "accumulator" in v.name]
    assert len(sums) == 4
    for variable in sums:
        variable.assign(np.full(variable.shape, 7.0))
    assert checkpoint.roll_back() == model.optimizer.iterations
    for variable in sums:
        assert (keras.ops.convert_to_numpy(variable) == 7.0).all()


def test_a_value_that_is_not_there_is_told(tmp_path):
    with pytest.warns(UserWarning, match="monitor='score' is not among .*: loss, mae"):
        fit(tmp_path, epochs=1, monitor="score")


# === Other callbacks ===


def test_a_budget_in_parts_is_one_budget(tmp_path):
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    class Tick(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            clock.now += 1.0

    def fit_on(budget, *callbacks):
        return fit(tmp_path, Tick(), budget, *callbacks, callbacks=[budget], epochs=100)

    clock = Clock()
    budget = WallClockBudget(21 / 60, 0.1, clock=clock)
    with pytest.raises(Interruption):
        fit_on(budget, At(8, interrupt))
    clock.now += 1000.0  # Nobody trains.
    budget = WallClockBudget(21 / 60, 0.1, clock=clock)
    start = clock.now
    fit_on(budget)
    # Saved before step 8, the ninth second; what came after it was lost.
    assert 21 - 9 <= clock.now - start <= 21 - 9 + 2
    assert budget.share == 1.0
    # Of a used budget nothing is left to train.
    budget = WallClockBudget(21 / 60, 0.1, clock=clock)
    fit_on(budget, At(0, interrupt))
    with pytest.raises(CheckpointError, match=r"\.WallClockBudget\.minutes: was 0\.35"):
        fit_on(WallClockBudget(1.0, 0.1, clock=clock))
