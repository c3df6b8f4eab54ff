"""The corpus that every Python install carries: its own documentation."""

import ast
import re
import sysconfig
from pathlib import Path

from keras_tta.data.corpus import Document
from keras_tta.data.sentences import split_sentences

MIN_WORDS = 4
CODE = re.compile(r"::=|--|==| : |>>>|[{}|\\<>@^=\"]|\.\.\. |\]\[")
NOTES = ("New in version", "Changed in version", "PEP ")
WORD = re.compile(r"[A-Za-z]{2,}")
NOT_READ = {"site-packages", "test", "tests", "idlelib", "lib2to3", "encodings"}


def python_documentation(docstrings: bool = False) -> list[Document]:
    """Prose of the Python language reference, one document a topic.

    Every Python install carries the reference in `pydoc_data.topics`. Titles, grammar,
    tables, code and change notes are left out, and the mark-up of inline code is taken
    off, so that English sentences are left. The text differs a little from one Python
    version to the next; for one version it is always the same.

    Args:
        docstrings: bool, whether the docstrings of the standard library follow, one
            document a module. They are read from the sources, nothing is imported, and
            there are several times as many words of them. Defaults to `False`.

    Example:
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

    texts = [topics[topic] for topic in sorted(topics)]
    if docstrings:
        texts += _docstrings(Path(sysconfig.get_path("stdlib")))
    documents, seen = [], set()
    for text in texts:
        # Sections are quoted in others: a sentence is kept where it comes first.
        sentences = [s for s in dict.fromkeys(_prose(text)) if s not in seen]
        seen.update(sentences)
        if sentences:
            documents.append(sentences)
    return documents


def _docstrings(folder):
    """The docstrings of every module below a folder, tests and add-ons left out."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    for path in sorted(folder.rglob("*.py")):
        if not NOT_READ.isdisjoint(path.relative_to(folder).parts):
            continue
        nodes = ast.walk(ast.parse(path.read_bytes()))
        found = [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
        yield "\n\n".join(filter(None, found))


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
