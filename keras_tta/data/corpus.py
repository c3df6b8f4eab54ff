"""Corpora: files in, documents (lists of sentences) out."""

import glob
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from keras_tta.data.compression import DamagedFile, open_bytes

BAD_BYTE = re.compile("[\udc80-\udcff]")
PEEK_BYTES = 1 << 16

Document = list[str]


class CorpusError(ValueError):
    """A corpus file that cannot be read as text; names the file and the line.

    Example:
    ```python
    import pathlib
    from keras_tta.data import CorpusError, read_documents

    pathlib.Path("corpus.txt").write_bytes(b"A caf\\xe9.\\n")
    try:
        list(read_documents("corpus.txt", errors="raise"))
    except CorpusError as error:
        assert "corpus.txt:1: byte 0xe9 is not UTF-8" in str(error)
    ```
    """


@dataclass
class CorpusReport:
    """What went into a corpus and what came out of it.

    `read_documents` fills it while it reads. `bytes` counts decompressed bytes.
    `lines` counts every line, so that
    `lines == text_lines + blank_lines + dropped.total()`; with one sentence per line,
    `text_lines == sentences`. `repaired` counts what was mended in lines that were
    kept, by reason.

    Example:
    ```python
    from keras_tta.data import CorpusReport

    report = CorpusReport(files=2, bytes=90, documents=2, sentences=4)
    assert str(report) == "2 files, 90 bytes, 2 documents, 4 sentences"
    ```
    """

    files: int = 0
    bytes: int = 0
    lines: int = 0
    text_lines: int = 0
    blank_lines: int = 0
    sentences: int = 0
    documents: int = 0
    dropped: Counter = field(default_factory=Counter)
    repaired: Counter = field(default_factory=Counter)

    def __str__(self):
        text = (
            f"{self.files:,} files, {self.bytes:,} bytes, "
            f"{self.documents:,} documents, {self.sentences:,} sentences"
        )
        for name, counts in (("dropped", self.dropped), ("repaired", self.repaired)):
            if counts:
                listed = ", ".join(f"{n:,} {reason}" for reason, n in counts.items())
                text += f"; {name}: {listed}"
        return text


def read_documents(
    paths: str | os.PathLike | Iterable[str | os.PathLike],
    errors: str = "replace",
    splitter: Callable[[str], list[str]] | None = None,
    max_sentences: int | None = None,
    report: CorpusReport | None = None,
) -> Iterator[Document]:
    """Read text files into documents: one sentence per line, blank lines between.

    Text is UTF-8, with or without a byte-order mark; lines end in LF, CRLF or CR.
    A document never spans two files. Surrounding white space is stripped from
    sentences, and NUL characters are removed and counted.

    Args:
        paths: a file, glob pattern (`**` allowed) or folder, or several. A folder
            stands for every file under it but hidden ones; `"-"` is standard input.
            Files named `.gz` and `.zst` are decompressed. Matches are read in sorted
            order, each file once.
        errors: what to do with bytes that are not UTF-8: `"replace"` each with
            U+FFFD and count it, `"drop"` the line and count it, or `"raise"`.
        splitter: for free text, a function from the text of a document (or the part of
            one between blank lines) to its sentences, such as `split_sentences`. `None`
            takes every line for a sentence.
        max_sentences: documents longer than this are cut into several; `None`
            leaves them whole.
        report: a `CorpusReport` to fill.

    Yields:
        Documents, non-empty lists of non-empty sentences.

    Raises:
        FileNotFoundError: nothing matches one of `paths`.
        CorpusError: a file is binary, UTF-16, or damaged; names file and line.

    Example:
    ```python
    import pathlib, tempfile
    from keras_tta.data import read_documents

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "corpus.txt")
        path.write_text("One sentence.\\nAnother.\\n\\nA second document.\\n")
        documents = list(read_documents(f"{folder}/*.txt"))
    assert documents == [["One sentence.", "Another."], ["A second document."]]
    ```
    """
    if errors not in ("replace", "drop", "raise"):
        raise ValueError(
            "`errors` must be 'replace', 'drop' or 'raise'. "
            f"Received: errors={errors!r}"
        )
    if max_sentences is not None and max_sentences < 1:
        raise ValueError(
            "`max_sentences` must be a positive integer or None. "
            f"Received: max_sentences={max_sentences}"
        )
    files = find_files(paths)
    report = CorpusReport() if report is None else report
    return _read_files(files, errors, splitter, max_sentences, report)


def find_files(
    paths: str | os.PathLike | Iterable[str | os.PathLike],
) -> list[str]:
    """List the files that `paths` (files, globs, folders) stand for, each once."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    files = {}
    for path in map(os.fspath, paths):
        if path == "-" or os.path.isfile(path):
            matches = [path]
        elif os.path.isdir(path):
            matches = glob.glob(os.path.join(glob.escape(path), "**"), recursive=True)
        else:
            matches = glob.glob(path, recursive=True)
        matches = [match for match in matches if match == "-" or os.path.isfile(match)]
        if not matches:
            raise FileNotFoundError(
                f"No file matches {path!r} (seen from {os.getcwd()!r}). Pass a text "
                "file, a folder of them, or a glob pattern such as 'texts/*.txt'."
            )
        files.update(dict.fromkeys(sorted(matches)))
    if not files:
        raise FileNotFoundError("No corpus files were given: `paths` is empty.")
    return list(files)


def iterate_sentences(documents: Iterable[str | Document]) -> Iterator[str]:
    """Flatten documents into sentences; items that are strings pass through.

    Example:
    ```python
    from keras_tta.data import iterate_sentences

    documents = [["One.", "Two."], "Three."]
    assert list(iterate_sentences(documents)) == ["One.", "Two.", "Three."]
    ```
    """
    for document in documents:
        if isinstance(document, str):
            yield document
        else:
            yield from document


def _read_files(files, errors, splitter, max_sentences, report):
    for path in files:
        report.files += 1
        for lines in _read_blocks(path, errors, report):
            sentences = splitter("\n".join(lines)) if splitter else lines
            size = max_sentences or len(sentences) or 1
            for start in range(0, len(sentences), size):
                document = sentences[start : start + size]
                report.documents += 1
                report.sentences += len(document)
                yield document


def _read_blocks(path, errors, report):
    """Yield the runs of text lines between blank lines."""
    block = []
    for line in _read_lines(path, errors, report):
        if line:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _read_lines(path, errors, report):
    """Yield the stripped lines of one file, "" for a blank line."""
    number = 0
    try:
        with open_bytes(path) as raw:
            buffered = io.BufferedReader(_CountedReader(raw, report), PEEK_BYTES)
            _refuse_binary(path, buffered.peek(PEEK_BYTES))
            lines = io.TextIOWrapper(
                buffered, encoding="utf-8-sig", errors="surrogateescape"
            )
            for number, line in enumerate(lines, start=1):
                report.lines += 1
                line = _mend(line, path, number, errors, report)
                if line is None:
                    continue
                line = line.strip()
                if line:
                    report.text_lines += 1
                else:
                    report.blank_lines += 1
                yield line
    except DamagedFile as error:
        raise CorpusError(
            f"{path}:{number + 1}: {error}. Compress it anew, or leave it out."
        ) from error
    except OSError as error:
        raise CorpusError(f"{path}:{number + 1}: cannot be read ({error}).") from error


def _mend(line, path, number, errors, report):
    """Count and mend what is not text in a line; None if the line is dropped."""
    if "\0" in line:
        report.repaired["NUL characters"] += line.count("\0")
        line = line.replace("\0", "")
    if line.isascii():
        return line
    bad = BAD_BYTE.findall(line)
    if not bad:
        return line
    if errors == "raise":
        raise CorpusError(
            f"{path}:{number}: byte 0x{ord(bad[0]) - 0xDC00:02x} is not UTF-8. Convert "
            "the file to UTF-8, or pass errors='replace' or errors='drop'."
        )
    if errors == "drop":
        report.dropped["lines with bytes that are not UTF-8"] += 1
        return None
    report.repaired["bytes that are not UTF-8"] += len(bad)
    return BAD_BYTE.sub("\ufffd", line)


def _refuse_binary(path, head):
    for marks, name in (
        ((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "UTF-32"),
        ((b"\xff\xfe", b"\xfe\xff"), "UTF-16"),
    ):
        if head.startswith(marks):
            raise CorpusError(
                f"{path}:1: the file is {name}. Convert it: "
                f"iconv -f {name} -t UTF-8 < old > new"
            )
    decoded = head.decode("utf-8", errors="surrogateescape")
    not_text = decoded.count("\0") + len(BAD_BYTE.findall(decoded))
    # Latin-1 prose has a few per cent of such bytes, pictures and archives a third.
    if not_text > 0.2 * len(head):
        raise CorpusError(
            f"{path}:1: the file is not text: {not_text:,} of its first "
            f"{len(head):,} bytes are NULs or not UTF-8. Leave it out."
        )


class _CountedReader(io.RawIOBase):
    def __init__(self, raw, report):
        self._raw = raw
        self._report = report

    def readable(self):
        return True

    def readinto(self, buffer):
        count = self._raw.readinto(buffer)
        self._report.bytes += count
        return count
