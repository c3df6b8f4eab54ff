"""Files and folders that are on the disk whole or not at all, whatever interrupts."""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

# What a folder's name begins with while it is written, and while it makes way.
NEW, OLD = ".new-", ".old-"


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders.
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems sync files alone.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


@contextmanager
def replace_file(path: str | os.PathLike) -> Iterator[TextIO]:
    """Open a text file that takes the place of `path` once it is complete.

    Lines end as they are written. If writing fails, what was there is unharmed.

    Example:
    ```python
    from pathlib import Path
    from keras_tta.files import replace_file

    with replace_file("notes.txt") as file:
        file.write("complete")
    assert Path("notes.txt").read_text() == "complete"
    ```
    """
    path = Path(path)
    new = path.with_name(f"{path.name}.new")
    try:
        with open(new, "w", encoding="utf-8", newline="") as file:
            yield file
        sync(new)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync(path.parent)


def replace_folder(new: Path, target: Path) -> None:
    """Give a complete folder its name; a folder that has the name makes way.

    A crash in between leaves that one as `.old-<name>`.
    """
    sync_tree(new)
    old = target.with_name(OLD + target.name)
    if target.exists():
        target.rename(old)
    new.rename(target)
    sync(target.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def replace_entries(
    folder: str | os.PathLike, last: str, leaving: Iterable[str] | None = None
) -> Iterator[Path]:
    """Open a new folder, whose entries move into `folder` once they are complete.

    All entries change places or none. The one named `last`, without which the others
    are not read, leaves first and comes last, each step safe on the disk before the
    next: no loss of power leaves a mixture of old and new that would be read.

    Args:
        folder: made if need be.
        last: a name.
        leaving: patterns of the entries that make way; for `a/b`, all of `a` does.
            Defaults to the names of those that come.

    Raises:
        OSError: if writing fails; what was there is unharmed.

    Example:
    ```python
    from pathlib import Path
    from keras_tta.files import replace_entries

    with replace_entries("model", last="config.json") as new:
        (new / "weights").write_bytes(b"1")
        (new / "config.json").write_text("{}")
    assert len(list(Path("model").iterdir())) == 2
    ```
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = secrets.token_hex(4)
    new, old = folder / f"{NEW}{name}", folder / f"{OLD}{name}"
    try:
        new.mkdir()
        yield new
        sync_tree(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    come = sorted(new.iterdir(), key=lambda entry: entry.name == last)
    patterns = [entry.name for entry in come] if leaving is None else leaving
    found = (path.relative_to(folder) for x in patterns for path in folder.glob(x))
    leave = sorted(
        {folder / path.parts[0] for path in found},
        key=lambda entry: entry.name != last,
    )
    old.mkdir()
    moves = [(entry, old / entry.name) for entry in leave]
    moves += [(entry, folder / entry.name) for entry in come]
    done = []
    try:
        for source, target in moves:
            source.rename(target)
            done.append((source, target))
            sync(folder)
    except BaseException as error:
        for source, target in reversed(done):
            target.rename(source)
        old.rmdir()
        error.add_note(f"All is complete in {new}, but could not take its place.")
        raise
    shutil.rmtree(old)
    new.rmdir()
