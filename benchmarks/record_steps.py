"""Record what profiling costs a step, and steps before and after a fix: `python benchmarks/record_steps.py OUT`.

For each model of models.py, models_loops.py and stand_in_models.py, in OUT/NAME: `step.json` (what a step takes with
nothing recording, as the host runs ahead) and four captures of two steps each:

    operators/          operators and shapes
    stacks/             the same with Python stacks
    execution_trace/    the same with an execution trace, without stacks
    both/               both, as tracemine.capture records

Once a process has recorded anything, its launches stay slower (CUPTI stays attached): `--alone` only times steps, in
processes that record nothing, and writes OUT/NAME/alone.json. That is what a step takes where nobody profiles.

For each pair of step_pairs.py, in OUT/pair_NAME: `step.json` with both steps' times, `both/` and `operators/` of the
step before. Several processes build models side by side; one at a time has the device. What is recorded is left
alone, so that the same call goes on where one ended; `--seconds` ends it early. Needs torch with CUDA; transformers and
torchvision for the models that come from there.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from models import CASES, FRESH, UNSEEN
from models_loops import LOOPS, TRAINED
from record_models import machine, reason, unchanged, warmed
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
BROKEN = 3  # exit status of a process whose device context is lost: another goes on


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
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    repeats = max(5, min(200, round(TIMED_S / max(time.perf_counter() - begin, 1e-6))))
    means = []
    for _ in range(MEANS):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
        means.append((time.perf_counter_ns() - start) // repeats)
    return means


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


def record(work: Work, out: Path, turn: Turn) -> dict[str, Any]:
    with turn:
        step = work.make()
        times = pipelined_ns(warmed(step))
    for kind in KINDS if work.after is None else ("operators", "both"):
        recorded(step, out / kind, turn, kind)
    with turn:
        times += pipelined_ns(warmed(step))
        found: dict[str, Any] = {"step_ns": int(statistics.median(times)), "means_ns": times}
        if work.after is None:
            return found
        after = work.after()
        again = [*pipelined_ns(warmed(after)), *(each for _ in range(2) for each in alternated(found, step, after))]
        found |= {"after_ns": int(statistics.median(again)), "after_means_ns": again}
    recorded(after, out / "after", turn, "operators")
    return found | {"rules": work.rules, "module": work.module}


def alone(work: Work, turn: Turn) -> dict[str, Any]:
    """What the step takes, and the one after the fix, in a process that has recorded nothing."""
    with turn:
        step = work.make()
        times = pipelined_ns(warmed(step))
        if work.after is None:
            return {"step_ns": int(statistics.median(times)), "means_ns": times}
        after = work.after()
        again = pipelined_ns(warmed(after))
        times += pipelined_ns(step)
        again += pipelined_ns(after)
    found = {"step_ns": int(statistics.median(times)), "means_ns": times}
    return found | {"after_ns": int(statistics.median(again)), "after_means_ns": again}


def alternated(found: dict[str, Any], step: Step, after: Step) -> list[int]:
    """The step before timed once more, then the one after, so that a slower minute is not taken for the fix."""
    found["means_ns"] += pipelined_ns(step)
    found["step_ns"] = int(statistics.median(found["means_ns"]))
    return pipelined_ns(after)


def too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError("took longer than its time")


def worker(number: int, count: int, out: Path, names: list[str], until: float, only_times: bool) -> None:
    os.environ["MASTER_PORT"] = str(29517 + number)
    signal.signal(signal.SIGALRM, too_long)
    torch.set_num_threads(2)
    about = machine()
    turn = Turn(out / "turn")
    for work in [one for one in works() if not names or one.name in names][number::count]:
        target = out / work.name
        told = target / ("alone.json" if only_times else "step.json")
        if told.exists() or time.time() > until:
            continue
        target.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        head = {"name": work.name, "training": work.training, **about}
        told.write_text(json.dumps({**head, "failed": "the process ended"}) + "\n")
        begin = time.perf_counter()
        try:
            signal.alarm(LIMIT_S)
            with torch.set_grad_enabled(work.training):
                found = alone(work, turn) if only_times else record(work, target, turn)
        except Exception as error:
            found = {"failed": reason(error)}
        finally:
            signal.alarm(0)
        found["took_s"] = round(time.perf_counter() - begin, 1)
        told.write_text(json.dumps({**head, **found}, indent=1) + "\n")
        print(work.name, json.dumps(found), flush=True)
        if "CUDA error" in found.get("failed", ""):
            raise SystemExit(BROKEN)
        with turn:
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="models (all of them)")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after that long")
    parser.add_argument("--alone", action="store_true", help="only time steps, in processes that record nothing")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + chosen.seconds
    context = multiprocessing.get_context("spawn")

    def begun(number: int) -> Any:
        given = (number, chosen.processes, chosen.out, chosen.names, until, chosen.alone)
        process = context.Process(target=worker, args=given)
        process.start()
        return process

    running = {number: begun(number) for number in range(chosen.processes)}
    while running:
        for number, process in list(running.items()):
            process.join(0.2)
            if process.exitcode is None:
                continue
            del running[number]
            if process.exitcode != 0 and time.time() < until:
                running[number] = begun(number)


if __name__ == "__main__":
    main()
