"""Record whole models on a CUDA machine, eager and torch.compile: `python -m benchmarks record_models OUT [CASE...]`.

    python -m benchmarks record_models --prepare OUT [CASE...]     compile only, so that a later run finds it compiled;
                                                                   several at once share the cases

Per case of models.py, in OUT/CASE:
    eager/            what tracemine.capture records: trace.json.gz, et.json.gz, capture.json
    lean.json.gz      the same steps once more, shapes only
    compiled.json.gz  the same under torch.compile (default mode, dynamic=False), shapes only
    graph.json.gz     the eager step replayed as a CUDA graph (inference)
    inductor_*.py     the code that Inductor generated (--prepare)
    times.json        what a step takes with no profiler, and with what it was measured; or why the case failed

A case that has a times.json is left alone, so that the same call goes on where one ended. Needs torch with CUDA, and
transformers and torchvision for their models.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
import torch._inductor.utils
from torch.profiler import ProfilerActivity, profile, schedule

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.recordings.models import ALIKE, CASES, FRESH, UNSEEN, Case, Step
from tracemine.recording import capture

SETS = {"cases": CASES, "fresh": FRESH, "unseen": UNSEEN, "alike": ALIKE}
PARTS = ("eager", "compiled", "graph")
RECORDED = 2  # steps in a trace
REPEATS = 20  # of a step that is timed
LIMIT_S = {"prepare": 150, "record": 60}  # of one case


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


# -- times with no profiler --------------------------------------------------------------------------------------------


def warmed(step: Step, times: int = 4) -> Step:
    for _ in range(times):
        step()
    torch.cuda.synchronize()
    return step


def alone_ns(step: Step) -> int:
    """A step from an empty queue until the GPU is done: median."""
    taken = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        taken.append(time.perf_counter_ns() - begin)
    return int(statistics.median(taken))


def pipelined_ns(step: Step) -> int:
    """A step of many back to back, as the host runs ahead: median of three means."""
    return int(statistics.median(mean_ns(step, REPEATS) for _ in range(3)))


def mean_ns(step: Step, repeats: int) -> int:
    """A step of so many back to back: their mean."""
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(repeats):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - begin) // repeats


def host_ns(step: Step) -> int:
    """What the host needs to launch a step, from an empty queue: median."""
    taken = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        step()
        taken.append(time.perf_counter_ns() - begin)
    torch.cuda.synchronize()
    return int(statistics.median(taken))


def both_ns(label: str, step: Step) -> dict[str, int]:
    return {
        f"{label}_alone_ns": alone_ns(step),
        f"{label}_pipelined_ns": pipelined_ns(step),
        f"{label}_host_ns": host_ns(step),
    }


def graph_of(step: Step) -> Step:
    """The step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


# -- traces ------------------------------------------------------------------------------------------------------------


def trace(step: Step, path: Path) -> None:
    """A trace of a few steps with shapes and nothing else that costs the host."""
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=1, active=RECORDED, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
    ) as profiler:
        for number in range(1 + RECORDED):
            step()
            if number in (0, RECORDED):  # else the host runs ahead, as it does
                torch.cuda.synchronize()
            profiler.step()


# -- a case ------------------------------------------------------------------------------------------------------------


def prepare(case: Case, out: Path) -> dict[str, Any]:
    """Compile and keep the generated code."""
    _, codes = torch._inductor.utils.run_and_get_code(case.make(compiled))
    for number, code in enumerate(dict.fromkeys(codes)):
        (out / f"inductor_{number}.py").write_text(code)
    return {"generated": len(set(codes))}


def record(case: Case, out: Path, parts: Sequence[str]) -> dict[str, Any]:
    """The parts that are asked for; what fails besides the eager one is said, and the rest goes on."""
    found: dict[str, Any] = {}
    eager = warmed(case.make(unchanged))
    if "eager" in parts:
        found |= both_ns("eager", eager)
        trace(eager, out / "lean.json.gz")
        with capture(out / "eager", steps=RECORDED, warmup=1, timed=3, quiet=True) as recording:
            for _ in recording.steps():
                eager()
    if "compiled" in parts:
        with optional(found, "compiled_failed"):
            torch._dynamo.reset()
            begin = time.perf_counter()
            fused = warmed(case.make(compiled))
            found["compile_s"] = round(time.perf_counter() - begin, 1)
            found |= both_ns("compiled", fused)
            trace(fused, out / "compiled.json.gz")
    if "graph" in parts and not case.training:
        with optional(found, "graph_failed"):
            replay = warmed(graph_of(eager))
            found |= both_ns("graph", replay)
            trace(replay, out / "graph.json.gz")
    return found


@contextmanager
def optional(found: dict[str, Any], key: str) -> Iterator[None]:
    """What fails inside is noted and does not end the case."""
    try:
        yield
    except Exception as error:
        found[key] = reason(error)


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0][:300]


def too_long(_signal: int, _frame: object) -> None:
    raise TimeoutError("the case took longer than its time")


def machine() -> dict[str, Any]:
    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0],
        "cuda": torch.version.cuda,
        **{name: installed(name) for name in ("torch", "triton", "transformers", "torchvision")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="cases (all of them)")
    parser.add_argument("--prepare", action="store_true", help="only compile, and keep the generated code")
    parser.add_argument("--set", choices=SETS, default="cases", help="of models.py (cases)")
    parser.add_argument("--only", choices=PARTS, help="record this part alone")
    chosen = parser.parse_args()
    parts = [chosen.only] if chosen.only else PARTS
    # Several processes prepare side by side: whose kernel is faster is then not to be kept for the recording.
    torch._inductor.config.autotune_local_cache = False
    signal.signal(signal.SIGALRM, too_long)
    about = machine()
    for case in SETS[chosen.set]:
        if chosen.names and case.name not in chosen.names:
            continue
        out = chosen.out / case.name
        out.mkdir(parents=True, exist_ok=True)
        told = out / ("prepared.json" if chosen.prepare else "times.json")
        if told.exists():
            continue
        head = {"name": case.name, "says": case.says, "training": case.training, **about}
        told.write_text(json.dumps({**head, "failed": "the process ended"}) + "\n")
        begin = time.perf_counter()
        torch.manual_seed(0)
        try:
            signal.alarm(LIMIT_S["prepare" if chosen.prepare else "record"])
            with torch.set_grad_enabled(case.training):
                found = prepare(case, out) if chosen.prepare else record(case, out, parts)
        except Exception as error:
            found = {"failed": reason(error)}
        finally:
            signal.alarm(0)
        found["took_s"] = round(time.perf_counter() - begin, 1)
        told.write_text(json.dumps({**head, **found}, indent=1) + "\n")
        print(case.name, json.dumps(found), flush=True)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
