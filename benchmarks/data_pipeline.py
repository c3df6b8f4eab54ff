"""Tokens per second of the data pipeline, against Hugging Face datasets and tokenizers.

    python benchmarks/data_pipeline.py --corpus 'corpus/*.gz'

Both sides tokenise the same text with the same WordPiece vocabulary to files on disk,
and read the files back in random order as padded batches. Theirs is the usual recipe:
`load_dataset("text")`, `map` with a fast tokenizer, batches by index. Prints a line a
measurement, and appends it to `--output` as CSV. Needs `pip install datasets`.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import tokenizers
from absl import app, flags
from report import report

from keras_tta.data import (
    TokenBatches,
    TokenStore,
    iterate_sentences,
    read_documents,
    train_wordpiece,
    write_token_store,
)

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("corpus", [], "Text files, one sentence per line.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary.")
flags.DEFINE_integer("megabytes", 20, "Text to use at most.")
flags.DEFINE_integer("batch_size", 64, "Rows in a batch.")
flags.DEFINE_integer("sequence_length", 128, "Tokens in a row.")
flags.DEFINE_integer("batches", 300, "Batches to read at most.")
flags.DEFINE_integer("processes", os.cpu_count(), "Of the other side's `map`.")
flags.DEFINE_string("output", None, "CSV file to append to.")

os.environ["HF_HUB_OFFLINE"] = "1"


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        text = write_sample(folder / "text.txt")
        sentences = list(iterate_sentences(read_documents(text)))
        tokenizer = train_wordpiece(sentences, FLAGS.vocabulary_size)
        tokenizer.save_assets(folder)
        ours(text, tokenizer, folder / "store")
        theirs(text, str(folder / "vocabulary.txt"), folder)


def write_sample(path):
    """The first documents of the corpus, as one plain file that both sides read."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for document in read_documents(FLAGS.corpus):
            size += file.write("\n".join(document) + "\n\n")
            if size > FLAGS.megabytes * 1e6:
                break
    return path


def ours(text, tokenizer, folder):
    clock = Clock()
    store = write_token_store(folder, text, tokenizer)
    record("keras_tta", "tokenise to disk", len(store), clock)
    for name, options in {
        "read, padded": {},
        "read, bucketed": {"bucket_lengths": (16, 32, 64)},
        "read, packed": {"packed": True},
    }.items():
        clock = Clock()
        sequences = TokenStore(folder, tokenizer).sentences
        batches = TokenBatches(
            sequences, FLAGS.batch_size, FLAGS.sequence_length, **options
        )
        steps = min(len(batches), FLAGS.batches)
        tokens = sum(
            int(batches.batch(step)[0]["padding_mask"].sum()) for step in range(steps)
        )
        record("keras_tta", name, tokens, clock, batches.padding_share)


def theirs(text, vocabulary, folder):
    import datasets

    datasets.disable_progress_bars()
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)

    def encode(rows):
        encodings = tokenizer.encode_batch(rows["text"], add_special_tokens=False)
        return {"ids": [encoding.ids for encoding in encodings]}

    clock = Clock()
    dataset = datasets.load_dataset(
        "text", data_files=str(text), split="train", cache_dir=str(folder / "cache")
    )
    dataset = dataset.map(
        encode, batched=True, remove_columns=["text"], num_proc=FLAGS.processes
    )
    dataset.save_to_disk(str(folder / "dataset"))
    clock.stop()
    dataset = datasets.load_from_disk(str(folder / "dataset"))
    tokens = sum(len(row) for row in dataset["ids"])
    record("datasets", "tokenise to disk", tokens, clock)

    clock = Clock()
    dataset = datasets.load_from_disk(str(folder / "dataset"))
    order = np.random.default_rng(0).permutation(len(dataset))
    tokens = slots = 0
    for step in range(min(len(order) // FLAGS.batch_size, FLAGS.batches)):
        rows = order[step * FLAGS.batch_size : (step + 1) * FLAGS.batch_size]
        mask = pad(dataset[rows.tolist()]["ids"])[1]
        tokens += int(mask.sum())
        slots += mask.size
    record("datasets", "read, padded", tokens, clock, 1 - tokens / slots)


def pad(rows):
    """[SOS], tokens, [EOS], padding; longer rows are truncated, as is usual."""
    width = FLAGS.sequence_length
    ids = np.zeros((len(rows), width), np.int32)
    mask = np.zeros((len(rows), width), bool)
    for i, row in enumerate(rows):
        row = [3, *row[: width - 2], 1]
        ids[i, : len(row)] = row
        mask[i, : len(row)] = True
    return ids, mask


class Clock:
    """Seconds on the wall, and of processors, those of finished children included."""

    def __init__(self):
        self.start, self.seconds = self.now(), None

    def now(self):
        return np.array([time.perf_counter(), sum(os.times()[:4])])

    def stop(self):
        if self.seconds is None:
            self.seconds = self.now() - self.start
        return self.seconds


def record(side, task, tokens, clock, padding=None):
    seconds, cpu = clock.stop().tolist()
    row = {
        "side": side,
        "task": task,
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_s": round(tokens / seconds),
        "tokens_per_cpu_s": round(tokens / max(cpu, 0.01)),
        "padding_share": "" if padding is None else round(padding, 4),
    }
    report([row], FLAGS.output)


if __name__ == "__main__":
    app.run(main)
