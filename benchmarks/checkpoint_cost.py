"""What checkpoints cost: seconds to save one, to go on from one, and share of a run.

python benchmarks/checkpoint_cost.py
"""

import argparse
import tempfile
import time
from pathlib import Path

import keras
import numpy as np

from keras_tta.data import TokenBatches
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder
from keras_tta.training import NonFiniteGuard, TrainingCheckpoint


class Timed(TrainingCheckpoint):
    """A checkpoint that keeps the time."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.save_seconds, self.restore_seconds = [], 0.0

    def _save(self, **arguments):
        keras.ops.convert_to_numpy(self.model.optimizer.iterations)  # Queued steps.
        start = time.perf_counter()
        super()._save(**arguments)
        self.save_seconds.append(time.perf_counter() - start)

    def on_train_begin(self, logs=None):
        start = time.perf_counter()
        super().on_train_begin(logs)
        self.restore_seconds = time.perf_counter() - start


class Steps(keras.callbacks.Callback):
    """When each step began."""

    def __init__(self):
        super().__init__()
        self.times = []

    def on_train_batch_begin(self, batch, logs=None):
        keras.ops.convert_to_numpy(self.model.optimizer.iterations)
        self.times.append(time.perf_counter())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num_layers", type=int, default=4)
    parser.add_argument("--hidden_dim", type=int, default=256)
    parser.add_argument("--vocabulary_size", type=int, default=8000)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--sequence_length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = options.batch_size * options.steps
    corpus = rng.integers(
        7, options.vocabulary_size, (rows, options.sequence_length - 2)
    )

    def train(folder, epochs, guarded=False):
        keras.utils.set_random_seed(0)
        model = LanguageAutoencoder(
            TTABackbone(
                vocabulary_size=options.vocabulary_size,
                num_layers=options.num_layers,
                num_heads=4,
                hidden_dim=options.hidden_dim,
                intermediate_dim=4 * options.hidden_dim,
                max_sequence_length=options.sequence_length,
            )
        )
        model.compile(total_steps=10 * options.steps)
        batches = TokenBatches(corpus, options.batch_size, options.sequence_length)
        checkpoint = Timed(folder, batches, every_steps=options.steps // 3)
        steps = Steps()
        guards = [NonFiniteGuard(checkpoint)] if guarded else []
        model.fit(
            batches, epochs=epochs, verbose=0, callbacks=[steps, checkpoint, *guards]
        )
        return model, checkpoint, steps.times

    with tempfile.TemporaryDirectory() as folder:
        model, checkpoint, times = train(f"{folder}/a", 1)
        saves = checkpoint.save_seconds
        size = sum(p.stat().st_size for p in Path(folder).glob("a/step-*/*"))
        size /= len(list(Path(folder).glob("a/step-*")))
        _, resumed, times = train(f"{folder}/a", 2)
        _, _, guarded = train(f"{folder}/b", 1, guarded=True)
    # The median leaves out compiling and the steps that a checkpoint followed.
    step = float(np.median(np.diff(times)))
    save = float(np.median(saves))
    print(f"backend {keras.backend.backend()}, {model.count_params():,} parameters")
    print(f"checkpoint: {size / 1e6:.1f} MB, {save:.2f} s")
    print(
        f"step: {step:.3f} s; with NonFiniteGuard {np.median(np.diff(guarded)):.3f} s"
    )
    print(f"share of a run, one in 10 minutes: {save / (600 + save):.3%}")
    print(f"to go on from one, beyond starting anew: {resumed.restore_seconds:.2f} s")


if __name__ == "__main__":
    main()
