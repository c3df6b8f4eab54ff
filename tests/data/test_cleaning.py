import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tta.data import (
    CleaningReport,
    CleaningRule,
    c4_rules,
    clean_documents,
    drop_exact_duplicates,
    drop_near_duplicates,
    keep_languages,
    python_documentation,
)

pytestmark = pytest.mark.agnostic

GOOD = [
    "This is a fine sentence.",
    "Is this one fine as well?",
    "Yes, it is also fine!",
]


def check(report):
    assert report.documents == report.kept_documents + report.dropped_documents.total()
    assert report.sentences == report.kept_sentences + report.dropped_sentences.total()


def clean(document, **options):
    report = CleaningReport()
    documents = list(clean_documents([document], c4_rules(**options), report))
    check(report)
    return (documents[0] if documents else None), report


@pytest.mark.parametrize(
    "line, name",
    [
        ("A line that just stops", "line does not end a sentence"),
        ("This line goes on and on...", "line does not end a sentence"),
        ("Four words are few.", "line is too short"),
        ("", "line does not end a sentence"),
        ("Please enable JavaScript in your browser.", "javascript"),
        ("Read our Privacy Policy before you go.", "policy"),
        ("This site uses cookies for its users.", "policy"),
        ("One word of this is " + "x" * 1001 + ".", "word is too long"),
    ],
)
def test_lines_that_c4_drops(line, name):
    document, report = clean([*GOOD, line])
    assert document == GOOD
    assert +report.dropped_sentences == {name: 1}


@pytest.mark.parametrize(
    "line, name",
    [
        ("Then Lorem Ipsum dolor sit amet.", "lorem ipsum"),
        ("It says function() { return 1 }; and stops.", "curly bracket"),
        ("Darn is the first word here.", "bad word"),
        ("The last word of this is darn.", "bad word"),
        ("Somebody said (DARN) in the middle.", "bad word"),
    ],
)
def test_documents_that_c4_drops(line, name):
    document, report = clean([*GOOD, line], bad_words=["darn"])
    assert document is None
    assert +report.dropped_documents == {name: 1}
    assert +report.dropped_sentences == {name: 4}


def test_the_order_of_the_rules():
    # A line that is dropped can no longer drop its document.
    document, report = clean([*GOOD, "{ in a menu", "darned is another word here."])
    assert document == [*GOOD, "darned is another word here."]
    assert report.dropped_sentences["curly bracket"] == 0


def test_other_rules():
    assert clean(GOOD[:2])[0] is None
    assert clean(GOOD[:2], min_sentences=2)[0] == GOOD[:2]
    assert clean(["One of them. And a second one. And a third one."])[0] is not None
    assert clean([f"{s}[12]" for s in GOOD])[0] == GOOD
    assert clean(GOOD)[1].rewritten.total() == 0
    assert clean(GOOD, max_characters=20)[0] is None
    document, report = clean(["a menu", "another"])
    assert document is None and report.dropped_documents == {"no line is left": 1}


def test_the_documentation_is_clean():
    report = CleaningReport()
    list(clean_documents(python_documentation(), report=report))
    check(report)
    assert report.kept_sentences > 0.7 * report.sentences
    assert "line is too short" in str(report)


def test_rules_of_your_own():
    rules = [
        CleaningRule("shouting", lambda line: None if line.isupper() else line),
        CleaningRule("tail", lambda lines: lines[:2], reads="document"),
    ]
    report = CleaningReport()
    (document,) = clean_documents([["a", "B", "c", "d"]], rules, report)
    assert document == ["a", "c"]
    assert report.dropped_sentences == {"shouting": 1, "tail": 1}
    check(report)


@pytest.mark.parametrize("argument", ["reads", "drops"])
def test_rules_that_read_or_drop_something_else_are_refused(argument):
    message = f"`{argument}` of CleaningRule .* Received: {argument}='page'"
    with pytest.raises(ValueError, match=message):
        CleaningRule("mine", str.strip, **{argument: "page"})


def test_languages():
    def detect(text):
        return ("zh", 0.9) if "是" in text else ("en", 0.999)

    report = CleaningReport()
    documents = [["Yes."], ["是。", "不是。"]]
    rules = [keep_languages(["en", "zh"], detect)]
    assert list(clean_documents(documents, rules, report)) == documents[:1]
    assert report.dropped_sentences["language"] == 2
    rules = [keep_languages(["zh"], detect, min_probability=0.5)]
    assert list(clean_documents(documents, rules)) == documents[1:]


@settings(max_examples=50, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.sampled_from(["A.", "a. ", "B.", "C c.", "C  C."]), max_size=4),
        max_size=8,
    ),
    unit=st.sampled_from(["document", "sentence"]),
)
def test_exact_duplicates(documents, unit):
    report = CleaningReport()
    kept = list(drop_exact_duplicates(documents, unit, report))
    check(report)
    units = kept if unit == "document" else [[s] for document in kept for s in document]
    normal = [tuple(" ".join(s.lower().split()) for s in one) for one in units]
    assert len(set(normal)) == len(normal)
    # Nothing new comes in, and nothing is lost but what is there already.
    assert list(drop_exact_duplicates(kept, unit)) == kept
    assert all(document for document in kept)


def test_exact_duplicate_arguments():
    with pytest.raises(ValueError, match="unit"):
        drop_exact_duplicates([], unit="page")


def test_near_duplicates():
    pytest.importorskip("datasketch")
    documents = [d for d in python_documentation() if len(d) > 30][:12]
    changed = [[*document[:-1], "A changed last sentence."] for document in documents]
    report = CleaningReport()
    kept = list(drop_near_duplicates([*documents, *changed, ["Short."]], report=report))
    check(report)
    assert kept == [*documents, ["Short."]]
    assert report.dropped_documents == {"near-duplicate document": 12}
    assert list(drop_near_duplicates([*documents, *changed])) == documents
