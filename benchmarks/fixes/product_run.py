"""Measure what is open of kernels around products: `python -m benchmarks.fixes.product_run OUT --within SECONDS`.

On a first GPU heads over a vocabulary and attention (products.py), then 40 shapes that nothing was fitted to
(product_kernels.py --unseen), then heads from their recordings; steps from a trace to `apply` (product_apply.py) on a
second one, or behind these. OUT/products.jsonl, OUT/unseen/results.jsonl, OUT/apply/applied.jsonl and OUT/run.jsonl are
written line by line. `--device cpu` tries the machinery.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FIRST = ("cross_entropy", "sparse_head", "attention")
LAST = ("recordings", "verified", "log_probs", "distillation")


class Run:
    """Commands, one after another or beside each other, each with what time it may take."""

    def __init__(self, out: Path, within: float) -> None:
        self.out, self.until = out, time.monotonic() + within
        out.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def begin(self, name: str, gpu: int, *command: str) -> subprocess.Popen[bytes]:
        """Begin a command on one GPU."""
        given = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)}
        log = (self.out / f"{name}.log").open("wb")
        return subprocess.Popen(
            [sys.executable, "-m", *command], env=given, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait(self, name: str, running: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait for a command, and end it with all that it began where it takes too long."""
        begun = time.monotonic()
        try:
            running.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        line = {"part": name, "code": running.returncode, "seconds": round(time.monotonic() - begun, 1)}
        with (self.out / "run.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--within", type=float, default=330.0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--second", action="store_true", help="the shapes and a step alone, then cross-entropy")
    given = parser.parse_args()
    import torch

    two = torch.cuda.device_count() > 1
    run, out = Run(given.out, given.within - 5), str(given.out)
    apply_ = ("benchmarks.fixes.product_apply", f"{out}/apply")
    products = ("benchmarks", "products", out, "--device", given.device)
    if given.second:
        seconds = min(80.0, run.left - 30)
        run.wait(
            "unseen",
            run.begin("unseen", 0, "benchmarks.fixes.product_kernels", f"{out}/unseen", f"{seconds}", "--unseen"),
            seconds + 8,
        )
        seconds = min(90.0, run.left - 5)
        run.wait("apply", run.begin("apply", 0, *apply_, f"{2 * seconds - 10:.0f}"), seconds)
        run.wait(
            "first",
            run.begin("first", 0, *products, "--seconds", f"{max(run.left - 5, 1):.0f}", "--only", FIRST[0]),
            run.left,
        )
        return 0
    beside = run.begin("apply", 1, *apply_, f"{run.left - 10:.0f}") if two else None
    seconds = min(75.0, run.left)
    run.wait("first", run.begin("first", 0, *products, "--seconds", f"{seconds}", "--only", *FIRST), seconds + 10)
    seconds = min(155.0, run.left - 15)
    unseen = ("benchmarks.fixes.product_kernels", f"{out}/unseen", f"{seconds:.0f}", "--unseen")
    run.wait("unseen", run.begin("unseen", 0, *unseen), seconds + 8)
    if beside is not None:
        seconds = run.left - 12
        run.wait("last", run.begin("last", 0, *products, "--seconds", f"{seconds:.0f}", "--only", *LAST), seconds + 5)
        run.wait("apply", beside, run.left)
    elif run.left > 45:
        run.wait("apply", run.begin("apply", 0, *apply_, f"{run.left - 8:.0f}"), run.left)
    return 0


if __name__ == "__main__":
    sys.exit(main())
