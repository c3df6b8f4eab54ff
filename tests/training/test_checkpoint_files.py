"""Checkpoints on disk are whole or are not read."""

import os

import numpy as np
import pytest

from keras_tta.training import CheckpointError
from keras_tta.training.checkpoint_files import CheckpointFolder

pytestmark = pytest.mark.agnostic

ARRAYS = {
    "model": {"00000/b": np.arange(300.0), "00001/a": np.array(7)},
    "optimizer": {"00000/m": np.zeros((0, 3), "float32")},
    "generators": {},
}


@pytest.fixture
def folder(tmp_path):
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.prepare()
    for step in (3, 7):
        folder.write(step, ARRAYS, {"number": step / 10})
    return folder


def test_what_is_written_is_read(folder):
    step, arrays, state = folder.read_newest()
    assert (step, state) == (7, {"number": 0.7})
    assert arrays.keys() == ARRAYS.keys()
    for kind, tensors in ARRAYS.items():
        assert list(arrays[kind]) == list(tensors)
        for name, array in tensors.items():
            np.testing.assert_array_equal(arrays[kind][name], array, strict=True)
    assert folder.read_newest(below=7)[0] == 3
    assert folder.read_newest(below=3) is None


def truncate(name):
    return lambda path: os.truncate(path / name, os.path.getsize(path / name) // 2)


def flip(name):
    def damage(path):
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content)

    return damage


def remove(name):
    return lambda path: (path / name).unlink()


@pytest.mark.parametrize(
    "name",
    ["model.safetensors", "training.json", "SHA256SUMS", "generators.safetensors"],
)
@pytest.mark.parametrize("damage", [truncate, flip, remove])
def test_a_damaged_one_is_set_aside(folder, damage, name):
    damage(name)(folder.at(7))
    with pytest.raises(CheckpointError, match="step-0000000007 is damaged: "):
        folder.read(7)
    with pytest.warns(UserWarning, match="set aside as damaged-step-0000000007"):
        assert folder.read_newest()[0] == 3
    assert folder.steps() == [3]


def test_sums_of_nothing_are_damage(folder):
    (folder.at(7) / "SHA256SUMS").write_text("")
    with pytest.raises(CheckpointError, match="does not name training.json"):
        folder.read(7)


def test_all_damaged_is_an_error_and_none_is_none(folder, tmp_path):
    for step in folder.steps():
        truncate("training.json")(folder.at(step))
    with pytest.raises(CheckpointError, match="Every checkpoint in .* is damaged"):
        with pytest.warns(UserWarning):
            folder.read_newest()
    assert CheckpointFolder(tmp_path / "elsewhere").read_newest() is None


def test_a_checkpoint_takes_the_place_of_one_of_its_step(folder):
    folder.write(7, ARRAYS, {"number": 1})
    assert folder.read(7)[1] == {"number": 1}
    assert sorted(os.listdir(folder.path)) == ["step-0000000003", "step-0000000007"]


def test_those_who_only_read_leave_a_damaged_one(folder):
    truncate("training.json")(folder.at(7))
    assert folder.read_newest(set_aside=False)[0] == 3
    assert folder.steps() == [3, 7]


def test_what_has_another_name_is_left_alone(folder):
    for name in ("step-0000000007.bak", "step-x"):
        (folder.path / name).mkdir()
    assert folder.steps() == [3, 7]
    folder.prune(1)
    assert len(os.listdir(folder.path)) == 3


def test_left_behind_by_a_crash(folder):
    new, old = (folder.path / f"{kind}-step-0000000007" for kind in (".new", ".old"))
    # While written for the second time: the first is moved away, the second not there.
    folder.at(7).rename(old)
    new.mkdir()
    folder.prepare()
    assert folder.read_newest()[0] == 7
    # Both are there, and the first is not removed yet.
    old.mkdir()
    folder.prepare()
    assert sorted(os.listdir(folder.path)) == ["step-0000000003", "step-0000000007"]


def test_the_last_and_one_more_are_kept(folder):
    for step in (8, 9, 10):
        folder.write(step, ARRAYS, {})
    folder.prune(2, also=7)
    assert folder.steps() == [7, 9, 10]
    folder.prune(2)
    assert folder.steps() == [9, 10]


def test_failing_to_write_changes_nothing(folder, monkeypatch):
    before = sorted(os.listdir(folder.path))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="step 9 .* full.* is that of step 7"):
        folder.write(9, ARRAYS, {})
    assert sorted(os.listdir(folder.path)) == before


def full(handle):
    raise OSError("the disk is full")
