"""Lines of evaluation files, with their places."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_tta.data.compression import DamagedFile, open_bytes


def numbered_lines(path: str | os.PathLike) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file, plain, `.gz` or `.zst`, each after its "file:line".

    Blank lines are passed over.

    Raises:
        ValueError: if a line is not UTF-8, or the file is damaged.
    """
    path = os.fspath(path)
    number = 0
    try:
        with open_bytes(path) as file:
            for number, line in enumerate(file, start=1):
                place = f"{path}:{number}"
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{place}: the line is not UTF-8 ({error})."
                    ) from None
                if text.strip():
                    yield place, text.rstrip("\r\n")
    except DamagedFile as error:
        raise ValueError(f"{path}:{number + 1}: {error}.") from None


def json_rows(
    source: str | os.PathLike | Iterable[Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a JSONL file, or rows at hand, each after its place.

    Raises:
        ValueError: if a line is not a JSON object.
    """
    if not isinstance(source, str | os.PathLike):
        for index, row in enumerate(source):
            yield f"row {index}", row
        return
    for place, line in numbered_lines(source):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{place}: the line is not JSON ({error}).") from None
        if not isinstance(row, dict):
            raise ValueError(
                f"{place}: the line must be a JSON object. Received: {line[:60]}"
            )
        yield place, row
