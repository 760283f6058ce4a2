"""Record the programs of causes/ on a CUDA machine: `python -m benchmarks record_causes OUT [--seconds S] [NAME...]`.

In OUT/NAME: `step.json` (what a step takes with nothing recording, and the step after its fixes), `before/` and
`after/` (what tracemine.capture writes, with stacks and an execution trace) and `recorded.json`. `--models` records the
models of causes/models.py instead, `--part` one part of the programs; record_compiled.py adds what torch.compile makes
of the models.

All steps are timed first, in a process that never records, for one that has recorded stays slower. What is there is
left alone, so that the same call goes on where one ended. What fails is said in its JSON and on a line, and the rest
goes on. Needs torch with CUDA; for `--models` the packages that they come from.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.causes.program import PARTS

RECORDED = 2  # steps in a trace
TIMED_S, MEANS, ROUNDS = 0.03, 3, 2  # how long steps run for a mean, how many of these at a time, and in turn
FROM_IDLE = 5  # steps that the host is timed at, each from an idle device on
LIMIT_S = {"step": 60, "recorded": 60}  # of one program
Making = Callable[[], Callable[[], Any]]


def warmed(make: Making, times: int) -> Callable[[], Any]:
    """The step with everything on the device, run a few times; random numbers from one seed."""
    import torch

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        step = make()
    for _ in range(times):
        step()
    torch.cuda.synchronize()
    return step


def pipelined_ns(step: Callable[[], Any]) -> list[int]:
    """What a step of many back to back takes: means of many, a moment each."""
    from benchmarks.recordings.record_models import mean_ns

    repeats = max(3, min(100, round(TIMED_S * 1e9 / max(mean_ns(step, 2), 1000))))
    return [mean_ns(step, repeats) for _ in range(MEANS)]


def timed(one: Any, _: Path) -> dict[str, Any]:
    """Before and after in turn, for minutes differ."""
    import torch

    steps = {"step": warmed(one.before, 6)}
    if one.after is not None:
        steps["after"] = warmed(one.after, 6)
    means: dict[str, list[int]] = {label: [] for label in steps}
    for _ in range(ROUNDS):
        for label, step in steps.items():
            torch.set_float32_matmul_precision("high")
            means[label] += pipelined_ns(step)
    found: dict[str, Any] = {f"{label}_ns": int(statistics.median(times)) for label, times in means.items()}
    hosts = {f"{label}_host_ns": host_ns(step) for label, step in steps.items()}
    return found | hosts | {"means_ns": means}


def host_ns(step: Callable[[], Any]) -> int:
    """How long the host is at a step that begins on an idle device: the median, as tracemine.capture takes it."""
    import torch

    torch.set_float32_matmul_precision("high")
    took = []
    for _ in range(FROM_IDLE):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        step()
        took.append(time.perf_counter_ns() - begin)
    torch.cuda.synchronize()
    return int(statistics.median(took))


def recorded(one: Any, out: Path) -> dict[str, Any]:
    """Captures of the step, and of the step after its fixes."""
    from tracemine.recording import capture

    for label, make in (("before", one.before), ("after", one.after)):
        if make is None:
            continue
        step = warmed(make, 4)
        with capture(out / label, steps=RECORDED, warmup=1, timed=0, quiet=True) as recording:
            for _ in recording.steps():
                step()
        del step
    return {"steps": RECORDED}


PASSES = {"step": timed, "recorded": recorded}


def works(chosen: argparse.Namespace) -> Sequence[Any]:
    if chosen.models:
        from benchmarks.causes.models import MODELS

        found: Sequence[Any] = MODELS
    else:
        from benchmarks.causes.program import programs

        found = programs([chosen.part] if chosen.part else PARTS)
    return [one for one in found if not chosen.names or one.name in chosen.names]


def too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError("took longer than its time")


def worked(chosen: argparse.Namespace, stage: str, until: float) -> None:
    """Go through the programs until the device is of no more use, or the time is over."""
    import torch

    from benchmarks.recordings.record_models import machine, reason

    signal.signal(signal.SIGALRM, too_long)
    torch.set_num_threads(4)
    about = machine()
    for one in works(chosen):
        target = chosen.out / one.name
        told = target / f"{stage}.json"
        if told.exists():
            continue
        if time.time() > until:
            return
        target.mkdir(parents=True, exist_ok=True)
        head = {"name": one.name, "training": one.training, **about}
        told.write_text(json.dumps({**head, "failed": "the process ended"}) + "\n")
        begin = time.perf_counter()
        signal.alarm(LIMIT_S[stage])
        try:
            with torch.set_grad_enabled(one.training):
                found = PASSES[stage](one, target)
        except Exception as error:
            found = {"failed": reason(error)}
        signal.alarm(0)
        found["took_s"] = round(time.perf_counter() - begin, 2)
        told.write_text(json.dumps({**head, **found}, indent=1) + "\n")
        print(stage, one.name, json.dumps(found), flush=True)
        gc.collect()
        if "failed" in found:
            usable()
        torch.cuda.empty_cache()


def usable() -> None:
    """End the process where the device, or the profiler, is of no more use to it."""
    import torch

    try:
        torch.cuda.synchronize()
        if torch.autograd._profiler_enabled():
            os._exit(1)
    except Exception:
        os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="programs, or models (all of them)")
    parser.add_argument("--seconds", type=float, default=3600, help="begin nothing after that long")
    parser.add_argument("--models", action="store_true", help="the models of causes/models.py")
    parser.add_argument("--part", choices=PARTS, help="of the programs (all)")
    parser.add_argument("--passes", nargs="*", choices=PASSES, default=["step", "recorded"])
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + chosen.seconds
    context = multiprocessing.get_context("spawn")
    for stage in chosen.passes:
        failed = True
        while failed and time.time() < until:
            process = context.Process(target=worked, args=(chosen, stage, until))
            process.start()
            process.join()
            failed = process.exitcode != 0
    broken = [path for path in sorted(chosen.out.glob("*/*.json")) if "failed" in json.loads(path.read_text())]
    print(f"{len(broken)} failed", *(f"{path.parent.name} {path.stem}" for path in broken), sep="\n   ")


if __name__ == "__main__":
    main()
