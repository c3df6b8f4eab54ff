"""Sentence splitting of free text."""

import re

ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e cf fig no vol pp al inc ltd co corp "
    "dept gen col sgt capt lt rev hon gov sen rep approx jan feb mar apr jun jul aug "
    "sep sept oct nov dec".split()
)
# A sentence ends in . ! ? … and closing quotes or brackets, before white space.
BOUNDARY = re.compile(r"([.!?…]+)([\"'”’)\]]*)\s+(?=[\"'“‘(\[]*\w)")


def split_sentences(text: str) -> list[str]:
    """Split English prose into sentences.

    A full stop after a known abbreviation or an initial does not end a sentence, nor
    does one before a lower-case letter. White space inside a sentence, line ends
    included, becomes one space.

    ```python
    from keras_tta.data import split_sentences

    text = "Dr. Ada met J. Doe at 3.30 p.m. yesterday. \\"Well?\\" he asked. Yes!"
    assert split_sentences(text) == [
        "Dr. Ada met J. Doe at 3.30 p.m. yesterday.",
        '"Well?" he asked.',
        "Yes!",
    ]
    ```
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for match in BOUNDARY.finditer(text):
        if _ends_sentence(text, match):
            sentences.append(text[start : match.end(2)])
            start = match.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends_sentence(text, match):
    following = text[match.end() :].lstrip("\"'“‘([")[:1]
    if following.islower():
        return False
    if match[1] != "." or match[2]:
        return True
    word = (
        text[: match.start()].rsplit(None, 1)[-1].lstrip("\"'“‘([")
        if match.start()
        else ""
    )
    is_initial = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
    return not is_initial and word.lower() not in ABBREVIATIONS
