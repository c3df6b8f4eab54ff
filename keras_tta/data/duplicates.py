"""Duplicates: sentences and documents that were there before."""

import hashlib
from collections.abc import Iterable, Iterator

from keras_tta.data.cleaning import CleaningReport
from keras_tta.data.corpus import Document
from keras_tta.data.optional_packages import import_optional


def drop_exact_duplicates(
    documents: Iterable[Document],
    unit: str = "document",
    report: CleaningReport | None = None,
) -> Iterator[Document]:
    """Keep the first of equal documents, or the first of equal sentences.

    Case and the amount of white space make no difference. 16 bytes of hash are kept in
    memory for everything seen.

    Args:
        documents: lists of sentences.
        unit: `"document"` or `"sentence"`; a document without sentences left is
            dropped.
        report: a `CleaningReport` to fill.

    Example:
    ```python
    from keras_tta.data import drop_exact_duplicates

    documents = [["One.", "Two."], ["one. ", "TWO."], ["Two.", "Three."]]
    assert list(drop_exact_duplicates(documents)) == [documents[0], documents[2]]
    by_sentence = list(drop_exact_duplicates(documents, unit="sentence"))
    assert by_sentence == [["One.", "Two."], ["Three."]]
    ```
    """
    if unit not in ("document", "sentence"):
        raise ValueError(
            f"`unit` must be 'document' or 'sentence'. Received: unit={unit!r}"
        )
    return _drop_exact(documents, unit, CleaningReport() if report is None else report)


def _drop_exact(documents, unit, report):
    seen = set()

    def is_new(text):
        text = " ".join(text.split()).casefold().encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=16).digest()
        new = digest not in seen
        seen.add(digest)
        return new

    name = f"duplicate {unit}"
    for document in documents:
        report.documents += 1
        report.sentences += len(document)
        if unit == "sentence":
            kept = [sentence for sentence in document if is_new(sentence)]
            report.dropped_sentences[name] += len(document) - len(kept)
            document = kept
        if document and (unit == "sentence" or is_new("\n".join(document))):
            report.keep_document(document)
            yield document
        else:
            report.drop_document(name, document)


def drop_near_duplicates(
    documents: Iterable[Document],
    threshold: float = 0.8,
    shingle_words: int = 5,
    num_permutations: int = 128,
    report: CleaningReport | None = None,
) -> Iterator[Document]:
    """Keep the first of documents that say nearly the same.

    Documents are compared by MinHash with banding (Broder, 1997; the package
    datasketch): of two documents whose sets of `shingle_words` consecutive words have
    a Jaccard similarity well above `threshold`, the second is dropped with high
    probability. Signatures are kept in memory, about a kilobyte a document.

    Raises:
        ImportError: datasketch is not installed.

    Example:
    ```python
    from keras_tta.data import drop_near_duplicates

    text = [f"Sentence number {i} of a long text." for i in range(50)]
    documents = [text, [*text[:-1], "Another end."], ["Something else altogether."]]
    assert list(drop_near_duplicates(documents)) == [documents[0], documents[2]]
    ```
    """
    datasketch = import_optional("datasketch", "data", "`drop_near_duplicates`")
    report = CleaningReport() if report is None else report
    index = datasketch.MinHashLSH(threshold=threshold, num_perm=num_permutations)
    return _drop_near(
        documents, index, datasketch.MinHash, num_permutations, shingle_words, report
    )


def _drop_near(documents, index, min_hash, num_permutations, shingle_words, report):
    for number, document in enumerate(documents):
        report.documents += 1
        report.sentences += len(document)
        signature = min_hash(num_perm=num_permutations, seed=1)
        signature.update_batch(_shingles(document, shingle_words))
        if index.query(signature):
            report.drop_document("near-duplicate document", document)
        else:
            index.insert(number, signature)
            report.keep_document(document)
            yield document


def _shingles(document, size):
    words = " ".join(document).casefold().split()
    count = max(1, len(words) - size + 1)
    return [
        " ".join(words[i : i + size]).encode("utf-8", "surrogatepass")
        for i in range(count)
    ]
