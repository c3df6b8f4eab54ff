"""Runs the tests on every backend, each in its own process: Keras fixes it at import.

python tests/run.py                           all backends, two at a time
python tests/run.py --backends jax --jobs 1   one backend
python tests/run.py tests/layers --slow -x    anything else is handed to pytest

Tests marked `agnostic` run once, with the last backend, the quickest.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BACKENDS = ("jax", "tensorflow", "torch")
NO_TESTS_COLLECTED = 5


def run_backend(backend, arguments):
    """Runs pytest, echoing its lines, and returns (exit status, counts, seconds)."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        f"cache_dir=.pytest_cache/{backend}",
    ]
    command += arguments
    print(f"{backend:>10} | KERAS_BACKEND={backend} {' '.join(command)}", flush=True)
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        # Two jobs share the cores: PyTorch's threads would wait for one another.
        env={"OMP_NUM_THREADS": "1", **os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    counts = Counter()
    for line in process.stdout:
        print(f"{backend:>10} | {line}", end="", flush=True)
        # Pytest closes with "3 failed, 120 passed, 2 skipped in 61.05s".
        if re.search(r" in \d+\.\d+s", line):
            outcomes = re.findall(r"(\d+) ([a-z]+)", line)
            counts = Counter({outcome: int(number) for number, outcome in outcomes})
    return process.wait(), counts, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", default=",".join(BACKENDS), metavar="A,B")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    options, arguments = parser.parse_known_args()
    backends = options.backends.split(",")
    if unknown := set(backends) - set(BACKENDS):
        parser.error(f"--backends takes {', '.join(BACKENDS)}; received {unknown}")

    once = [["-m", "not agnostic"]] * (len(backends) - 1) + [[]]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(
            pool.map(run_backend, backends, [which + arguments for which in once])
        )

    print()
    for backend, (status, counts, seconds) in zip(backends, results, strict=True):
        summary = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
        print(f"{backend:>10} | exit {status} | {seconds:4.0f} s | {summary}")
    total = sum((counts for _, counts, _ in results), Counter())
    failed = total["failed"] + total["error"] + total["errors"]
    # Pytest that cannot even start leaves no summary.
    failed += sum(not counts and status != 0 for status, counts, _ in results)
    print(f"{total['passed']} passed, {failed} failed, {total['skipped']} skipped")

    statuses = {status for status, _, _ in results}
    sys.exit(0 if statuses in ({0}, {0, NO_TESTS_COLLECTED}) else 1)


if __name__ == "__main__":
    main()
