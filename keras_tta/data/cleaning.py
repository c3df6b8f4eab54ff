"""Cleaning: named rules that drop lines and documents, and count what they drop."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from keras_tta.checks import check_one_of
from keras_tta.data.corpus import Document
from keras_tta.data.sentences import split_sentences

CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
POLICIES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)
UNITS = ("line", "document")


@dataclass
class CleaningReport:
    """What cleaning kept and dropped: nothing goes missing.

    `documents == kept_documents + dropped_documents.total()`, and the same for
    sentences, where those of a dropped document are counted under the rule that
    dropped it. `rewritten` counts the sentences that a rule changed.

    Example:
    ```python
    from keras_tta.data import CleaningReport, clean_documents

    report = CleaningReport()
    list(clean_documents([["A menu", "Another"]], report=report))
    assert report.dropped_documents == {"no line is left": 1}
    assert report.dropped_sentences["line does not end a sentence"] == 2
    ```
    """

    documents: int = 0
    sentences: int = 0
    kept_documents: int = 0
    kept_sentences: int = 0
    dropped_documents: Counter = field(default_factory=Counter)
    dropped_sentences: Counter = field(default_factory=Counter)
    rewritten: Counter = field(default_factory=Counter)

    def __str__(self):
        text = (
            f"kept {self.kept_documents:,} of {self.documents:,} documents and "
            f"{self.kept_sentences:,} of {self.sentences:,} sentences"
        )
        for unit, counts in (
            ("documents", self.dropped_documents),
            ("sentences", self.dropped_sentences),
            ("sentences rewritten", self.rewritten),
        ):
            for name, number in counts.most_common():
                text += f"\n  {number:>10,} {unit}: {name}"
        return text

    def drop_document(self, name, document):
        self.dropped_documents[name] += 1
        self.dropped_sentences[name] += len(document)

    def keep_document(self, document):
        self.kept_documents += 1
        self.kept_sentences += len(document)


@dataclass(frozen=True)
class CleaningRule:
    """One thing that cleaning checks.

    Args:
        name: what the report calls it.
        apply: a function of one line (or of the document's lines, see `reads`) that
            returns it, changed or not, to keep it, or `None` to drop it.
        reads: `"line"` or `"document"`. Rules that read documents see the lines that
            all line rules have kept.
        drops: `"line"` or `"document"`: what `None` drops, of a rule that reads lines.

    Raises:
        ValueError: `reads` or `drops` is neither.

    Example:
    ```python
    from keras_tta.data import CleaningRule, clean_documents

    quiet = CleaningRule("shouting", lambda line: None if line.isupper() else line)
    assert list(clean_documents([["Hello.", "HELLO!"]], [quiet])) == [["Hello."]]
    ```
    """

    name: str
    apply: Callable
    reads: str = "line"
    drops: str = "line"

    def __post_init__(self):
        check_one_of(self, UNITS, reads=self.reads, drops=self.drops)


def clean_documents(
    documents: Iterable[Document],
    rules: Iterable[CleaningRule] | None = None,
    report: CleaningReport | None = None,
) -> Iterator[Document]:
    """Apply rules to documents, C4's by default; count what every rule drops.

    Rules are applied to a line in their order, the first that drops it ends it: what a
    dropped line says can no longer drop its document. Rules that read documents come
    after all lines.

    Args:
        documents: lists of lines.
        rules: `CleaningRule`s. Defaults to `c4_rules()`.
        report: a `CleaningReport` to fill.

    Yields:
        Documents with at least one line.

    Example:
    ```python
    from keras_tta.data import CleaningReport, clean_documents

    report = CleaningReport()
    page = ["A menu", "This is the first sentence.", "Here is the second one.[2]"]
    page += ["And this is the third.", "We use cookies on this page."]
    (cleaned,) = clean_documents([page, ["function() { return }."]], report=report)
    assert cleaned[1] == "Here is the second one." and len(cleaned) == 3
    assert report.dropped_sentences["line does not end a sentence"] == 1
    assert report.kept_documents == 1
    ```
    """
    rules = c4_rules() if rules is None else tuple(rules)
    report = CleaningReport() if report is None else report
    line_rules = [rule for rule in rules if rule.reads == "line"]
    document_rules = [rule for rule in rules if rule.reads == "document"]
    for document in documents:
        report.documents += 1
        report.sentences += len(document)
        cleaned = _clean_lines(document, line_rules, report)
        if cleaned is not None:
            cleaned = _clean_document(cleaned, document_rules, report)
        if cleaned is not None:
            report.keep_document(cleaned)
            yield cleaned


def _clean_lines(document, rules, report):
    """The lines that are kept, or None if a line's rule drops the document."""
    kept, dropped = [], Counter()
    for line in document:
        for rule in rules:
            result = rule.apply(line)
            if result is None and rule.drops == "document":
                report.drop_document(rule.name, document)
                return None
            if result is None:
                dropped[rule.name] += 1
                break
            report.rewritten[rule.name] += result != line
            line = result
        else:
            kept.append(line)
    report.dropped_sentences += dropped
    if not kept:
        report.drop_document("no line is left", kept)
        return None
    return kept


def _clean_document(document, rules, report):
    for rule in rules:
        result = rule.apply(document)
        if result is None:
            report.drop_document(rule.name, document)
            return None
        report.dropped_sentences[rule.name] += len(document) - len(result)
        document = result
    return document


def c4_rules(
    bad_words: Iterable[str] = (),
    min_words: int = 5,
    min_sentences: int = 3,
    max_word_length: int = 1000,
    max_characters: int = 190_000,
) -> tuple[CleaningRule, ...]:
    """The page rules of C4 (Raffel et al., 2020, section 2.2), in its code's order.

    Two things differ. `bad_words` is empty: choose a list that fits the language and
    the purpose. And a bad word counts at the start and the end of a line too, where
    C4's pattern overlooks it. C4 goes on to drop sentences it has seen before
    (`drop_exact_duplicates`) and pages that are not English (`keep_languages`).

    Example:
    ```python
    from keras_tta.data import c4_rules, clean_documents

    rules = c4_rules(bad_words=["darn"], min_sentences=1)
    pages = [["Well darn, that is bad."], ["This one is quite fine."]]
    assert list(clean_documents(pages, rules)) == pages[1:]
    ```
    """
    rules = [
        _line(
            "word is too long",
            lambda s: len(max(s.split(), key=len, default="")) <= max_word_length,
        ),
        CleaningRule("citation marks", lambda line: CITATION.sub("", line).strip()),
        _line("line does not end a sentence", _ends_sentence),
        _line("line is too short", lambda s: len(s.split()) >= min_words),
        _page("lorem ipsum", lambda s: "lorem ipsum" not in s.lower()),
        _line("javascript", lambda s: "javascript" not in s.lower()),
        _page("curly bracket", lambda s: "{" not in s),
        _line("policy", lambda s: not any(p in s.lower() for p in POLICIES)),
    ]
    bad_words = sorted(map(re.escape, bad_words))
    if bad_words:
        bad = re.compile(rf"(?<![^\W_])(?:{'|'.join(bad_words)})(?![^\W_])", re.I)
        rules.append(_page("bad word", lambda s: not bad.search(s)))
    return (
        *rules,
        _document(
            "too few sentences",
            lambda lines: sum(len(split_sentences(s)) for s in lines) >= min_sentences,
        ),
        _document(
            "document is too long", lambda lines: sum(map(len, lines)) <= max_characters
        ),
    )


def keep_languages(
    languages: Iterable[str],
    detect: Callable[[str], tuple[str, float]],
    min_probability: float = 0.99,
) -> CleaningRule:
    """A rule that keeps documents in some languages, by a detector of your choice.

    Args:
        languages: codes as `detect` gives them.
        detect: from a text to (language, probability), such as a wrapped langdetect,
            fastText or CLD3.
        min_probability: float, below which a document is dropped.

    Example:
    ```python
    from keras_tta.data import clean_documents, keep_languages


    def detect(text):
        return ("en", 1.0) if text.isascii() else ("other", 1.0)


    rules = [keep_languages(["en"], detect)]
    assert list(clean_documents([["Yes."], ["是。"]], rules)) == [["Yes."]]
    ```
    """
    languages = frozenset(languages)

    def is_kept(lines):
        language, probability = detect("\n".join(lines))
        return language in languages and probability >= min_probability

    return _document("language", is_kept)


def _line(name, is_kept):
    return CleaningRule(name, lambda line: line if is_kept(line) else None)


def _page(name, is_kept):
    return CleaningRule(
        name, lambda line: line if is_kept(line) else None, drops="document"
    )


def _document(name, is_kept):
    return CleaningRule(
        name,
        lambda lines: lines if is_kept(lines) else None,
        reads="document",
        drops="document",
    )


def _ends_sentence(line):
    return line.endswith((".", "?", "!", '"')) and not line.endswith("...")
