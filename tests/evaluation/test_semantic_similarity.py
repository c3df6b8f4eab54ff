import json
import sys

import matplotlib.image
import numpy as np
import pytest

from keras_tta.evaluation import (
    SentencePair,
    read_sentence_pairs,
    semantic_similarity,
)

pytestmark = pytest.mark.agnostic


class Angles:
    """A text is an angle in degrees."""

    def encode(self, texts, scale=1.0):
        radians = np.radians([float(text) for text in texts])
        return scale * np.stack([np.cos(radians), np.sin(radians)], axis=1)


PAIRS = [("0", "0", 5.0), ("0", "60", 3.0), ("30", "120", 1.0), ("0", "180", 0.0)]


def test_both_correlations_of_the_cosine():
    result = semantic_similarity(Angles(), PAIRS, scale=7.0)
    cosines = np.array([1, 0.5, 0, -1])
    np.testing.assert_allclose(result.similarities, cosines, atol=1e-12)
    pearson = np.corrcoef(cosines, [5, 3, 1, 0])[0, 1]
    assert result.pearson == pytest.approx(pearson)
    assert result.spearman == pytest.approx(1.0)
    assert result.pearson < 0.97


def test_a_zero_vector_is_like_nothing():
    class Zero:
        def encode(self, texts):
            return np.array([[len(text), 0.0] for text in texts])

    result = semantic_similarity(Zero(), [("a", "b", 1), ("", "b", 0), ("", "", 0)])
    assert result.similarities.tolist() == [1, 0, 0]


def test_the_files_of_sts_b_and_sick(tmp_path):
    sts, sick = tmp_path / "sts.csv", tmp_path / "sick.txt"
    sts.write_text(
        "g\tf\ty\t01\t4.50\tIt is \"so.\tSo it's.\n"
        "g\tf\ty\t02\t0.0\tA b.\tC, d.\tsource\tsource\n"
    )
    assert read_sentence_pairs(sts) == [
        SentencePair('It is "so.', "So it's.", 4.5),
        SentencePair("A b.", "C, d.", 0.0),
    ]
    sick.write_bytes(
        b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
        b"4\tA b\tC d\t3.6\tNEUTRAL\r\n"
    )
    assert read_sentence_pairs(sick) == [SentencePair("A b", "C d", 3.6)]


@pytest.mark.parametrize("line", ["g\tf\ty\t1\t2.0\tone", "g\tf\ty\t1\tx\ta\tb"])
def test_errors_name_the_line(tmp_path, line):
    path = tmp_path / "sts.csv"
    path.write_text("g\tf\ty\t1\t2.0\ta\tb\n" + line)
    with pytest.raises(ValueError, match="sts.csv:2: expected columns"):
        semantic_similarity(Angles(), path)


def test_one_pair_has_no_correlation():
    with pytest.raises(ValueError, match="at least two"):
        semantic_similarity(Angles(), PAIRS[:1])


def test_scipy_is_asked_for_by_name(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[evaluation\]"'):
        semantic_similarity(Angles(), PAIRS)


def test_it_prints_and_is_kept(tmp_path):
    result = semantic_similarity(Angles(), PAIRS)
    assert f"{result.pearson:.4f}" in str(result) and "1.0000" in str(result)
    result.to_json(tmp_path / "sts.json")
    kept = json.loads((tmp_path / "sts.json").read_text())
    assert kept["pearson"] == result.pearson and len(kept["rows"]) == 4
    result.to_csv(tmp_path / "sts.csv")
    assert (tmp_path / "sts.csv").read_text().startswith("first,second,score,similar")
    result.plot(tmp_path / "sts.png")
    assert matplotlib.image.imread(tmp_path / "sts.png").std() > 0.01
