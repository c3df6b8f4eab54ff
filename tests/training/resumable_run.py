"""Tiny trainings that go on when run again.

As a script, one that kills itself before training step STEP, or writing a checkpoint:

    python -m tests.training.resumable_run FOLDER OBJECTIVE STEP [writing]
"""

import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np

from keras_tta.data import TokenBatches
from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import LanguageAutoencoder, ReplacedTokenDetection
from keras_tta.training import (
    AdamWeightDecay,
    MetricsCSV,
    TrainingCheckpoint,
    WarmupLinearDecay,
)

EPOCHS, STEPS = 3, 5
TOTAL = EPOCHS * STEPS
draw = np.random.default_rng(0)
LENGTHS = draw.integers(1, 7, 60)
CORPUS = [draw.integers(5, 30, length).tolist() for length in LENGTHS]


class Batches(TokenBatches):
    """Token batches that remember which were read."""

    def __init__(self, **settings):
        settings = {"seed": 3, "steps_per_epoch": STEPS, **settings}
        super().__init__(CORPUS, batch_size=4, sequence_length=8, **settings)
        self.read = []

    def batch(self, step):
        self.read.append(step)
        return super().batch(step)


class NumberBatches(Batches):
    """The same as rows of numbers and their sums, for any model."""

    def batch(self, step):
        token_ids = super().batch(step)[0]["token_ids"]
        x = token_ids.astype("float32") / 30
        return x, x.sum(axis=1, keepdims=True)


def make_pretrainer(objective):
    size = {"vocabulary_size": 30, "num_layers": 1, "max_sequence_length": 8}
    size.update(num_heads=2, hidden_dim=8, intermediate_dim=12, dropout=0.2)
    if objective == "tta":
        return LanguageAutoencoder(TTABackbone(**size))
    generator = TransformerBackbone(**{**size, "hidden_dim": 4}, embedding_dim=8)
    return ReplacedTokenDetection(
        generator, TransformerBackbone(**size), TokenMasking(30, 4, (0, 1, 3))
    )


def train(folder, objective="tta", callbacks=(), jit_compile="auto"):
    """Trains to the end, unless a callback prevents it.

    Returns:
        Weights, rows of `metrics.csv` without the time, and the steps read.
    """
    keras.utils.set_random_seed(1)
    model = make_pretrainer(objective)
    schedule = WarmupLinearDecay(1e-2, 5, TOTAL)
    model.compile(
        AdamWeightDecay(schedule, bias_correction=True), jit_compile=jit_compile
    )
    batches = Batches()
    metrics = MetricsCSV(Path(folder) / "metrics.csv")
    checkpoint = TrainingCheckpoint(
        Path(folder) / "checkpoints", batches, [metrics], every_steps=2
    )
    held_out = TokenBatches(CORPUS[:9], 4, 8, shuffle=False)
    model.fit(
        batches,
        # Once is enough: it must be compiled.
        validation_data=held_out if objective == "tta" else None,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[checkpoint, metrics, *callbacks],
    )
    rows = [
        {name: value for name, value in row.items() if name != "seconds"}
        for row in metrics.rows
    ]
    return model.get_weights(), rows, batches.read


class At(keras.callbacks.Callback):
    """Does something before a training step, counted from the first of this `fit`."""

    def __init__(self, step, action):
        super().__init__()
        self.step, self.action = step, action

    def on_train_begin(self, logs=None):
        self.steps = 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.steps == self.step:
            self.action()
        self.steps += 1


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    folder, objective, step, *writing = sys.argv[1:]
    action = kill
    if writing:
        # The files are written and not yet safe.
        def action():
            os.fsync = lambda handle: kill()

    train(folder, objective, [At(int(step), action)])
