import gzip
import math

import matplotlib.image
import pytest

from keras_tta.evaluation import pseudo_perplexity

pytestmark = pytest.mark.agnostic

TEXTS = ["ab x", "ab abcd", "?"]


def test_by_token_and_by_word(letter_scorer):
    result = pseudo_perplexity(letter_scorer, TEXTS)
    # Ten tokens: nine of log(2) nats and one of three times as much. Five words.
    nats = 12 * math.log(2)
    assert result.by_token == pytest.approx(math.exp(nats / 10))
    assert result.by_word == pytest.approx(math.exp(nats / 5))
    assert result.figures["tokens"] == 10 and result.figures["words"] == 5
    assert result.figures["unknown_tokens"] == 1
    assert result.rows[0] == {
        "nats": pytest.approx(5 * math.log(2)),
        "tokens": 3,
        "words": 2,
        "unknown": 0,
    }


def test_an_empty_text_among_others_adds_nothing(letter_scorer):
    with_empty = pseudo_perplexity(letter_scorer, [*TEXTS, ""])
    assert with_empty.by_word == pseudo_perplexity(letter_scorer, TEXTS).by_word
    for texts in ([], [""]):
        with pytest.raises(ValueError, match="must hold words"):
            pseudo_perplexity(letter_scorer, texts)


def test_a_file_has_a_text_a_line(letter_scorer, tmp_path):
    path = tmp_path / "texts.gz"
    path.write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    result = pseudo_perplexity(letter_scorer, path)
    assert result.by_token == pseudo_perplexity(letter_scorer, TEXTS).by_token


def test_it_prints_and_is_kept(letter_scorer, tmp_path):
    result = pseudo_perplexity(letter_scorer, TEXTS)
    assert f"{result.by_word:,.3f}" in str(result)
    result.to_csv(tmp_path / "texts.csv")
    assert len((tmp_path / "texts.csv").read_text().splitlines()) == 4
    result.plot(tmp_path / "texts.png")
    assert matplotlib.image.imread(tmp_path / "texts.png").std() > 0.01
