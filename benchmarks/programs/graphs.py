"""Hold what `top --graphs` says against really trying: `python benchmarks/programs/graphs.py RECORDINGS`.

    graphs.py RECORDINGS                  hold it against the results in RECORDINGS/runs.json, as run.py writes them
    graphs.py RECORDINGS --try OUT [PROGRAM...]
                                          try torch.cuda.graph and each mode of torch.compile on a GPU, into OUT

What is looked at of a program is the function or the module that its user would give to torch.compile; for
`torch.cuda.graph` the step. "works": it ran, computed the same and, where that was looked at (--try), as one graph a
call: no graph break and no CUDA graph left out. What runs.json holds says only whether it ran, and how long a step took
then: there `works` asks for a gain of 5 %, and what ran without one is right where the record says that it fails, that
nothing is replayed, or that the saving is below 5 % of the step.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from programs.run import programs

GAIN, CLOSE = 0.05, 0.15
WAYS = {
    "cuda_graph": None,
    "compile": {},
    "compile_reduce_overhead": {"mode": "reduce-overhead"},
    "compile_max_autotune": {"mode": "max-autotune"},
}
NAMES = {
    "cuda_graph": "cuda_graph",
    "compile": "default",
    "compile_reduce_overhead": "reduce_overhead",
    "graphs_by_step": "graphs_by_step",
    "compile_max_autotune": "max_autotune",
}
LIMIT_S = 240


def record_of(folder: Path) -> Any:
    """The record of a recording, as `top --graphs` prints it."""
    from tracemine.api.pictures import tops_of
    from tracemine.pipeline import ScanOptions, analyse, mined

    analysis = analyse(folder)
    return tops_of(analysis, mined(analysis), ScanOptions()).graphs()


def wrapped(name: str) -> list[tuple[str, str]]:
    """Kind and name of what a program gives to torch.compile: a function's `file:line name`, a module's class."""
    import torch

    found: list[tuple[str, str]] = []

    def seen(function: Any) -> Any:
        code = getattr(function, "__code__", None)
        if code is None:
            found.append(("module", type(function).__name__))
        else:
            found.append(("function", f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_name}"))
        return function

    torch.manual_seed(0)
    programs()[name].make(wrap=seen)
    return found


def spans_of(record: Any, given: Sequence[tuple[str, str]]) -> list[Any]:
    """The record's spans of what was wrapped; the step stands for what is not among them."""
    spans, taken = [], set[int]()
    for kind, name in given:
        for at, span in enumerate(record.spans):
            same = span.line == name if kind == "function" else re.fullmatch(re.escape(name) + r"_\d+", span.name)
            if span.kind == kind and same and at not in taken:
                taken.add(at)
                spans.append(span)
                break
    return spans


def said(record: Any, spans: Sequence[Any], way: str) -> tuple[str, str]:
    """Outcome and effect of the way in the gravest of some spans; of the step for a capture."""
    asked = [record.step] if way == "cuda_graph" else spans
    ways = [span.way(NAMES[way]) for span in asked]
    for outcome in ("fails", "unknown", "works"):
        for one in ways:
            if one.outcome == outcome:
                return outcome, one.effect or ""
    return "unknown", "not among the spans"


def measured(one: Mapping[str, Any], eager_ns: int) -> str | None:
    """What really came of it; None: it tells nothing."""
    if "error" in one:
        return None if "not built" in one["error"] else "raises"
    if not one.get("same_output", True):
        return "differs"
    if one.get("breaks") or one.get("skips"):
        return "breaks" if one.get("breaks") else "skips"
    return "gains" if one["step_ns"] <= (1 - GAIN) * eager_ns else "no gain"


def right(outcome: str, real: str, saves: float, *, tried: bool) -> bool:
    """Whether an outcome is what really came. saves: the share of the step that the record says."""
    if tried:
        return (outcome == "works") == (real in ("gains", "no gain"))
    if real == "gains":
        return outcome == "works"
    if real == "no gain":
        return outcome == "fails" or saves < GAIN
    return outcome == "fails"


def table(folder: Path, runs: Mapping[str, Any], *, tried: bool) -> None:
    """Print what is said beside what came of it, and count."""
    print("| program | way | said | by | really | step, ms | after, ms | said after | |")
    print("|---|---|---|---|---|--:|--:|--:|---|")
    counts: Counter[str] = Counter()
    errors: dict[str, list[float]] = {}
    for name, variants in runs.items():
        if not (folder / name / "capture.json").exists():
            continue
        record = record_of(folder / name)
        spans, eager_ns = spans_of(record, wrapped(name)), variants["eager"]["step_ns"]
        for way in WAYS:
            real = measured(variants[way], eager_ns) if way in variants else None
            if real is None:
                continue
            outcome, effect = said(record, spans, way)
            asked = [record.step] if way == "cuda_graph" else spans
            each = [one.saving_ns.mid for span in asked if (one := span.way(NAMES[way])).saving_ns]
            step_ns = record.unprofiled_ns or 0
            saves = sum(each) / record.steps / step_ns if step_ns else 0.0
            verdict = (
                "abstains" if outcome == "unknown" else "right" if right(outcome, real, saves, tried=tried) else "WRONG"
            )
            counts[verdict] += 1
            counts[f"{verdict}, {'works' if real in ('gains', 'no gain') else 'does not'}"] += 1
            after = variants[way].get("step_ns")
            # A host of another pace takes another time for what is left to it; for one graph nothing is.
            told = (step_ns if way == "cuda_graph" else eager_ns) * (1 - saves)
            if after and outcome == "works":
                errors.setdefault(way, []).append(abs(told / after - 1))
            cells = [name, way, outcome, effect, real, f"{eager_ns / 1e6:.2f}", f"{after / 1e6:.2f}" if after else ""]
            print(f"| {' | '.join([*cells, f'{told / 1e6:.2f}', verdict])} |")
    print(f"\n{dict(sorted(counts.items()))}")
    for way, each in errors.items():
        close = sum(error <= CLOSE for error in each)
        print(f"{way}: the step after it as said, of those that work: {close} of {len(each)} within {CLOSE:.0%}")


def attempt(pipe: Any, name: str, way: str, out: str) -> None:
    """Try one way of one program, in a process of its own: what it computed goes to `out`."""
    import torch

    from programs.host import graph_of
    from programs.run import settled, timed

    try:
        torch.manual_seed(0)
        program = programs()[name]
        torch.set_grad_enabled(program.training)
        with torch.device("cuda"):
            options = WAYS.get(way)
            wrap = {} if options is None else {"wrap": lambda function: torch.compile(function, **options)}
            step = program.make(**wrap)
        step = graph_of(step) if way == "cuda_graph" else step
        first = step()
        torch.save(first.detach().double().cpu(), out)
        for _ in range(4):
            step()
        settled()
        counters = torch._dynamo.utils.counters
        breaks, skips = sum(counters["graph_break"].values()), counters["inductor"]["cudagraph_skips"]
        replays = way in ("compile_reduce_overhead", "compile_max_autotune")
        pipe.send({"step_ns": timed(step), "breaks": breaks, "skips": skips if replays else 0})
    except Exception as error:  # a way that raises is a result
        told = str(error).strip().splitlines() or [""]
        pipe.send({"error": f"{type(error).__name__}: {told[0][:300]}", "step_ns": None})


def tried(names: Sequence[str], out: Path) -> dict[str, Any]:
    """Try each way of each program, one at a time."""
    from programs.run import difference

    context, runs = multiprocessing.get_context("spawn"), {}
    for name in names:
        results: dict[str, Any] = {}
        for way in ("eager", *WAYS):
            pipe, end = context.Pipe()
            output = out / f"{name}.{way}.pt"
            process = context.Process(target=attempt, args=(end, name, way, str(output)))
            process.start()
            result = pipe.recv() if pipe.poll(LIMIT_S) else {"error": f"not built after {LIMIT_S} s", "step_ns": None}
            process.kill()
            if way != "eager" and output.exists() and (out / f"{name}.eager.pt").exists():
                apart = difference(out / f"{name}.eager.pt", output)
                result["same_output"] = apart is not None and apart <= programs()[name].tolerance
            results[way] = result
            print(f"{name} {way}: {result}", flush=True)
        runs[name] = results
        (out / "graphs.json").write_text(json.dumps({"programs": runs}, indent=1))
    return runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--try", dest="out", type=Path, metavar="OUT")
    options = parser.parse_intermixed_args()
    runs = json.loads((options.recordings / "runs.json").read_text("utf-8"))["programs"]
    chosen = {name: run for name, run in runs.items() if not options.programs or name in options.programs}
    if not options.out:
        table(options.recordings, chosen, tried=False)
        return 0
    import torch

    if not torch.cuda.is_available():
        for name in chosen:
            print(f"{name}: {', '.join(' '.join(each) for each in wrapped(name))}")
        print("the rest needs a GPU: torch.cuda.graph captures nothing elsewhere", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    table(options.recordings, tried(list(chosen), options.out), tried=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
