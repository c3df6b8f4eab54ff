"""Writing a token store: in parallel, resumed after a kill, never half-read."""

import itertools
import json
import os
import pathlib
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import numpy as np

from keras_tta.data.corpus import CorpusReport, Document, find_files, read_documents
from keras_tta.data.sequences import hash_document
from keras_tta.data.token_store import (
    FORMAT,
    INDEX,
    TokenStore,
    check_tokenizer,
    identify_tokenizer,
    read_index,
)
from keras_tta.files import replace_file, replace_folder, sha256

CHUNK_SENTENCES = 4096
DOCUMENT = np.dtype([("end", np.int64), ("hash", np.uint64)])
NO_TOKENS = "sentences without tokens"

Progress = Callable[[int, int, int], None]


def write_token_store(
    folder: str | os.PathLike,
    paths: str | os.PathLike | Iterable[str | os.PathLike],
    tokenizer,
    errors: str = "replace",
    splitter: Callable[[str], list[str]] | None = None,
    max_sentences: int | None = None,
    shard_tokens: int = 1 << 24,
    workers: int = 4,
    progress: Progress | None = None,
) -> TokenStore:
    """Tokenise files into a `TokenStore`; go on where a killed run stopped.

    Files are read by `workers` threads, and the tokenizers use all processor cores.
    A shard is written under another name, flushed to the disk, and then renamed, so
    that it is there whole or not at all; the index, which makes the store readable,
    comes last. The same files give the same shards, however often the writing was
    interrupted. Called on a finished store with more files, it adds them behind those
    that are there; files that are already in it are left alone.

    Args:
        folder: where the store goes.
        paths: as for `read_documents`, but standard input, which cannot be read twice.
        tokenizer: one of ours, or any with KerasHub's `get_config`, `save_assets`,
            `vocabulary_size` and an `encode_batch` without special tokens.
        errors: as for `read_documents`.
        splitter: as for `read_documents`.
        max_sentences: as for `read_documents`.
        shard_tokens: int, a shard is closed when it has that many tokens; a killed
            run loses at most one shard a worker.
        workers: int, how many files are worked on at once.
        progress: called as `progress(done_bytes, all_bytes, tokens)`, in bytes of the
            source files, after every shard and file.

    Returns:
        The store. `store.info["report"]` counts what went in and what became of it, as
        `CorpusReport` does, and `stored_documents`, `stored_sentences` and
        `stored_tokens`: `sentences` are stored, or `dropped["sentences without
        tokens"]` because nothing is left of them once they are normalised.

    Raises:
        ValueError: the store was begun with another tokenizer or other options, or a
            file in it has changed since.

    Example:
    ```python
    import pathlib, tempfile
    from keras_tta.data import train_wordpiece, write_token_store

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "corpus.txt")
        path.write_text("The cat sat.\\nIt purred.\\n")
        tokenizer = train_wordpiece(path.read_text().splitlines(), 60, min_frequency=1)
        store = write_token_store(f"{folder}/store", path, tokenizer)
        assert store.info["report"]["stored_sentences"] == 2
    ```
    """
    for name, value in (("shard_tokens", shard_tokens), ("workers", workers)):
        if not hasattr(value, "__index__") or value < 1:
            raise ValueError(
                f"`{name}` of write_token_store must be a positive integer. Received: "
                f"{name}={value!r}"
            )
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    options = {
        "errors": errors,
        "splitter": getattr(splitter, "__qualname__", None),
        "max_sentences": max_sentences,
        "shard_tokens": shard_tokens,
    }
    plan = _make_plan(folder, find_files(paths), tokenizer, options)
    for unfinished in folder.glob("*.tmp"):
        shutil.rmtree(unfinished)
    reading = {
        "errors": errors,
        "splitter": splitter,
        "max_sentences": max_sentences,
    }
    meter = _Meter(plan["sources"], progress)
    with ThreadPoolExecutor(workers) as pool:
        writers = [
            _SourceWriter(folder, number, source, tokenizer, shard_tokens, meter)
            for number, source in enumerate(plan["sources"])
        ]
        # `list` raises what a worker raised.
        records = list(pool.map(lambda writer: writer.run(reading), writers))
    shards = [shard for record in records for shard in record["shards"]]
    report = _add_reports([record["report"] for record in records])
    _write_json(folder / INDEX, {**plan, "shards": shards, "report": report})
    return TokenStore(folder, tokenizer)


def _make_plan(folder, files, tokenizer, options):
    """What the store is made from: checked against what it was begun with."""
    if "-" in files:
        raise ValueError(
            "A token store remembers what it was made from, so it cannot be made from "
            "standard input, '-'. Write the text to a file first."
        )
    plan = {
        "format": FORMAT,
        "tokenizer": identify_tokenizer(tokenizer),
        "options": options,
        "sources": [],
    }
    path = folder / "plan.json"
    if path.is_file() or (folder / INDEX).is_file():
        begun = json.loads(path.read_text()) if path.is_file() else read_index(folder)
        check_tokenizer(begun, tokenizer, folder)
        if begun["options"] != options:
            raise ValueError(
                f"The token store {folder} was begun with other options.\nThe "
                f"store's: {begun['options']}\nReceived:    {options}\nRepeat them, or "
                "write another store."
            )
        plan["sources"] = begun["sources"]
    known = {source["path"]: source for source in plan["sources"]}
    for file in files:
        source = _identify_file(file)
        if known.setdefault(source["path"], source) != source:
            raise ValueError(
                f"{file} has changed since the token store {folder} was made from it. "
                "Write another store."
            )
    plan["sources"] = list(known.values())
    _write_json(path, plan)
    return plan


def _identify_file(path):
    path = os.path.abspath(path)
    return {"path": path, "bytes": os.path.getsize(path), "sha256": sha256(path)}


class _Meter:
    """Adds up what all threads have done."""

    def __init__(self, sources, progress):
        self.total = sum(source["bytes"] for source in sources)
        self.done = self.tokens = 0
        self.progress = progress
        self.lock = threading.Lock()

    def add(self, done=0, tokens=0):
        with self.lock:
            self.done += done
            self.tokens += tokens
            if self.progress:
                self.progress(self.done, self.total, self.tokens)


class _SourceWriter:
    """Writes the shards of one file, and then a record that says it is done."""

    def __init__(self, folder, number, source, tokenizer, shard_tokens, meter):
        self.folder = folder
        self.number = number
        self.source = source
        self.tokenizer = tokenizer
        self.shard_tokens = shard_tokens
        self.meter = meter
        large = tokenizer.vocabulary_size() > 1 << 16
        self.dtype = np.uint32 if large else np.uint16

    def run(self, reading):
        record_path = self.folder / f"{self.number:05d}.json"
        if record_path.is_file():
            record = json.loads(record_path.read_text())
            self.meter.add(tokens=sum(shard["tokens"] for shard in record["shards"]))
        else:
            record = self.write(record_path, reading)
        self.meter.add(done=self.source["bytes"])
        return record

    def write(self, record_path, reading):
        report = CorpusReport()
        documents = read_documents(self.source["path"], report=report, **reading)
        shards = self.finished_shards()
        self.meter.add(tokens=sum(shard["tokens"] for shard in shards))
        done = shards[-1]["read_documents"] if shards else 0
        for _ in itertools.islice(documents, done):
            pass
        shard = _Shard(done)
        for chunk in _chunks(documents):
            self.encode(chunk, shard)
            if shard.num_tokens >= self.shard_tokens:
                shards.append(self.save(shard, len(shards)))
                shard = _Shard(shard.read_documents)
        dropped = shard.dropped_sentences
        if shard.document_ends:
            shards.append(self.save(shard, len(shards)))
            dropped = 0
        dropped += sum(finished["dropped_sentences"] for finished in shards)
        record = {"shards": shards, "report": _report(report, shards, dropped)}
        _write_json(record_path, record)
        return record

    def finished_shards(self):
        paths = sorted(self.folder.glob(f"{self.number:05d}-*/shard.json"))
        return [json.loads(path.read_text()) for path in paths]

    def encode(self, documents, shard):
        sentences = [sentence for document in documents for sentence in document]
        rows = iter(self.tokenizer.encode_batch(sentences))
        for document in documents:
            shard.add(document, itertools.islice(rows, len(document)), self.dtype)

    def save(self, shard, index):
        name = f"{self.number:05d}-{index:05d}"
        arrays = shard.arrays(self.dtype)
        info = {
            "name": name,
            "tokens": shard.num_tokens,
            "sentences": len(shard.sentence_ends),
            "documents": len(shard.document_ends),
            "read_documents": shard.read_documents,
            "dropped_sentences": shard.dropped_sentences,
            "sha256": {},
        }
        unfinished = self.folder / f"{name}.tmp"
        unfinished.mkdir()
        for array_name, array in arrays.items():
            path = unfinished / f"{array_name}.npy"
            np.save(path, array, allow_pickle=False)
            info["sha256"][path.name] = sha256(path)
        _write_json(unfinished / "shard.json", info)
        replace_folder(unfinished, self.folder / name)
        self.meter.add(tokens=shard.num_tokens)
        return info


class _Shard:
    """The tokens of a shard while it grows, in memory."""

    def __init__(self, read_documents):
        self.read_documents = read_documents
        self.dropped_sentences = self.num_tokens = 0
        self.rows, self.sentence_ends, self.document_ends, self.hashes = [], [], [], []

    def add(self, document, rows, dtype):
        self.read_documents += 1
        before = len(self.sentence_ends)
        for row in rows:
            if row:
                self.rows.append(np.array(row, dtype))
                self.num_tokens += len(row)
                self.sentence_ends.append(self.num_tokens)
            else:
                self.dropped_sentences += 1
        if len(self.sentence_ends) > before:
            self.document_ends.append(len(self.sentence_ends))
            self.hashes.append(hash_document(document))

    def arrays(self, dtype):
        documents = np.empty(len(self.document_ends), DOCUMENT)
        documents["end"], documents["hash"] = self.document_ends, self.hashes
        return {
            "tokens": np.concatenate(self.rows, dtype=dtype),
            "sentences": np.array(self.sentence_ends, np.int64),
            "documents": documents,
        }


def _chunks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    chunk, sentences = [], 0
    for document in documents:
        chunk.append(document)
        sentences += len(document)
        if sentences >= CHUNK_SENTENCES:
            yield chunk
            chunk, sentences = [], 0
    if chunk:
        yield chunk


def _report(corpus: CorpusReport, shards, dropped_sentences):
    report = asdict(corpus)
    for unit in ("documents", "sentences", "tokens"):
        report[f"stored_{unit}"] = sum(shard[unit] for shard in shards)
    if dropped_sentences:
        report["dropped"][NO_TOKENS] = dropped_sentences
    return report


def _add_reports(reports):
    total = {}
    for report in reports:
        for name, value in report.items():
            if isinstance(value, dict):
                total[name] = dict(Counter(total.get(name, {})) + Counter(value))
            else:
                total[name] = total.get(name, 0) + value
    return total


def _write_json(path, value):
    with replace_file(path) as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
