import csv
import gzip
import json

import matplotlib.image
import numpy as np
import pytest

from keras_tta.evaluation import minimal_pairs

pytestmark = pytest.mark.agnostic

PAIRS = [
    {
        "sentence_good": "a b",
        "sentence_bad": "a x",
        "UID": "p",
        "linguistics_term": "m",
    },
    {
        "sentence_good": "a x",
        "sentence_bad": "a b",
        "UID": "p",
        "linguistics_term": "m",
    },
    {
        "sentence_good": "a b",
        "sentence_bad": "b a",
        "UID": "q",
        "linguistics_term": "m",
    },
    {"sentence_good": "b", "sentence_bad": "b b", "UID": "r", "linguistics_term": "n"},
]


def test_ties_count_as_wrong_and_are_counted(letter_scorer):
    result = minimal_pairs(letter_scorer, PAIRS)
    assert result.accuracy == 0.5
    assert result.figures == {"pairs": 4, "accuracy": 0.5, "ties": 1}
    assert result.by_phenomenon["m"] == {"pairs": 3, "accuracy": 1 / 3, "ties": 1}
    assert result.by_paradigm["p"] == {"pairs": 2, "accuracy": 0.5, "ties": 0}
    assert result.by_paradigm["q"] == {"pairs": 1, "accuracy": 0.0, "ties": 1}


def test_a_sentence_is_scored_once(letter_scorer):
    minimal_pairs(letter_scorer, PAIRS, normalize="words", visibility="left")
    assert sorted(letter_scorer.asked) == ["a b", "a x", "b", "b a", "b b"]
    assert letter_scorer.options == {"normalize": "words", "visibility": "left"}


def test_rounding_is_no_preference(letter_scorer):
    def score(texts, **options):
        return np.array([-20 + 1e-5 * ("x" not in text) for text in texts])

    letter_scorer.score = score
    result = minimal_pairs(letter_scorer, PAIRS[:1])
    assert result.figures == {"pairs": 1, "accuracy": 0.0, "ties": 1}


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_files(letter_scorer, tmp_path, ending):
    path = tmp_path / f"pairs.jsonl{ending}"
    text = "\n".join(map(json.dumps, PAIRS)).encode()
    if ending == ".gz":
        text = gzip.compress(text)
    elif ending == ".zst":
        text = pytest.importorskip("zstandard").compress(text)
    path.write_bytes(text)
    result = minimal_pairs(letter_scorer, path)
    assert result.rows == minimal_pairs(letter_scorer, PAIRS).rows


def test_a_file_that_is_cut_short_is_named(letter_scorer, tmp_path):
    path = tmp_path / "pairs.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(PAIRS[0]).encode())[:-9])
    with pytest.raises(ValueError, match=r"jsonl.gz:\d: the compressed .* cut short"):
        minimal_pairs(letter_scorer, path)


def test_errors_name_the_line(letter_scorer, tmp_path):
    path = tmp_path / "pairs.jsonl"
    good = json.dumps(PAIRS[0])
    for line, message in (
        (b"{", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"sentence_good": "a"}', "sentence_bad=None"),
        (b"\xff", "not UTF-8"),
    ):
        path.write_bytes(f"{good}\n\n".encode() + line)
        with pytest.raises(ValueError, match=f"pairs.jsonl:3: .*{message}"):
            minimal_pairs(letter_scorer, path)
    with pytest.raises(ValueError, match="there are none"):
        minimal_pairs(letter_scorer, [])


def test_it_prints_and_is_kept(letter_scorer, tmp_path):
    result = minimal_pairs(letter_scorer, PAIRS)
    printed = str(result)
    assert "33.3%" in printed and "all pairs" in printed and "50.0%" in printed
    result.to_csv(tmp_path / "new" / "pairs.csv")
    with open(tmp_path / "new" / "pairs.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["paradigm"] for row in rows] == ["p", "q", "r"]
    assert rows[0]["phenomenon"] == "m" and float(rows[0]["accuracy"]) == 0.5
    result.to_json(tmp_path / "pairs.json")
    kept = json.loads((tmp_path / "pairs.json").read_text())
    assert kept["accuracy"] == 0.5 and kept["rows"] == result.rows
    result.plot(tmp_path / "pairs.png")
    assert matplotlib.image.imread(tmp_path / "pairs.png").std() > 0.05
