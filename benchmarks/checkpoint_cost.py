"""What checkpoints cost: seconds to save one, to go on from one, and share of a run.

    KERAS_BACKEND=torch python benchmarks/checkpoint_cost.py

Prints a line, and appends it to `--output` as CSV.
"""

import tempfile
import time
from pathlib import Path

import keras
import numpy as np
from absl import app, flags
from report import report

from keras_tta.data import TokenBatches
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.training import NonFiniteGuard, TrainingCheckpoint

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_layers", 4, "Layers.")
flags.DEFINE_integer("hidden_dim", 256, "Width.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary.")
flags.DEFINE_integer("batch_size", 16, "Rows in a batch.")
flags.DEFINE_integer("sequence_length", 64, "Tokens in a row, none of them padding.")
flags.DEFINE_integer("steps", 12, "Steps; a third of them between checkpoints.", 6)
flags.DEFINE_string("output", None, "CSV file to append to.")


class Timed(TrainingCheckpoint):
    """A checkpoint that keeps the time: when steps began, and how long it took."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.begins, self.seconds = [], []

    def on_train_begin(self, logs=None):
        start = time.perf_counter()
        super().on_train_begin(logs)
        self.restore_seconds = time.perf_counter() - start

    def on_train_batch_begin(self, batch, logs=None):
        keras.ops.convert_to_numpy(self.model.optimizer.iterations)  # Queued steps.
        start = time.perf_counter()
        super().on_train_batch_begin(batch, logs)
        self.begins.append(start)
        self.seconds.append(time.perf_counter() - start)

    def step_seconds(self):
        """The median, which leaves out compiling and steps that a saving followed."""
        return float(np.median(np.diff(self.begins)))


def train(folder, epochs, guarded=False):
    keras.utils.set_random_seed(0)
    model = LanguageAutoencoder(
        TTABackbone(
            vocabulary_size=FLAGS.vocabulary_size,
            num_layers=FLAGS.num_layers,
            num_heads=4,
            hidden_dim=FLAGS.hidden_dim,
            intermediate_dim=4 * FLAGS.hidden_dim,
            max_sequence_length=FLAGS.sequence_length,
        )
    )
    model.compile(total_steps=10 * FLAGS.steps)
    shape = FLAGS.batch_size * FLAGS.steps, FLAGS.sequence_length - 2
    corpus = np.random.default_rng(0).integers(7, FLAGS.vocabulary_size, shape)
    batches = TokenBatches(corpus, FLAGS.batch_size, FLAGS.sequence_length)
    checkpoint = Timed(folder, batches, every_steps=FLAGS.steps // 3)
    guards = [NonFiniteGuard(checkpoint)] if guarded else []
    model.fit(batches, epochs=epochs, verbose=0, callbacks=[checkpoint, *guards])
    return model, checkpoint


def main(_):
    with tempfile.TemporaryDirectory() as folder:
        model, whole = train(f"{folder}/a", 1)
        saved = list(Path(folder).glob("a/step-*"))
        size = sum(path.stat().st_size for path in saved[0].iterdir())
        _, resumed = train(f"{folder}/a", 2)
        _, guarded = train(f"{folder}/b", 1, guarded=True)
    every = FLAGS.steps // 3
    save = float(np.median(whole.seconds[every::every]))
    row = {
        "backend": keras.backend.backend(),
        "parameters": model.count_params(),
        "checkpoint_mb": size / 1e6,
        "save_s": save,
        "restore_s": resumed.restore_seconds,
        "step_s": resumed.step_seconds(),
        "guarded_step_s": guarded.step_seconds(),
        "share_of_10_minutes": save / (600 + save),
    }
    report([row], FLAGS.output)


if __name__ == "__main__":
    app.run(main)
