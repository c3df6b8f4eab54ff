"""Kill a pretraining again and again: is it the uninterrupted one, to the last bit?

    python benchmarks/kill_battery.py --kills 20
    KERAS_BACKEND=torch python benchmarks/kill_battery.py --objective electra

A tiny model with dropout trains in a process of its own, which is killed (SIGKILL) at
random moments, in mid-step or while it writes a checkpoint, and started anew. Then
weights, logged losses and the order of the data are compared with those of a run that
nobody disturbed.
"""

import argparse
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

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def child(folder, objective):
    """Trains to the end, a step in a few milliseconds; writes what came of it."""
    from tests.training import resumable_run

    delay = float(os.environ.get("DELAY", "0"))
    callbacks = []
    if delay:
        # Counted from the second step, so that no kill is wasted on imports.
        timer = threading.Timer(delay, resumable_run.kill)
        callbacks.append(resumable_run.At(1, timer.start))
    resumable_run.EPOCHS = int(os.environ["EPOCHS"])
    resumable_run.TOTAL = resumable_run.EPOCHS * resumable_run.STEPS
    weights, rows, read = resumable_run.train(folder, objective, callbacks)
    digest = hashlib.sha256(b"".join(weight.tobytes() for weight in weights))
    result = {"weights": digest.hexdigest(), "rows": rows, "read": read}
    Path(folder, "result.json").write_text(json.dumps(result))


def start(folder, objective, delay=0.0):
    """Runs a child; returns its exit status and the seconds it took."""
    began = time.perf_counter()
    run = subprocess.run(
        [sys.executable, __file__, "--child", folder, "--objective", objective],
        env={**os.environ, "DELAY": str(delay), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    if run.returncode not in (0, -signal.SIGKILL):
        sys.exit(run.stderr)
    return run.returncode, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--objective", default="tta", choices=("tta", "electra"))
    parser.add_argument("--seconds", type=float, default=1.0, help="longest life")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.objective)

    os.environ["EPOCHS"] = str(options.epochs)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = f"{folder}/whole", f"{folder}/parts"
        start(whole, options.objective)
        for number in range(options.kills):
            delay = rng.uniform(0.01, options.seconds)
            status, seconds = start(parts, options.objective, delay)
            steps = sorted(Path(parts, "checkpoints").glob("step-*"))
            last = int(steps[-1].name[5:]) if steps else 0
            left = [p.name for p in Path(parts, "checkpoints").glob(".*")]
            print(
                f"kill {number + 1}: after {delay:.2f} s of training, last checkpoint "
                f"{last}{', in the middle of writing' * bool(left)} ({seconds:.1f} s)",
                flush=True,
            )
            if status == 0:
                sys.exit("The training ended before it was killed: raise --epochs.")
        start(parts, options.objective)
        expected, found = (
            json.loads(Path(path, "result.json").read_text()) for path in (whole, parts)
        )
    total = expected["rows"][-1]["step"]
    order = [s for s in found["read"] if last <= s < total] == list(range(last, total))
    for what, same in {
        "weights": found["weights"] == expected["weights"],
        "logged losses": found["rows"] == expected["rows"],
        "order of the data": order,
    }.items():
        print(f"{what}: {'equal' if same else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
