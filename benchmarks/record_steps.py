"""Record what profiling costs a step, and steps before and after a fix: `python benchmarks/record_steps.py OUT`.

For each model of models.py, models_loops.py and stand_in_models.py, in OUT/NAME: `step.json` (what a step takes with
nothing recording, as the host runs ahead) and four captures of two steps each:

    operators/          operators and shapes
    stacks/             the same with Python stacks
    execution_trace/    the same with an execution trace, without stacks
    both/               both, as tracemine.capture records

Once a process has recorded anything its launches stay slower, for the profiler stays attached. So each model has a
process of its own, and is timed before it is recorded.

For each pair of step_pairs.py, in OUT/pair_NAME: `step.json` with both steps' times, `both/` and `operators/` of the
step before. Several processes build models side by side; one at a time has the device. What is recorded is left
alone, so that the same call goes on where one ended; `--seconds` ends it early. Needs torch with CUDA; transformers and
torchvision for the models that come from there.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from models import CASES, FRESH, UNSEEN
from models_loops import LOOPS, TRAINED
from record_models import machine, mean_ns, reason, unchanged, warmed
from step_pairs import PAIRS

from benchmarks.stand_in_models import MODELS
from tracemine.recording import capture

Step = Callable[[], Any]
KINDS: dict[str, dict[str, bool]] = {
    "operators": {"stacks": False, "execution_trace": False},
    "stacks": {"stacks": True, "execution_trace": False},
    "execution_trace": {"stacks": False, "execution_trace": True},
    "both": {"stacks": True, "execution_trace": True},
}
RECORDED = 2  # steps in a trace
TIMED_S, MEANS = 0.1, 3  # how long steps run for a mean, and how many of these at a time
LIMIT_S = 60  # of one model


@dataclass(frozen=True)
class Work:
    name: str
    make: Callable[[], Step]
    training: bool
    after: Callable[[], Step] | None = None
    rules: tuple[str, ...] = ()
    module: str | None = None


def on_gpu(make: Callable[[], Step]) -> Callable[[], Step]:
    """Builds the step with everything on the device."""

    def made() -> Step:
        with torch.device("cuda"):
            return make()

    return made


def works() -> list[Work]:
    found = [
        Work(f"pair_{one.name}", on_gpu(one.before), one.training, on_gpu(one.after), tuple(one.rules), one.module)
        for one in PAIRS
    ]
    found += [Work(make.__name__, on_gpu(make), make in TRAINED) for make in (*LOOPS, *TRAINED)]
    found += [Work(f"small_{one.name}", on_gpu(one.make), one.training) for one in MODELS]
    for case in (*CASES, *FRESH, *UNSEEN):
        found.append(Work(case.name, on_gpu(partial(case.make, unchanged)), case.training))
    return found


def pipelined_ns(step: Step) -> list[int]:
    """What a step of many back to back takes: means of a tenth of a second each."""
    once_s = max(mean_ns(step, 1) / 1e9, 1e-6)
    repeats = max(5, min(200, round(TIMED_S / once_s)))
    return [mean_ns(step, repeats) for _ in range(MEANS)]


class Turn:
    """The right to use the device: one process at a time holds it, and lets it go while it writes its traces."""

    def __init__(self, path: Path) -> None:
        self.held = path.open("w")

    def take(self) -> None:
        fcntl.flock(self.held, fcntl.LOCK_EX)

    def give(self) -> None:
        fcntl.flock(self.held, fcntl.LOCK_UN)

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give()


def recorded(step: Step, folder: Path, turn: Turn, kind: str) -> None:
    options = {"steps": RECORDED, "warmup": 1, "timed": 3, "quiet": True}
    turn.take()
    try:
        with capture(folder, **options, **KINDS[kind]) as recording:
            for _ in recording.steps():
                step()
            turn.give()
    finally:
        turn.give()


def record(work: Work, out: Path, turn: Turn, kinds: Sequence[str]) -> dict[str, Any]:
    with turn:
        step = warmed(work.make())
    after = None if work.after is None else warmed(work.after())  # which may compile: not while others wait
    with turn:
        times = pipelined_ns(warmed(step))
        found: dict[str, Any] = {}
        if after is not None:
            again = pipelined_ns(warmed(after))
            times += pipelined_ns(step)  # so that a slower minute is not taken for the fix
            again += pipelined_ns(after)
            found = {"after_ns": int(statistics.median(again)), "after_means_ns": again}
            found |= {"rules": work.rules, "module": work.module}
        found |= {"step_ns": int(statistics.median(times)), "means_ns": times}
    for kind in kinds:
        recorded(step, out / kind, turn, kind)
    return found


def too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError("took longer than its time")


def worked(name: str, out: Path, kinds: Sequence[str], until: float) -> None:
    """Record one model, or say why not."""
    target = out / name
    told, begin = target / "step.json", time.perf_counter()
    if told.exists() or time.time() > until:
        return
    os.environ["MASTER_PORT"] = str(29517 + os.getpid() % 1000)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT_S)
    torch.set_num_threads(2)
    torch.manual_seed(0)
    target.mkdir(parents=True, exist_ok=True)
    work = next(one for one in works() if one.name == name)
    try:
        with torch.set_grad_enabled(work.training):
            found = record(work, target, Turn(out / "turn"), kinds)
    except Exception as error:
        found = {"failed": reason(error)}
    found["took_s"] = round(time.perf_counter() - begin, 1)
    told.write_text(json.dumps({"name": name, "training": work.training, **machine(), **found}, indent=1) + "\n")
    print(name, json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="models (all of them)")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after that long")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + chosen.seconds
    context = multiprocessing.get_context("spawn")  # nothing of one model's process is in another's

    def run(name: str) -> None:
        process = context.Process(target=worked, args=(name, chosen.out, chosen.kinds, until))
        process.start()
        process.join()

    with ThreadPoolExecutor(chosen.processes) as pool:
        list(pool.map(run, chosen.names or [one.name for one in works()]))


if __name__ == "__main__":
    main()
