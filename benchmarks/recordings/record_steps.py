"""Record what profiling costs a step, and steps before and after a fix: `python -m benchmarks record_steps OUT`.

For each model of models.py, models_loops.py and stand_in_models.py, in OUT/NAME: `step.json` (what a step takes with
nothing recording, as the host runs ahead) and four captures of two steps each:

    operators/          operators and shapes
    stacks/             the same with Python stacks
    execution_trace/    the same with an execution trace, without stacks
    both/               both, as tracemine.capture records

For each pair of step_pairs.py, in OUT/pair_NAME: `step.json` with both steps' times, the same captures of the step
before, and `after/`, which records the step after as `both` does.

Once a process has recorded anything its launches stay slower, for the profiler stays attached. So all steps are timed
first, in a process that never records, and recorded then in another. Nothing runs beside: next to processes that built
models, means of one step lay 1.2 times apart in the median, and up to 4. Other load on the host cannot be seen from
here, so record twice: unprofiled.py takes the faster of several recordings, and of several timings. What is there is
left alone, so that the same call goes on where one ended; `--seconds` ends it early. Needs torch with CUDA;
transformers and torchvision for the models that come from there.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from benchmarks.recordings.models import CASES, FRESH, UNSEEN
from benchmarks.recordings.models_loops import LOOPS, TRAINED
from benchmarks.recordings.record_models import machine, mean_ns, reason, unchanged, warmed
from benchmarks.recordings.stand_in_models import MODELS
from benchmarks.recordings.step_pairs import PAIRS
from tracemine.recording import capture

Step = Callable[[], Any]
KINDS: dict[str, dict[str, bool]] = {
    "operators": {"stacks": False, "execution_trace": False},
    "stacks": {"stacks": True, "execution_trace": False},
    "execution_trace": {"stacks": False, "execution_trace": True},
    "both": {"stacks": True, "execution_trace": True},
}
RECORDED = 2  # steps in a trace
TIMED_S, MEANS = 0.08, 5  # how long steps run for a mean, and how many of these at a time
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
    pairs = [
        Work(f"pair_{one.name}", on_gpu(one.before), one.training, on_gpu(one.after), tuple(one.rules), one.module)
        for one in PAIRS
    ]
    compiled = [pair for pair in pairs if "compiled" in pair.name]  # last: compiling leaves processes and hooks behind
    found = [pair for pair in pairs if pair not in compiled]
    found += [Work(make.__name__, on_gpu(make), make in TRAINED) for make in (*LOOPS, *TRAINED)]
    found += [Work(f"small_{one.name}", on_gpu(one.make), one.training) for one in MODELS]
    for case in (*CASES, *FRESH, *UNSEEN):
        found.append(Work(case.name, on_gpu(partial(case.make, unchanged)), case.training))
    return found + compiled


def pipelined_ns(step: Step) -> list[int]:
    """What a step of many back to back takes: means of many, a moment each."""
    once_s = max(mean_ns(step, 1) / 1e9, 1e-6)
    repeats = max(5, min(200, round(TIMED_S / once_s)))
    return [mean_ns(step, repeats) for _ in range(MEANS)]


def recorded(step: Step, folder: Path, kind: str) -> None:
    options = {"steps": RECORDED, "warmup": 1, "timed": 0, "quiet": True}
    with capture(folder, **options, **KINDS[kind]) as recording:
        for _ in recording.steps():
            step()


def timed(work: Work, _out: Path, _kinds: Sequence[str]) -> dict[str, Any]:
    """What the step takes alone, and the step after the fix: each twice in turn, for minutes differ."""
    step = warmed(work.make(), 8)
    if work.after is None:
        times = pipelined_ns(step)
        return {"step_ns": int(statistics.median(times)), "means_ns": times}
    after = warmed(work.after(), 8)
    times, again = [], []
    for _ in range(2):
        times += pipelined_ns(step)
        again += pipelined_ns(after)
    found = {"after_ns": int(statistics.median(again)), "after_means_ns": again}
    found |= {"rules": work.rules, "module": work.module}
    return found | {"step_ns": int(statistics.median(times)), "means_ns": times}


def recorded_all(work: Work, out: Path, kinds: Sequence[str]) -> dict[str, Any]:
    """The captures of a step, and one of the step after its fix."""
    step = warmed(work.make())
    for kind in kinds:
        recorded(step, out / kind, kind)
    if work.after is not None:
        recorded(warmed(work.after()), out / "after", "both")
    return {"kinds": kinds}


PASSES: dict[str, Callable[[Work, Path, Sequence[str]], dict[str, Any]]] = {"step": timed, "recorded": recorded_all}
about_machine = cache(machine)


def too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError("took longer than its time")


def one(work: Work, out: Path, stage: str, kinds: Sequence[str]) -> None:
    """One model of a pass: OUT/NAME/PASS.json says what came of it."""
    target, begin = out / work.name, time.perf_counter()
    told = target / f"{stage}.json"
    if told.exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    signal.alarm(LIMIT_S)
    try:
        with torch.set_grad_enabled(work.training):
            found = PASSES[stage](work, target, kinds)
    except Exception as error:
        found = {"failed": reason(error)}
    signal.alarm(0)
    found["took_s"] = round(time.perf_counter() - begin, 1)
    about = {"name": work.name, "training": work.training, **about_machine(), **found}
    told.write_text(json.dumps(about, indent=1) + "\n")
    print(stage, work.name, json.dumps(found), flush=True)
    if "failed" in found:
        os._exit(1)  # the device may be out of use for this process


def worked(names: Sequence[str], out: Path, stage: str, kinds: Sequence[str], until: float) -> None:
    """Go through the models until one fails or the time is over."""
    os.environ["MASTER_PORT"] = str(29517 + os.getpid() % 1000)
    signal.signal(signal.SIGALRM, too_long)
    torch.set_num_threads(2)
    for work in works():
        if time.time() > until:
            return
        if not names or work.name in names:
            one(work, out, stage, kinds)
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="models (all of them)")
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after that long")
    parser.add_argument("--passes", nargs="*", choices=PASSES, default=list(PASSES))
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + chosen.seconds
    context = multiprocessing.get_context("spawn")
    for stage in chosen.passes:
        failed = True
        while failed and time.time() < until:
            process = context.Process(target=worked, args=(chosen.names, chosen.out, stage, chosen.kinds, until))
            process.start()
            process.join()
            failed = process.exitcode != 0


if __name__ == "__main__":
    main()
