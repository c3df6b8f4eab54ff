"""The corpus that every Python install carries: the language reference."""

import re

from keras_tta.data.corpus import Document
from keras_tta.data.sentences import split_sentences

MIN_WORDS = 4
CODE = re.compile(r"::=|>>>|[{}|\\<>@^=\"]|\.\.\. |\]\[")
NOTES = ("New in version", "Changed in version", "PEP ")
WORD = re.compile(r"[A-Za-z]{2,}")


def python_documentation() -> list[Document]:
    """Prose of the Python language reference, one document a topic.

    Every Python install carries the reference in `pydoc_data.topics`. Titles, grammar,
    tables, code and change notes are left out, and the mark-up of inline code is taken
    off, so that about 38,000 words of English sentences are left. The text differs a
    little from one Python version to the next; for one version it is always the same.

    ```python
    from keras_tta.data import python_documentation

    documents = python_documentation()
    assert len(documents) > 50
    assert all(
        sentence[-1] in ".?!:" for document in documents for sentence in document
    )
    ```
    """
    from pydoc_data.topics import topics

    documents, seen = [], set()
    for topic in sorted(topics):
        # Some topics are sections of others: a sentence is kept where it comes first.
        sentences = [s for s in dict.fromkeys(_prose(topics[topic])) if s not in seen]
        seen.update(sentences)
        if sentences:
            documents.append(sentences)
    return documents


def _prose(topic):
    for paragraph in re.split(r"\n\s*\n", topic):
        for sentence in split_sentences(_strip_markup(paragraph)):
            words = WORD.findall(sentence)
            if (
                len(words) >= MIN_WORDS
                and sentence[-1] in ".?!:"
                and (sentence[0].isalnum() or sentence[0] == "_")
                and not CODE.search(sentence)
                and not sentence.startswith(NOTES)
            ):
                yield sentence


def _strip_markup(paragraph):
    paragraph = re.sub(r"^\s*(\* |\d+\. )", "", paragraph)
    paragraph = re.sub(r"(?<=\w-)\n\s*", "", paragraph)
    paragraph = re.sub(r"\[\d+\]", "", paragraph)
    paragraph = re.sub(r"\*+([^*\s][^*]*?)\*+", r"\1", paragraph)
    return re.sub(r"\"([^\"\n]*(?:\n[^\"\n]*)?)\"", r"\1", paragraph)
