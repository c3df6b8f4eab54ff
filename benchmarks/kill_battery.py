"""Kill a pretraining again and again: is it the uninterrupted one, to the last bit?

    python benchmarks/kill_battery.py --kills 20
    KERAS_BACKEND=torch python benchmarks/kill_battery.py --objective electra

A tiny model with dropout trains in a process of its own, which is killed (SIGKILL) at
random moments, in mid-step or while it writes a checkpoint, and started anew. Then
weights, logged losses and the order of the data are compared with those of a run that
nobody disturbed. Prints a line for each kill, and appends it to `--output` as CSV.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from absl import app, flags
from report import report

from keras_tta.training.checkpoint_files import CheckpointFolder

FLAGS = flags.FLAGS
flags.DEFINE_integer("kills", 20, "How often it is killed.", 0)
flags.DEFINE_enum("objective", "tta", ("tta", "electra"), "What is trained.")
flags.DEFINE_float("seconds", 1.0, "Longest life.")
flags.DEFINE_integer("epochs", 90, "Length of the training.")
flags.DEFINE_integer("seed", 0, "Of the moments.")
flags.DEFINE_string("output", None, "CSV file to append to.")
flags.DEFINE_string("child", None, "For itself: train in this folder.")


def child(folder):
    """Trains to the end, a step in a few milliseconds; writes what came of it."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.training import resumable_run

    delay = float(os.environ.get("DELAY", "0"))
    callbacks = []
    if delay:
        # Counted from the second step, so that no kill is wasted on imports.
        timer = threading.Timer(delay, resumable_run.kill)
        callbacks.append(resumable_run.At(1, timer.start))
    resumable_run.EPOCHS = int(os.environ["EPOCHS"])
    resumable_run.TOTAL = resumable_run.EPOCHS * resumable_run.STEPS
    weights, rows, read = resumable_run.train(folder, FLAGS.objective, callbacks)
    digest = hashlib.sha256(b"".join(weight.tobytes() for weight in weights))
    result = {"weights": digest.hexdigest(), "rows": rows, "read": read}
    Path(folder, "result.json").write_text(json.dumps(result))


def start(folder, delay=0.0):
    """Runs a child; returns its exit status and the seconds it took."""
    began = time.perf_counter()
    run = subprocess.run(
        [sys.executable, __file__, "--child", folder, "--objective", FLAGS.objective],
        env={**os.environ, "DELAY": str(delay), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    if run.returncode not in (0, -signal.SIGKILL):
        sys.exit(run.stderr)
    return run.returncode, time.perf_counter() - began


def main(_):
    if FLAGS.child:
        return child(FLAGS.child)
    os.environ["EPOCHS"] = str(FLAGS.epochs)
    rng = random.Random(FLAGS.seed)
    last = 0
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = f"{folder}/whole", f"{folder}/parts"
        start(whole)
        for number in range(FLAGS.kills):
            delay = rng.uniform(0.01, FLAGS.seconds)
            status, seconds = start(parts, delay)
            last = max(CheckpointFolder(f"{parts}/checkpoints").steps(), default=0)
            left = list(Path(parts, "checkpoints").glob(".new-step-*"))
            row = {
                "kill": number + 1,
                "trained_s": delay,
                "last_checkpoint": last,
                "writing": bool(left),
                "process_s": seconds,
            }
            report([row], FLAGS.output)
            if status == 0:
                sys.exit("The training ended before it was killed: raise --epochs.")
        start(parts)
        expected, found = (
            json.loads(Path(path, "result.json").read_text()) for path in (whole, parts)
        )
    total = expected["rows"][-1]["step"]
    order = [s for s in found["read"] if last <= s < total] == list(range(last, total))
    same = {
        "weights": found["weights"] == expected["weights"],
        "logged losses": found["rows"] == expected["rows"],
        "order of the data": order,
    }
    for what, equal in same.items():
        print(f"{what}: {'equal' if equal else 'DIFFERENT'}")
    sys.exit(not all(same.values()))


if __name__ == "__main__":
    app.run(main)
