"""Training tokens per second of a T-TA on this machine, by backend.

    KERAS_BACKEND=tensorflow python benchmarks/training_speed.py
    KERAS_BACKEND=tensorflow python benchmarks/training_speed.py --jit

Prints a line, and appends it to `--output` as CSV.
"""

import time

import keras
import numpy as np
from absl import app, flags
from report import report

from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_layers", 3, "Layers.")
flags.DEFINE_integer("hidden_dim", 256, "Width.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary.")
flags.DEFINE_integer("batch_size", 64, "Rows in a batch.")
flags.DEFINE_integer("sequence_length", 64, "Tokens in a row, none of them padding.")
flags.DEFINE_float("dropout", 0.1, "Dropout.")
flags.DEFINE_integer("steps", 10, "Steps that are timed, after two that are not.")
flags.DEFINE_bool("jit", None, "Compile the step; by default as Keras chooses.")
flags.DEFINE_string("output", None, "CSV file to append to.")


def main(_):
    keras.utils.set_random_seed(0)
    backbone = TTABackbone(
        FLAGS.vocabulary_size,
        FLAGS.num_layers,
        num_heads=max(1, FLAGS.hidden_dim // 64),
        hidden_dim=FLAGS.hidden_dim,
        intermediate_dim=4 * FLAGS.hidden_dim,
        max_sequence_length=FLAGS.sequence_length,
        dropout=FLAGS.dropout,
    )
    model = LanguageAutoencoder(backbone)
    jit = "auto" if FLAGS.jit is None else FLAGS.jit
    model.compile(total_steps=1000, jit_compile=jit)
    shape = (FLAGS.batch_size, FLAGS.sequence_length)
    batch = {
        "token_ids": np.random.default_rng(0).integers(5, FLAGS.vocabulary_size, shape),
        "padding_mask": np.ones(shape, bool),
    }
    seconds = []
    for _ in range(FLAGS.steps + 2):
        start = time.perf_counter()
        model.train_on_batch(batch)
        seconds.append(time.perf_counter() - start)
    median = float(np.median(seconds[2:]))
    row = {
        "backend": keras.backend.backend(),
        "jit": jit,
        "first_step_s": round(seconds[0], 2),
        "step_s": round(median, 4),
        "tokens_per_s": round(shape[0] * shape[1] / median),
    }
    report([row], FLAGS.output)


if __name__ == "__main__":
    app.run(main)
