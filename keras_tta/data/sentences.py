"""Sentence splitting of free text."""

import re

ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e cf fig no vol pp al inc ltd co corp "
    "dept gen col sgt capt lt rev hon gov sen rep approx jan feb mar apr jun jul aug "
    "sep sept oct nov dec".split()
)
CJK = "\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
CLOSING = "\"'”’)\\]」』）】》〉"
# A Chinese or Japanese stop ends a sentence by itself; other stops (Arabic's and
# Devanagari's among them) end one before white space, unless lower case follows.
BOUNDARY = re.compile(
    rf"(?P<wide>[。！？｡]+[{CLOSING}]*)\s*"
    rf"|(?P<stop>[.!?…؟۔।॥]+)(?P<closing>[{CLOSING}]*)\s+"
)
LINE_BREAK = re.compile(rf"(?<=[{CJK}])[^\S\n]*\n\s*(?=[{CJK}])")
OPENING = "\"'“‘(["


def split_sentences(text: str) -> list[str]:
    """Split English, Chinese or Japanese prose into sentences.

    A full stop after a known English abbreviation or an initial does not end a
    sentence, nor does one before a lower-case letter; the wide stops 。！？ end one
    always, with the quotation marks that close after them. White space inside a
    sentence, line ends included, becomes one space, or none between Chinese characters.

    Example:
    ```python
    from keras_tta.data import split_sentences

    text = "Dr. Ada met J. Doe at 3.30 p.m. yesterday. \\"Well?\\" he asked. Yes!"
    assert split_sentences(text) == [
        "Dr. Ada met J. Doe at 3.30 p.m. yesterday.",
        '"Well?" he asked.',
        "Yes!",
    ]
    assert split_sentences("他说：“你好！”我走了。") == ["他说：“你好！”", "我走了。"]
    ```
    """
    text = " ".join(LINE_BREAK.sub("", text).split())
    sentences, start = [], 0
    for match in BOUNDARY.finditer(text):
        if _ends_sentence(text, match):
            sentences.append(text[start : match.end()].rstrip())
            start = match.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends_sentence(text, match):
    if match["wide"]:
        return True
    following = text[match.end() : match.end() + 8].lstrip(OPENING)[:1]
    if following.islower() or not following:
        return not following
    if match["stop"] != "." or match["closing"]:
        return True
    words = text[max(0, match.start() - 80) : match.start()].split()
    word = words[-1].lstrip(OPENING) if words else ""
    is_initial = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
    return not is_initial and word.lower() not in ABBREVIATIONS
