"""Emit 30 drop-in modules from recorded traces, and check each: `python -m benchmarks drop_ins [FOLDER] [--count N]`.

Prints of how many modules each item holds. Without a GPU kernels run in Triton's interpreter, and what needs one is
left out; on a GPU a line says how long launches take. What a graph needs of CUDA alone (cuDNN's calls) is passed over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tracemine.codegen.graph import Unsupported
from tracemine.findings.grouping import scan_of_variants
from tracemine.fix.drop_in import drop_in, function_name
from tracemine.pipeline import analyse, mined
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
LIMIT_S = 600


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


def checked(path: Path) -> dict[str, str]:
    """Return what each item says of a module."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("checked.py")), str(path)]
    try:
        ran = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=path.parent
        )
    except subprocess.TimeoutExpired:
        return {"right": f"took more than {LIMIT_S} s"}
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"right": f"ended with {ran.returncode}: {ran.stderr[-300:]}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where modules are written and stay")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--emit", action="store_true", help="write modules, and check none")
    parser.add_argument("--jobs", type=int, default=1, help="modules that are checked at once")
    given = parser.parse_args()
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory())
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        why: Counter[str] = Counter()
        paths = emitted(folder, given.count, why)
        print(f"{len(paths)} modules; none of: {dict(why.most_common(6))}", flush=True)
        if given.emit:
            return 0
        holds, left, wrong = Counter[str](), Counter[str](), 0
        took: list[float] = []
        pool = stack.enter_context(ThreadPoolExecutor(given.jobs))
        for path, found in zip(paths, pool.map(checked, paths), strict=True):
            took += [float(found.pop("launch_us"))] if "launch_us" in found else []
            faults = {item: text for item, text in found.items() if text and not text.startswith("not here")}
            holds.update(item for item, text in found.items() if not text)
            left.update(item for item, text in found.items() if text.startswith("not here"))
            wrong += bool(faults)
            print(f"{path.stem}: {faults or 'all hold'}", flush=True)
    for item in dict.fromkeys((*holds, *left)):
        print(f"{item:30} {holds[item]:3} of {len(paths)}" + (f", {left[item]} not asked" if left[item] else ""))
    if took:
        print(f"a call takes {min(took):.1f} to {max(took):.1f} us of the host, {median(took):.1f} in the median")
    print(f"{len(paths) - wrong} of {len(paths)} modules pass all that was asked")
    return 1 if wrong or len(paths) < given.count else 0


if __name__ == "__main__":
    sys.exit(main())
