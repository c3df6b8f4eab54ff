import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keras_tta.data import (
    SPECIAL_TOKENS,
    TokenBatches,
    TokenStore,
    TTATokenizer,
    iterate_sentences,
    split_documents,
    write_token_store,
)
from keras_tta.data import token_store_writer as writer_module
from keras_tta.data.token_store_writer import NO_TOKENS

pytestmark = pytest.mark.agnostic

LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def tokenizer():
    return TTATokenizer([*SPECIAL_TOKENS, *LETTERS, *(f"##{c}" for c in LETTERS), "."])


@pytest.fixture(scope="module")
def documents():
    """Three files' worth; some sentences, and one whole document, have no tokens."""
    rng = np.random.default_rng(0)

    def sentence():
        if rng.random() < 0.05:
            return "\u0301\u200b"
        words = (
            "".join(rng.choice(list(LETTERS), 3)) for _ in range(rng.integers(1, 9))
        )
        return " ".join(words) + "."

    files = [
        [[sentence() for _ in range(rng.integers(1, 8))] for _ in range(60)]
        for _ in range(3)
    ]
    files[1][-1] = ["\u200b", "\u0301"]
    return files


@pytest.fixture(scope="module")
def paths(documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    paths = [folder / f"{name}.txt" for name in "abc"]
    for path, file in zip(paths, documents, strict=True):
        path.write_text("\n\n".join("\n".join(document) for document in file))
    return paths


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(writer_module, "CHUNK_SENTENCES", 20)


def snapshot(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows(sequences):
    return [row.tolist() for row in sequences]


def test_a_store_holds_the_corpus(tmp_path, tokenizer, documents, paths):
    store = write_token_store(tmp_path, paths, tokenizer, shard_tokens=400)
    assert len(store.info["shards"]) > 6
    everything = [document for file in documents for document in file]
    encoded = tokenizer.encode_batch(iterate_sentences(everything))
    assert rows(store.sentences) == [row for row in encoded if row]
    in_documents = [sum(tokenizer.encode_batch(d), []) for d in everything]
    assert rows(store.documents) == [row for row in in_documents if row]
    assert store.sentences[0].dtype == np.uint16

    report = store.info["report"]
    assert report["files"] == 3
    assert report["bytes"] == sum(path.stat().st_size for path in paths)
    assert report["documents"] == 180 and report["stored_documents"] < 180
    assert report["sentences"] == len(encoded)
    assert report["sentences"] == (
        report["stored_sentences"] + report["dropped"][NO_TOKENS]
    )
    assert report["stored_tokens"] == len(store) == sum(map(len, encoded))
    store.verify()


def test_shards_do_not_depend_on_threads_or_their_size(tmp_path, tokenizer, paths):
    one = write_token_store(tmp_path / "1", paths, tokenizer, workers=1)
    for workers in (1, 3):
        many = write_token_store(
            tmp_path / f"{workers}many",
            paths,
            tokenizer,
            shard_tokens=300,
            workers=workers,
        )
        assert rows(many.sentences) == rows(one.sentences)
    assert snapshot(tmp_path / "1many") == snapshot(tmp_path / "3many")


class Crash(Exception):
    pass


class CrashingTokenizer:
    def __init__(self, tokenizer, calls):
        self.tokenizer = tokenizer
        self.calls = calls

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def encode_batch(self, texts):
        self.calls -= 1
        if self.calls < 0:
            raise Crash
        return self.tokenizer.encode_batch(texts)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(crashes=st.lists(st.integers(0, 15), max_size=4), workers=st.integers(1, 3))
def test_a_resumed_store_is_the_same(
    crashes, workers, tmp_path_factory, tokenizer, paths
):
    whole, resumed = (tmp_path_factory.mktemp("store") for _ in range(2))
    write_token_store(whole, paths, tokenizer, shard_tokens=300)

    class Named(CrashingTokenizer):
        pass

    # The class is part of what identifies a tokenizer.
    Named.__name__ = type(tokenizer).__name__
    for calls in crashes:
        with pytest.raises(Crash):
            crashing = Named(tokenizer, calls)
            write_token_store(
                resumed, paths, crashing, shard_tokens=300, workers=workers
            )
            raise Crash  # It had calls enough.
        (resumed / "00000-99999.tmp").mkdir(exist_ok=True)
    write_token_store(resumed, paths, tokenizer, shard_tokens=300)
    assert snapshot(resumed) == snapshot(whole)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_writer(tmp_path, tokenizer, paths):
    code = f"""
import time
from keras_tta.data import TTATokenizer, write_token_store, token_store_writer
token_store_writer.CHUNK_SENTENCES = 20
class Slow(TTATokenizer):
    def encode_batch(self, texts, **options):
        time.sleep(0.2)
        return super().encode_batch(texts, **options)
Slow.__name__ = "TTATokenizer"
write_token_store(
    {str(tmp_path / "store")!r}, {[str(path) for path in paths]!r},
    Slow({tokenizer.get_vocabulary()!r}), shard_tokens=300, workers=2,
)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.time() + 300
    while not list(tmp_path.glob("store/*/shard.json")):
        assert process.poll() is None and time.time() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(FileNotFoundError, match="no finished token store"):
        TokenStore(tmp_path / "store")
    write_token_store(tmp_path / "store", paths, tokenizer, shard_tokens=300)
    write_token_store(tmp_path / "whole", paths, tokenizer, shard_tokens=300)
    assert snapshot(tmp_path / "store") == snapshot(tmp_path / "whole")


def test_files_are_added_behind(tmp_path, tokenizer, paths):
    first = write_token_store(tmp_path, paths[:1], tokenizer)
    before = rows(first.sentences)
    both = write_token_store(tmp_path, paths[1:], tokenizer)
    assert rows(both.sentences)[: len(before)] == before
    assert len(both.info["sources"]) == 3
    again = snapshot(tmp_path)
    write_token_store(tmp_path, paths, tokenizer)
    assert snapshot(tmp_path) == again


def test_another_tokenizer_is_refused(tmp_path, tokenizer, paths):
    write_token_store(tmp_path, paths, tokenizer)
    vocabulary = tokenizer.get_vocabulary()
    others = [
        TTATokenizer([*vocabulary, "new"]),
        TTATokenizer([*vocabulary[:-2], *vocabulary[:-3:-1]]),
        TTATokenizer(vocabulary, split_on_cjk=False),
    ]
    for other in others:
        with pytest.raises(ValueError, match="another tokenizer"):
            TokenStore(tmp_path, other)
        with pytest.raises(ValueError, match="another tokenizer"):
            write_token_store(tmp_path, paths, other)
    TokenStore(tmp_path, TTATokenizer(vocabulary, name="same"))
    TokenStore(tmp_path)


def test_other_options_and_changed_files_are_refused(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("abc.")
    store = tmp_path / "store"
    write_token_store(store, path, tokenizer)
    with pytest.raises(ValueError, match="other options"):
        write_token_store(store, path, tokenizer, max_sentences=2)
    path.write_text("abd.")
    with pytest.raises(ValueError, match="has changed"):
        write_token_store(store, path, tokenizer)
    for name in ("workers", "shard_tokens"):
        for value in (0, 1.5):
            with pytest.raises(ValueError, match=f"Received: {name}={value}"):
                write_token_store(store, path, tokenizer, **{name: value})
    with pytest.raises(ValueError, match="standard input"):
        write_token_store(tmp_path / "other", "-", tokenizer)


def test_a_damaged_store_is_noticed(tmp_path, tokenizer, paths):
    write_token_store(tmp_path, paths, tokenizer)
    tokens = tmp_path / "00001-00000" / "tokens.npy"
    array = np.load(tokens)
    array[5] += 1
    np.save(tokens, array)
    with pytest.raises(ValueError, match="has changed since it was written"):
        TokenStore(tmp_path).verify()
    np.save(tokens, array[:-1])
    with pytest.raises(ValueError, match="The store is damaged"):
        TokenStore(tmp_path)
    info = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps({**info, "format": "other"}))
    with pytest.raises(ValueError, match="not in the format"):
        TokenStore(tmp_path)


def test_the_split_is_that_of_the_documents(tmp_path, tokenizer, documents, paths):
    store = write_token_store(tmp_path, paths, tokenizer, shard_tokens=300)
    everything = [document for file in documents for document in file]
    sides = split_documents(everything, 0.2)
    for side, stored in zip(sides, store.split(0.2), strict=True):
        encoded = tokenizer.encode_batch(iterate_sentences(side))
        assert rows(stored) == [row for row in encoded if row]
    train, held_out = store.split(0.2, unit="documents")
    assert len(train) + len(held_out) == len(store.documents)
    with pytest.raises(ValueError, match="unit"):
        store.split(0.2, unit="tokens")
    assert rows(store.split()[1]) == rows(store.split(0.05)[1])
    for fraction in (0.0, 1.0, 1.5, -0.5):
        with pytest.raises(ValueError, match=f"held_out_fraction={fraction}"):
            store.split(fraction)
    with pytest.raises(ValueError, match=r"documents 0 would be .* `max_sentences`"):
        store.split(1e-9)


def test_batches_from_a_store(tmp_path, tokenizer, paths):
    store = write_token_store(tmp_path, paths, tokenizer, shard_tokens=300)
    stored = TokenBatches(store.sentences, 8, 12, bucket_lengths=(6,))
    listed = TokenBatches(rows(store.sentences), 8, 12, bucket_lengths=(6,))
    for step in range(len(stored)):
        (batch,), (expected,) = stored.batch(step), listed.batch(step)
        assert batch["token_ids"].dtype == np.int32
        np.testing.assert_array_equal(batch["token_ids"], expected["token_ids"])


def test_an_empty_corpus(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("\n\u200b\n")
    store = write_token_store(tmp_path / "store", path, tokenizer)
    assert len(store) == len(store.sentences) == len(store.documents) == 0
    assert store.info["report"]["dropped"] == {NO_TOKENS: 1}


def test_a_large_vocabulary_has_wide_ids(tmp_path, tokenizer, paths):
    fill = [f"[unused{i}]" for i in range(1 << 16)]
    wide = TTATokenizer([*tokenizer.get_vocabulary(), *fill, "zz"])
    path = tmp_path / "a.txt"
    path.write_text("abc zz.")
    store = write_token_store(tmp_path / "store", path, wide)
    assert store.sentences[0].dtype == np.uint32
    assert wide.detokenize(store.sentences[0]) == "abc zz ."


def test_progress(tmp_path, tokenizer, paths):
    seen = []
    store = write_token_store(
        tmp_path, paths, tokenizer, progress=lambda *state: seen.append(state)
    )
    total = sum(path.stat().st_size for path in paths)
    assert seen[-1] == (total, total, len(store))
