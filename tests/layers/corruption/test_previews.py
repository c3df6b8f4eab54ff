import io

import numpy as np
import pytest
from rich.console import Console

from keras_tta.layers import corruption

pytestmark = pytest.mark.agnostic

WORDS = "we saw a cat and [it] saw us .".split()
MASKERS = {
    "TokenMasking": corruption.TokenMasking(99, 4, mask_rate=0.3),
    "SpanCorruption": corruption.SpanCorruption(200, noise_density=0.3),
    "TokenDenoising": corruption.TokenDenoising(200),
    "Deshuffling": corruption.Deshuffling(200),
    "PrefixLM": corruption.PrefixLM(200),
    "UL2Denoising": corruption.UL2Denoising(200),
    "MASSDenoising": corruption.MASSDenoising(200, 4),
    "BARTDenoising": corruption.BARTDenoising(200, 4),
}


def decode(token_id):
    return WORDS[token_id - 10] if 10 <= token_id < 19 else f"<{token_id}>"


def shown(masker, **kwargs):
    console = Console(width=79, record=True, file=io.StringIO())
    corruption.preview(masker, decode=decode, console=console, **kwargs)
    return console.export_text()


def lines_of(text):
    """The text after each title of a line, which is what follows a bar."""
    cells = [line.split("│")[1:3] for line in text.splitlines() if "│" in line]
    return {title.strip(): content.split() for title, content in cells}


@pytest.mark.parametrize("name", MASKERS)
def test_any_masker_can_be_looked_at(name):
    masker = MASKERS[name]
    token_ids = np.arange(10, 19)
    text = shown(masker, token_ids=token_ids, key=3)
    assert name in text
    lines = lines_of(text)
    batch = masker.numpy(token_ids, key=3)
    assert lines["text"] == WORDS
    if name == "TokenMasking":
        assert lines["reads"] == [decode(i) for i in batch["token_ids"]]
        predicted = [w for w in lines["predicts"] if w != "·"]
        assert predicted == [decode(i) for i in batch["labels"]]
        return
    read = batch["encoder_token_ids"][batch["encoder_padding_mask"]]
    assert lines["reads"] == [decode(i) for i in read]
    labels = batch["labels"][batch["sample_weight"] == 1]
    assert lines["predicts"] == [decode(i) for i in labels]


def test_rows_padding_and_words():
    token_ids = np.array([[10, 11, 12, 0], [13, 14, 0, 0]])
    masker = corruption.TokenMasking(99, 4, whole_word=True)
    text = shown(
        masker,
        token_ids=token_ids,
        padding_mask=token_ids != 0,
        word_ids=np.array([[0, 0, 0, 0], [0, 1, 1, 1]]),
    )
    assert text.count("text") == 2
    assert "<0>" not in text
