import gzip
import json

import matplotlib.image
import numpy as np
import pytest

from keras_tta.evaluation import (
    Hypothesis,
    NBestList,
    nbest_word_error_rates,
    read_nbest_lists,
    word_errors,
)

pytestmark = pytest.mark.agnostic

LISTS = [
    NBestList(
        "u1",
        [Hypothesis("a cat sad", -1.0), Hypothesis("a cat sat", -2.0)],
        "a cat sat",
    ),
    NBestList("u2", [Hypothesis("so", -3.0), Hypothesis("", -1.0)], "so"),
    NBestList("u3", [Hypothesis("the dog", 0.0)], "a big dog"),
]


def test_substitutions_deletions_and_insertions_count_one_each():
    errors, words = word_errors(
        ["a b c", "a b c", "a b c", "", "a", "A  b"],
        ["a x c", "b c", "a b c d e", "x", "", "a b"],
    )
    assert errors.tolist() == [1, 1, 2, 1, 1, 1]
    assert words.tolist() == [3, 3, 3, 0, 1, 2]
    assert word_errors([], [])[0].tolist() == []


def test_rates_are_of_all_words():
    result = nbest_word_error_rates(LISTS, {"first": [0, 0, 0]})
    # The 1-best are "a cat sad", "" and "the dog".
    assert result.wer == {"1-best": 4 / 7, "first": 3 / 7, "oracle": 2 / 7}
    assert result.figures["words"] == 7
    assert result.per_utterance[1] == {
        "utterance": "u2",
        "words": 1,
        "1-best": 1,
        "first": 0,
        "oracle": 0,
    }


def test_intervals_hold_the_rate_and_shrink_with_more_utterances():
    few = nbest_word_error_rates(LISTS).rows[0]
    assert few["low"] < few["wer"] < few["high"]
    many = nbest_word_error_rates(LISTS * 50).rows[0]
    assert many["wer"] == few["wer"]
    assert many["high"] - many["low"] < 0.3 * (few["high"] - few["low"])
    # The middle 95 % of a normal distribution, for a ratio of sums over 150 utterances.
    errors, words = np.array([1, 1, 2]), np.array([3, 1, 3])
    spread = np.std(errors - 4 / 7 * words) * np.sqrt(150) / (words.sum() * 50)
    assert many["high"] - many["low"] == pytest.approx(2 * 1.96 * spread, rel=0.15)


def test_a_difference_is_taken_within_utterances():
    result = nbest_word_error_rates(LISTS * 50)
    saved, low, high = result.difference("oracle", "1-best")
    assert saved == pytest.approx(2 / 7) and low < saved < high and low > 0
    assert result.difference("1-best", "1-best") == (0, 0, 0)


def test_it_prints_and_is_kept(tmp_path):
    result = nbest_word_error_rates(LISTS)
    assert "57.14%" in str(result) and "-50.0%" in str(result)
    result.to_csv(tmp_path / "wer.csv")
    assert (tmp_path / "wer.csv").read_text().splitlines()[1].startswith("1-best,0.57")
    result.plot(tmp_path / "wer.png")
    assert matplotlib.image.imread(tmp_path / "wer.png").std() > 0.05


def test_references_are_needed():
    with pytest.raises(ValueError, match="utterance 'u' has none"):
        nbest_word_error_rates([NBestList("u", [Hypothesis("a", 0.0)])])
    with pytest.raises(ValueError, match="Received: 0 lists"):
        nbest_word_error_rates([])


def test_both_formats_read_alike(tmp_path):
    rows = [
        {
            "utt": nbest.utterance,
            "ref": nbest.reference,
            "hyps": [hypothesis._asdict() for hypothesis in nbest.hypotheses],
        }
        for nbest in LISTS
    ]
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "lists.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, rows)).encode())
    )
    one_object = {
        row["utt"]: {
            "ref": row["ref"],
            # Written out of order, as sorted keys are: hyp_10 before hyp_2.
            **{
                f"hyp_{8 + i}": hyp for i, hyp in reversed([*enumerate(row["hyps"], 1)])
            },
        }
        for row in rows
    }
    text = json.dumps(one_object, indent=1)
    (tmp_path / "lists.json").write_text(text)
    compressed = gzip.compress(text.encode())
    (tmp_path / "lists.json.gz").write_bytes(compressed)
    for name in ("lists.jsonl", "lists.jsonl.gz", "lists.json", "lists.json.gz"):
        assert list(read_nbest_lists(tmp_path / name)) == LISTS
    (tmp_path / "lists.json.gz").write_bytes(compressed[:-9])
    with pytest.raises(ValueError, match="lists.json.gz: the compressed .* cut short"):
        list(read_nbest_lists(tmp_path / "lists.json.gz"))


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    path = tmp_path / "lists.json.zst"
    path.write_bytes(zstandard.compress(b'{"u": {"hyp_1": {"text": "a", "score": 1}}}'))
    assert list(read_nbest_lists(path)) == [NBestList("u", [Hypothesis("a", 1.0)])]


def test_reading_streams(tmp_path):
    path = tmp_path / "lists.jsonl"
    path.write_text('{"utt": 7, "hyps": [{"text": " a ", "score": 1}]}\n{')
    lists = read_nbest_lists(path)
    assert next(lists) == NBestList("7", [Hypothesis("a", 1.0)], None)
    with pytest.raises(ValueError, match="lists.jsonl:2: the line is not JSON"):
        next(lists)


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"hyps": [{"text": "a", "score": 1}]}', "must have a name"),
        ('{"utt": "u", "hyps": []}', "at least one hypothesis"),
        ('{"utt": "u", "hyps": "a"}', "at least one hypothesis"),
        ('{"utt": "u", "hyps": [{"text": "a"}]}', "hypothesis 0 must have"),
        ('{"utt": "u", "hyps": [{"text": "a", "score": NaN}]}', "finite number"),
        ('{"utt": "u", "hyps": [{"text": "a", "score": "1"}]}', "finite number"),
        ('{"utt": "u", "hyps": ["a"]}', "hypothesis 0 must have"),
        ('{"utt": "u", "ref": 3, "hyps": [{"text": "a", "score": 1}]}', "`ref` must"),
    ],
)
def test_errors_name_the_line(tmp_path, line, message):
    path = tmp_path / "lists.jsonl"
    path.write_text("\n" + line)
    with pytest.raises(ValueError, match=f"lists.jsonl:2: .*{message}"):
        list(read_nbest_lists(path))


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"u": {"ref": "a"}}', "utterance 'u': .*at least one"),
        ('{"u": [1]}', "utterance 'u': expected an object"),
        ("[1]", "expected one JSON object"),
        ("{}\n{}", "lists.json:2: the file is not JSON"),
    ],
)
def test_errors_of_mlm_scoring_s_format_name_the_utterance(tmp_path, text, message):
    path = tmp_path / "lists.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        list(read_nbest_lists(path))
