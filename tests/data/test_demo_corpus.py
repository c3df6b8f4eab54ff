import pytest

from keras_tta.data import python_documentation

pytestmark = pytest.mark.agnostic


def test_python_documentation_is_prose():
    documents = python_documentation()
    sentences = [sentence for document in documents for sentence in document]
    assert len(documents) > 50
    assert sum(len(sentence.split()) for sentence in sentences) > 30_000
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert sentence[-1] in ".?!:" and sentence == sentence.strip()
        assert not any(mark in sentence for mark in ("::=", ">>>", '"', "\n"))


def test_python_documentation_is_always_the_same():
    assert python_documentation() == python_documentation()
