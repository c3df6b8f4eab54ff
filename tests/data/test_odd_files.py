"""Bad and odd corpus files, made here: each is read as told, or refused by name."""

import gzip
import os
import sys

import pytest

from keras_tta.data import CorpusError, CorpusReport, read_documents, split_sentences

pytestmark = pytest.mark.agnostic

TEXT = b"One.\nTwo.\n\nThree.\n"
DOCUMENTS = [["One.", "Two."], ["Three."]]
BOM = b"\xef\xbb\xbf"

# (bytes of the file, its documents)
READ = {
    "plain": (TEXT, DOCUMENTS),
    "no line end at the end": (TEXT[:-1], DOCUMENTS),
    "blank lines around": (b"\n\n" + TEXT + b"\n\n\n", DOCUMENTS),
    "several blank lines between": (b"One.\nTwo.\n\n\n\nThree.", DOCUMENTS),
    "blanks on a blank line": (b"One.\nTwo.\n \t \nThree.", DOCUMENTS),
    "no-break space on a blank line": (b"One.\nTwo.\n\xc2\xa0\nThree.", DOCUMENTS),
    "white space around sentences": (b" One. \n\tTwo.\t\n\n Three.", DOCUMENTS),
    "CRLF": (TEXT.replace(b"\n", b"\r\n"), DOCUMENTS),
    "CR": (TEXT.replace(b"\n", b"\r"), DOCUMENTS),
    "mixed line ends": (b"One.\rTwo.\r\n\nThree.\n", DOCUMENTS),
    "byte-order mark": (BOM + TEXT, DOCUMENTS),
    "byte-order mark and CRLF": (BOM + TEXT.replace(b"\n", b"\r\n"), DOCUMENTS),
    "byte-order mark inside": (b"One.\n" + BOM + b"Two.", [["One.", "\ufeffTwo."]]),
    "empty": (b"", []),
    "byte-order mark alone": (BOM, []),
    "one line end": (b"\n", []),
    "line ends alone": (b"\r\n\r\n\n\r", []),
    "white space alone": (b" \t \n \n\xe3\x80\x80\n", []),
    "one character": (b"a", [["a"]]),
    "one line": (b"One.", [["One."]]),
    "no blank lines": (b"1\n" * 1000, [["1"] * 1000]),
    "blank line after every line": (b"1\n\n" * 100, [["1"]] * 100),
    "Latin-1": (b"One caf\xe9.", [["One caf\ufffd."]]),
    "cut inside a character": ("Naïve é".encode()[:-1], [["Naïve \ufffd"]]),
    "overlong encoding": (
        b"Fine text \xc0\xaf here",
        [["Fine text \ufffd\ufffd here"]],
    ),
    "surrogate": (b"Some text: \xed\xa0\x80!", [["Some text: \ufffd\ufffd\ufffd!"]]),
    "beyond Unicode": (b"Much plain text \xf5.", [["Much plain text \ufffd."]]),
    "NULs": (b"A line.\nN\0U\0L\n\0\n", [["A line.", "NUL"]]),
    "control characters": (
        b"Bell\x07 and escape\x1b[0m",
        [["Bell\x07 and escape\x1b[0m"]],
    ),
    "form feed": (b"One\x0ctwo\x0bthree", [["One\x0ctwo\x0bthree"]]),
    "Unicode line ends": (
        "One\u2028two\u2029three\x85four".encode(),
        [["One\u2028two\u2029three\x85four"]],
    ),
    "emoji": ("👨‍👩‍👧 family".encode(), [["👨‍👩‍👧 family"]]),
    "right to left": ("שלום\nمرحبا".encode(), [["שלום", "مرحبا"]]),
    "Chinese": ("一句话。\n\n另一句。".encode(), [["一句话。"], ["另一句。"]]),
    "special tokens": (b"[MASK] [PAD]\n<s>", [["[MASK] [PAD]", "<s>"]]),
    "ten megabytes in a line": (b"a " * 5_000_000, [["a " * 4_999_999 + "a"]]),
    "a megabyte without a space": (b"a" * 2**20, [["a" * 2**20]]),
    "a character across buffers": (
        b"x" * (2**16 - 1) + "é".encode() + b"\nTwo.",
        [["x" * (2**16 - 1) + "é", "Two."]],
    ),
    "CRLF across buffers": (
        b"x" * (2**16 - 1) + b"\r\nTwo.",
        [["x" * (2**16 - 1), "Two."]],
    ),
    "a hundred thousand blank lines": (b"\n" * 100_000 + b"One.", [["One."]]),
}

# (name of the file, its bytes, what the error says)
REFUSED = {
    "UTF-16": ("a.txt", "One.".encode("utf-16"), "a.txt:1: the file is UTF-16"),
    "UTF-16 BE": ("a.txt", b"\xfe\xff\0O\0n\0e", "a.txt:1: the file is UTF-16"),
    "UTF-16 unmarked": ("a.txt", "One.".encode("utf-16-le"), "a.txt:1: .*not text"),
    "UTF-32": ("a.txt", "One.".encode("utf-32"), "a.txt:1: the file is UTF-32"),
    "picture": ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(64), "a.png:1: .*not text"),
    "NULs alone": ("a.txt", bytes(1000), "a.txt:1: .*not text"),
    "random bytes": ("a.bin", bytes(range(256)) * 9, "a.bin:1: .*not text"),
    "gzip without its name": ("a.txt", gzip.compress(TEXT * 99), "not text"),
    "plain text named gz": ("a.gz", TEXT, "a.gz:1: .*damaged"),
    "gzip cut short": ("a.gz", gzip.compress(TEXT * 9999)[:-9], r"a.gz:\d+: .*cut"),
    "gzip cut in its head": ("a.gz", gzip.compress(TEXT)[:6], "a.gz:1: .*damaged"),
    "gzip with a wrong sum": (
        "a.gz",
        gzip.compress(TEXT)[:-8] + bytes(8),
        r"a.gz:\d+: .*damaged",
    ),
    "gzip and rubbish": ("a.gz", gzip.compress(TEXT) + b"rubbish", "damaged"),
}


def read(path, **options):
    report = CorpusReport()
    documents = list(read_documents(path, report=report, **options))
    assert report.documents == len(documents)
    assert report.sentences == sum(map(len, documents))
    assert report.lines == (
        report.text_lines + report.blank_lines + report.dropped.total()
    )
    return documents, report


@pytest.mark.parametrize("name", READ)
def test_odd_files_are_read(name, tmp_path):
    content, documents = READ[name]
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    result, report = read(path)
    assert result == documents
    assert report.bytes == len(content)
    repaired = sum(s.count("\ufffd") for document in documents for s in document)
    assert report.repaired["bytes that are not UTF-8"] == repaired
    assert report.repaired["NUL characters"] == content.count(b"\0")


@pytest.mark.parametrize("name", REFUSED)
def test_bad_files_are_refused(name, tmp_path):
    file, content, message = REFUSED[name]
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read(path)


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    whole = zstandard.compress(TEXT * 5000)
    path = tmp_path / "a.zst"
    path.write_bytes(whole + zstandard.compress(b"\nFour.\n"))
    documents, report = read(path)
    assert len(documents) == 5002 and documents[-1] == ["Four."]
    assert report.bytes == 5000 * len(TEXT) + 7
    for bad in (whole[:-3], whole[:8], TEXT, whole + b"rubbish"):
        path.write_bytes(bad)
        with pytest.raises(CorpusError, match=r"a.zst:\d+: .*damaged"):
            read(path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs permissions")
def test_a_file_without_permission_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"a.txt:1: cannot be read"):
        read(path)


def test_standard_input(tmp_path, monkeypatch):
    path = tmp_path / "input"
    path.write_bytes(TEXT)
    with path.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert list(read_documents("-")) == DOCUMENTS


def test_free_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("One sentence, on\ntwo lines. A second.\n\nNew document.\n")
    documents, report = read(path, splitter=split_sentences)
    assert documents == [
        ["One sentence, on two lines.", "A second."],
        ["New document."],
    ]
    assert report.text_lines == 3 and report.sentences == 3


def test_there_are_enough_odd_files():
    assert len(READ) + len(REFUSED) >= 50
