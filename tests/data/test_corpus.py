import gzip

import pytest

from keras_tta.data import CorpusError, CorpusReport, read_documents
from keras_tta.data.corpus import find_files

pytestmark = pytest.mark.agnostic

TWO_DOCUMENTS = [["One.", "Two."], ["Three."]]


def read(folder, content, name="corpus.txt", **options):
    path = folder / name
    path.write_bytes(content)
    report = CorpusReport()
    documents = list(read_documents(path, report=report, **options))
    assert report.documents == len(documents)
    assert report.sentences == sum(map(len, documents))
    assert report.lines == (
        report.text_lines + report.blank_lines + report.dropped.total()
    )
    return documents, report


def test_gzip(tmp_path):
    documents, report = read(
        tmp_path, gzip.compress(b"One.\nTwo.\n\nThree.\n"), "corpus.txt.gz"
    )
    assert documents == TWO_DOCUMENTS
    assert report.bytes == 18


def test_bytes_that_are_not_utf8(tmp_path):
    content = b"Good.\nCaf\xe9 \xff.\nFine.\n"
    documents, report = read(tmp_path, content)
    assert documents == [["Good.", "Caf\ufffd \ufffd.", "Fine."]]
    assert report.repaired == {"bytes that are not UTF-8": 2}

    documents, report = read(tmp_path, content, errors="drop")
    assert documents == [["Good.", "Fine."]]
    assert report.dropped == {"lines with bytes that are not UTF-8": 1}

    with pytest.raises(CorpusError, match=r"corpus\.txt:2: byte 0xe9 is not UTF-8"):
        read(tmp_path, content, errors="raise")


def test_long_documents_can_be_cut(tmp_path):
    documents, _ = read(tmp_path, b"1\n2\n3\n4\n5\n\n6\n7\n8\n", max_sentences=2)
    assert documents == [["1", "2"], ["3", "4"], ["5"], ["6", "7"], ["8"]]


def test_files_folders_and_patterns(tmp_path):
    for name in ("b.txt", "a.txt", "deep/er/c.txt", ".hidden", "odd[1].txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")

    def names(paths):
        return [path.removeprefix(f"{tmp_path}/") for path in find_files(paths)]

    everything = ["a.txt", "b.txt", "deep/er/c.txt", "odd[1].txt"]
    assert names(tmp_path) == everything
    assert names(f"{tmp_path}/*.txt") == ["a.txt", "b.txt", "odd[1].txt"]
    assert names(f"{tmp_path}/**/*.txt") == everything
    assert names([tmp_path / "b.txt", tmp_path]) == [
        "b.txt",
        *everything[:1],
        *everything[2:],
    ]
    assert names(tmp_path / "odd[1].txt") == ["odd[1].txt"]


@pytest.mark.parametrize("paths", ["missing/*.txt", "missing.txt", [], "."])
def test_no_files(tmp_path, paths, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="No file matches|No corpus files"):
        read_documents(paths)


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="errors"):
        read_documents(tmp_path, errors="ignore")
    with pytest.raises(ValueError, match="max_sentences"):
        read_documents(tmp_path, max_sentences=0)
