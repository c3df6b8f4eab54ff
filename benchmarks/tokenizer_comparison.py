"""WordPiece, byte-level BPE and Unigram at equal size, on the same text.

    python benchmarks/tokenizer_comparison.py --corpus 'corpus/*.gz'

For each: how many tokens a word becomes, how many words are whole, the share of
unknown tokens, the time to train and the speed to encode, and the held-out nats a word
and a byte of a small T-TA trained for `--steps` steps. Prints a line a tokenizer, and
appends it to `--output` as CSV.
"""

import time

import keras
import numpy as np
from absl import app, flags
from report import report

from keras_tta.data import (
    TokenBatches,
    iterate_sentences,
    read_documents,
    split_documents,
    train_byte_pair,
    train_unigram,
    train_wordpiece,
)
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("corpus", [], "Text files, one sentence per line.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary of each.")
flags.DEFINE_integer("megabytes", 5, "Text to use at most.")
flags.DEFINE_integer("steps", 300, "Training steps of each model; 0 for none.")
flags.DEFINE_integer("hidden_dim", 128, "Width of the model.")
flags.DEFINE_string("output", None, "CSV file to append to.")

TRAINERS = {
    "WordPiece": train_wordpiece,
    "byte-level BPE": train_byte_pair,
    "Unigram": train_unigram,
}


def main(_):
    documents, size = [], 0
    for document in read_documents(FLAGS.corpus):
        documents.append(document)
        size += sum(map(len, document))
        if size > FLAGS.megabytes * 1e6:
            break
    train, held_out = split_documents(documents, held_out_fraction=0.05)
    for name, trainer in TRAINERS.items():
        start = time.perf_counter()
        tokenizer = trainer(train, FLAGS.vocabulary_size, lowercase=True)
        row = {"tokenizer": name, "vocabulary_size": tokenizer.vocabulary_size()}
        row["train_s"] = round(time.perf_counter() - start, 1)
        row |= describe(tokenizer, held_out)
        if FLAGS.steps:
            row |= pretrain(tokenizer, train, held_out)
        report([row], FLAGS.output)


def describe(tokenizer, documents):
    sentences = list(iterate_sentences(documents))
    start = time.process_time()
    ids = tokenizer.encode_batch(sentences)
    seconds = time.process_time() - start
    words = [word for sentence in sentences for word in sentence.split()]
    pieces = [len(row) for row in tokenizer.encode_batch([f" {w}" for w in words])]
    tokens = sum(map(len, ids))
    unknown = sum(row.count(tokenizer.unknown_token_id) for row in ids)
    return {
        "tokens_per_word": round(tokens / len(words), 3),
        "words_of_one_token": round(float(np.mean(np.array(pieces) == 1)), 3),
        "bytes_per_token": round(sum(len(s.encode()) for s in sentences) / tokens, 2),
        "unknown_share": round(unknown / tokens, 5),
        "encoded_tokens_per_cpu_s": round(tokens / seconds),
    }


def pretrain(tokenizer, train, held_out):
    keras.utils.set_random_seed(0)
    ids, held_out_ids = (
        tokenizer.encode_batch(iterate_sentences(part)) for part in (train, held_out)
    )
    backbone = TTABackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=2,
        hidden_dim=FLAGS.hidden_dim,
        intermediate_dim=4 * FLAGS.hidden_dim,
        max_sequence_length=64,
    )
    model = LanguageAutoencoder(backbone, special_token_ids=tokenizer.special_token_ids)
    model.compile(total_steps=FLAGS.steps)
    batches = TokenBatches(ids, batch_size=32, sequence_length=64)
    model.fit(batches, epochs=1, steps_per_epoch=FLAGS.steps, shuffle=False, verbose=0)
    held_out_batches = TokenBatches(held_out_ids, 32, 64, shuffle=False)
    metrics = model.evaluate(held_out_batches, verbose=0, return_dict=True)
    nats = metrics["nats_per_token"] * sum(map(len, held_out_ids))
    sentences = list(iterate_sentences(held_out))
    return {
        "nats_per_token": round(metrics["nats_per_token"], 3),
        "nats_per_word": round(nats / sum(len(s.split()) for s in sentences), 3),
        "nats_per_byte": round(nats / sum(len(s.encode()) for s in sentences), 4),
    }


if __name__ == "__main__":
    app.run(main)
