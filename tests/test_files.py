"""What is replaced is there whole, and safe on the disk before the old is gone."""

import errno
import os
import stat
from pathlib import Path

import pytest

from keras_tta.files import replace_entries, replace_file, replace_folder, sha256

pytestmark = pytest.mark.agnostic


def full(*_):
    raise OSError("No space left on device")


@pytest.fixture
def events(monkeypatch):
    """What is synced and what moves, in order, by name."""
    events, opened = [], {}
    open_, fsync, rename = os.open, os.fsync, Path.rename

    def recorded_open(path, *arguments, **options):
        handle = open_(path, *arguments, **options)
        opened[handle] = Path(path).name
        return handle

    def recorded_fsync(handle):
        events.append(("sync", opened[handle]))
        fsync(handle)

    def recorded_rename(path, target):
        events.append(("move", path.name))
        return rename(path, target)

    monkeypatch.setattr(os, "open", recorded_open)
    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    return events


def write_entries(folder, content):
    leaving = ("config", "a/b", "w*")
    with replace_entries(folder, last="config", leaving=leaving) as new:
        (new / "a").mkdir()
        for name in ("a/b", "config", "weights"):
            (new / name).write_text(content)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_hash_is_that_of_sha256sum(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a").startswith("ba7816bf8f01cfea414140de5dae2223b003")


def test_a_file_is_whole_and_safe_or_the_old_one(tmp_path, events, monkeypatch):
    path = tmp_path / "a"
    with replace_file(path) as file:
        file.write("old\n")
        assert not path.exists()
    assert events == [("sync", "a.new"), ("sync", tmp_path.name)]
    with pytest.raises(KeyError):
        with replace_file(str(path)) as file:
            file.write("half")
            raise KeyError
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        with replace_file(path) as file:
            file.write("new")
    assert contents(tmp_path) == {"a": "old\n"}


def test_a_folder_takes_the_place_of_another(tmp_path, events):
    for content in ("old", "new"):
        new = tmp_path / ".new-a"
        new.mkdir()
        (new / "b").write_text(content)
        replace_folder(new, tmp_path / "a")
        assert contents(tmp_path) == {"a/b": content}
    safe = [("sync", "b"), ("sync", ".new-a")]
    first, second = [("move", ".new-a")], [("move", "a"), ("move", ".new-a")]
    end = [("sync", tmp_path.name)]
    assert events == safe + first + end + safe + second + end


def test_entries_move_when_all_are_safe_and_the_last_one_last(tmp_path, events):
    folder = tmp_path / "folder"
    write_entries(folder, "old")
    (folder / "words").mkdir()
    (folder / "kept").write_text("kept")
    events.clear()
    write_entries(folder, "new")
    first = events.index(("move", "config"))
    safe = {name for _, name in events[:first]}
    assert {"a", "b", "config", "weights"} < safe
    assert ("move", "weights") in events[first:]
    # Three entries and `words` leave, three come, each safe before the next.
    assert events[first + 1 :: 2] == [("sync", "folder")] * 7
    assert events[-2] == ("move", "config")
    assert contents(folder) == dict.fromkeys(("a/b", "config", "weights"), "new") | {
        "kept": "kept"
    }
    assert len(os.listdir(folder)) == 4


def test_entries_stay_while_the_new_ones_are_not_safe(tmp_path, monkeypatch):
    write_entries(tmp_path, "old")
    before = contents(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_entries(tmp_path, "new")
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.name == "nt", reason="Windows opens no folders")
def test_file_systems_that_sync_files_alone_will_do(tmp_path, monkeypatch):
    fsync = os.fsync

    def no_folders(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", no_folders)
    write_entries(tmp_path, "new")
    assert contents(tmp_path)["config"] == "new"


def test_entries_of_the_same_names_make_way_by_default(tmp_path):
    for content in ("old", "new"):
        with replace_entries(tmp_path, last="config") as new:
            (new / "config").write_text(content)
        (tmp_path / "other").write_text("other")
    assert contents(tmp_path) == {"config": "new", "other": "other"}
