"""Emit 30 drop-in modules from recorded traces, and check each: `python -m benchmarks drop_ins [FOLDER] [--count N]`.
`--kept`: those that FOLDER holds are checked, and none is written. `--item NAME`: asks that alone.

Prints of how many modules each item holds. Without a GPU kernels run in Triton's interpreter, and what needs one is
left out. On a GPU launches are timed at the end, one module after another, when nothing else runs. What a graph needs
of CUDA alone (cuDNN's calls) is passed over.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

import torch

from tracemine.codegen.graph import Unsupported
from tracemine.findings.grouping import scan_of_variants
from tracemine.fix.kernel import drop_in, function_name
from tracemine.pipeline import analyse, mined
from tracemine.processes import Ended, Process, TooLate
from tracemine.programs import environment
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "fixtures/captures",
    "fixtures/kineto",
    "benchmarks/results/h200/programs_unseen",
    "benchmarks/results/h200/programs",
)
CHECKER = (sys.executable, "-P", str(Path(__file__).with_name("checked.py")))
LIMIT_S, MOST_LAUNCH_US = 600, 15.0


def traces() -> Iterator[tuple[Path, Path | None]]:
    """Yield recorded traces, each with its execution trace."""
    for folder in (ROOT / name for name in FOLDERS):
        for place in sorted(folder.iterdir()):
            trace = place / "trace.json.gz" if place.is_dir() else place
            if trace.is_file() and trace.name.endswith(".json.gz"):
                beside = trace.with_name("et.json.gz")
                yield trace, beside if place.is_dir() and beside.is_file() else None


def emitted(folder: Path, count: int, why: Counter[str]) -> list[Path]:
    """Write modules, each of other calls, a few of each trace. why: counts the reasons why others are none."""
    found: dict[tuple[str, ...], Path] = {}
    for trace, execution_trace in traces():
        analysis = analyse(trace, execution_trace=execution_trace)
        rebuilder, made = Rebuilder(analysis.dataflow, analysis.groups), 0
        for finding in fusable(scan_of_variants(mined(analysis)).reported):
            try:
                graph = rebuilder.rebuild(finding.activities[0], finding.rule).graph
                calls = tuple(call.label for call in graph.calls)
                if calls in found or any("cudnn" in call for call in calls) or made >= 4 or len(found) >= count:
                    continue
                name = function_name(finding.rule, finding.module)
                text = drop_in(graph, title=finding.title, name=name, says=[f"Trace     {trace.relative_to(ROOT)}"])
            except (Unsupported, NotRebuilt, NotRecorded) as error:
                why[str(error).partition(":")[0][:60]] += 1
                continue
            path = folder / f"{finding.fingerprint}_{name}.py"
            path.write_text(text)
            found[calls], made = path, made + 1
    return list(found.values())


def checked(path: Path, idle: SimpleQueue[Process], until: float) -> dict[str, str]:
    """Return what each item says of a module, by the next process that has nothing to do."""
    process = idle.get()
    try:
        if time.monotonic() > until:
            return {"right": "not checked: no time was left"}
        found: dict[str, str] = json.loads(process.ask(str(path).encode(), LIMIT_S))
    except TooLate:
        return {"right": f"took more than {LIMIT_S} s"}
    except Ended as ended:
        return {"right": ended.how}
    finally:
        idle.put(process)
    return found


def launches(paths: list[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield what calls take of the host, as it comes."""
    command = [*CHECKER, "--launch", *map(str, paths)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as ran:
        yield from zip(paths, map(json.loads, ran.stdout or ()), strict=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where modules are written and stay")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--emit", action="store_true", help="write modules, and check none")
    parser.add_argument("--kept", action="store_true", help="check what FOLDER holds, and write none")
    parser.add_argument("--item", action="append", default=[], help="ask that alone of each")
    parser.add_argument("--jobs", type=int, default=1, help="modules that are checked at once")
    parser.add_argument("--within", type=float, default=1e9, help="seconds after which no more are checked")
    given = parser.parse_args()
    until = time.monotonic() + given.within
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        why: Counter[str] = Counter()
        paths = sorted(folder.glob("*.py")) if given.kept else emitted(folder, given.count, why)
        print(f"{len(paths)} modules; none of: {dict(why.most_common(6))}", flush=True)
        if given.emit:
            return 0
        holds, left, wrong = Counter[str](), Counter[str](), set[Path]()
        idle: SimpleQueue[Process] = SimpleQueue()
        asked = (*CHECKER, *(f"--item={item}" for item in given.item))
        for _ in range(given.jobs):
            idle.put(stack.enter_context(Process(asked, {**environment(), "TORCHINDUCTOR_COMPILE_THREADS": "1"})))
        pool = stack.enter_context(ThreadPoolExecutor(given.jobs))
        for path, found in zip(paths, pool.map(partial(checked, idle=idle, until=until), paths), strict=True):
            faults = {item: text for item, text in found.items() if text and not text.startswith("not here")}
            holds.update(item for item, text in found.items() if not text)
            left.update(item for item, text in found.items() if text.startswith("not here"))
            wrong |= {path} if faults else set()
            print(f"{path.stem}: {faults or 'all hold'}", flush=True)
    for item in dict.fromkeys((*holds, *left)):
        print(f"{item:30} {holds[item]:3} of {len(paths)}" + (f", {left[item]} not asked" if left[item] else ""))
    wrong |= slow(paths) if torch.cuda.is_available() else set()
    print(f"{len(paths) - len(wrong)} of {len(paths)} modules pass all that was asked")
    return 1 if wrong or len(paths) < given.count else 0


def slow(paths: list[Path]) -> set[Path]:
    """Print what calls take of the host, and return the modules whose kernels take too much each."""
    each = dict[Path, float]()
    for path, one in launches(paths):
        print(f"{path.stem}: {one}", flush=True)
        each[path] = one["us"] / one["launches"] if "us" in one else math.inf
    known = [us for us in each.values() if us < math.inf]
    if known:
        print(f"a kernel takes {min(known):.1f} to {max(known):.1f} us of the host, {median(known):.1f} in the median")
    return {path for path in paths if each.get(path, math.inf) > MOST_LAUNCH_US}


if __name__ == "__main__":
    sys.exit(main())
