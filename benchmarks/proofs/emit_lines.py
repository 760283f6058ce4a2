"""How long reproductions are, of how many findings there is one, and whether each runs where tracemine is not.

    python -m benchmarks emit_lines TRACE… [-o DIR] [--run] [--jobs N] [--seconds S]

Every fusable finding of the traces, each chain once, is written as `tracemine verify --emit` writes it. Printed are the
lines a file (those of one kernel, and those of several), the longest, and beside them how many findings have none, and
why. --run: each file is run in a process of its own, in which tracemine cannot be imported, on the CPU; how they end is
counted. --seconds: of one file. Exits with 1 where a file of one kernel has more than 150 lines, or does not pass; a
kernel that has so many itself is named, and fails nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tracemine.causes import CAUSES
from tracemine.codegen.graph import Graph
from tracemine.pipeline import analyse, mined
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.pipeline import fusable
from tracemine.verify.prepare import prepared
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.repro.harness import NAME

MOST_LINES = 150
NEEDS_GPU = "this needs a GPU"
# Python runs this when it starts: what it has of tracemine, it has not.
WITHOUT = """
import sys
class _Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tracemine":
            raise ModuleNotFoundError("tracemine is not here")
sys.meta_path.insert(0, _Without())
"""


class Plain(Emitter):
    """Compiles nothing: registers of cuts are a comment in a line that is there anyway."""

    def fitted(self, text: str, graph: Graph) -> str:
        return text


def written(trace: Path, folder: Path, seen: dict[str, str], reasons: Counter[str]) -> tuple[int, int, int]:
    """Findings of a trace, those that have a file, and those whose file another trace's finding has already."""
    analysis = analyse(trace)
    findings = fusable(mined(analysis).findings)
    rebuilder = Rebuilder(analysis.dataflow, analysis.groups)
    emitted = again = 0
    own = folder / trace.parent.name if trace.name == "both" else folder / trace.name
    with Plain(own) as emitter:
        for finding in findings:
            bugs = Bugs()
            ready = bugs.tried(lambda: prepared(finding, rebuilder, emitter, None, bugs, CAUSES))  # noqa: B023
            if isinstance(ready, str) or not ready.texts:
                why = ready if isinstance(ready, str) else str(ready.candidates[0].refused)
                reasons[re.sub(r"\d[\d,]*", "N", why)[:100]] += 1
                continue
            emitted += 1
    for path in sorted(own.glob("*.py") if own.is_dir() else ()):
        text = path.read_text("utf-8")
        chain = text[text.index("\n# --- ") :] if "\n# --- " in text else text
        if path.name != NAME and seen.setdefault(chain, str(path)) != str(path):
            path.unlink()
            again += 1
    return len(findings), emitted, again


def kernels(text: str) -> int:
    """How many kernel functions a file has: parts that share a launch are one each."""
    return text.count("@triton.jit")


def of_kernel(text: str) -> int:
    """How many lines a file's kernel has, as it was judged."""
    return len(text[text.index("@triton.jit") :].partition("\n\n")[0].splitlines())


def ran(path: Path, without: Path, seconds: float) -> tuple[Path, str, float]:
    """How a file ends on the CPU."""
    environment = {**os.environ, "PYTHONPATH": str(without), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    try:
        ended = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=seconds, env=environment, cwd=without
        )
    except subprocess.TimeoutExpired:
        return path, f"longer than {seconds:g} s", seconds
    said = (ended.stderr.strip().splitlines() or ["nothing was said"])[-1][:160]
    wrong = [line.strip() for line in ended.stdout.splitlines() if "WRONG" in line or line.startswith("  ")]
    how = "passes" if ended.returncode == 0 else wrong[0] + ": " + wrong[-1][:120] if wrong else said
    if how == "passes" and "not compared" in ended.stdout:
        how = "runs, draws random numbers"
    if how == "passes" and "not tried here" in ended.stdout:
        how = "passes, the library's call is not tried"
    return path, how, time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="a folder that keeps the files")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = given.output or Path(scratch) / "emitted"
        seen: dict[str, str] = {}
        reasons: Counter[str] = Counter()
        every = has = twice = 0
        for trace in given.traces:
            findings, emitted, again = written(trace, folder, seen, reasons)
            every, has, twice = every + findings, has + emitted, twice + again
            print(f"{trace}: {emitted} of {findings}", file=sys.stderr, flush=True)
        paths = sorted(Path(path) for path in seen.values())
        failed = report(paths)
        print(f"{has} of {every} findings have a file ({has / max(every, 1):.1%}); {twice} files are another's again")
        for why, count in reasons.most_common():
            print(f"  {count:4} {why}")
        if given.run:
            failed += run_all(paths, Path(scratch), given.jobs, given.seconds)
    return int(failed > 0)


def report(paths: list[Path]) -> int:
    """Prints lines a file. How many of one kernel have too many."""
    lines: dict[str, list[tuple[int, Path]]] = {}
    for path in paths:
        text = path.read_text("utf-8")
        count = kernels(text)
        kind = "no kernel" if not count else "one kernel" if count == 1 else "several kernels"
        lines.setdefault(kind, []).append((len(text.splitlines()), path))
    for kind, found in lines.items():
        found.sort()
        counts = [count for count, _ in found]
        marks = [counts[int(share * (len(counts) - 1))] for share in (0, 0.25, 0.5, 0.75, 0.9, 1)]
        over = sum(count > MOST_LINES for count in counts)
        print(f"{kind}: {len(counts)} files, lines {marks} (least, 25, 50, 75, 90 %, most)")
        print(f"  {len(counts) - over} of {len(counts)} have {MOST_LINES} at most")
        for count, path in found[-3:] if kind != "one kernel" else [f for f in found if f[0] > MOST_LINES][-12:]:
            own = f" (of them the kernel {of_kernel(path.read_text('utf-8'))})" if kind == "one kernel" else ""
            print(f"  {count:5} {path.parent.name}/{path.name}{own}")
    if paths:
        print(f"mean {statistics.mean(c for found in lines.values() for c, _ in found):.0f} lines")
    beyond = [path for count, path in lines.get("one kernel", []) if count > MOST_LINES]
    return sum(of_kernel(path.read_text("utf-8")) <= MOST_LINES for path in beyond)


def run_all(paths: list[Path], scratch: Path, jobs: int, seconds: float) -> int:
    """Runs every file. How many do not pass."""
    without = scratch / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text(WITHOUT, "utf-8")
    ends: Counter[str] = Counter()
    took: list[float] = []
    bad = 0
    with ThreadPoolExecutor(jobs) as pool:
        for path, how, spent in pool.map(lambda path: ran(path, without, seconds), paths):
            needs = NEEDS_GPU in how
            ends["not tried: needs a GPU" if needs else how if how.startswith(("passes", "runs")) else "FAILS"] += 1
            took.append(spent)
            if not how.startswith(("passes", "runs")):
                bad += not needs
                print(f"  {path.parent.name}/{path.name}: {how}", flush=True)
    print(f"run without tracemine: {dict(ends)}, {statistics.median(took):.1f} s a file, {max(took):.1f} at most")
    return bad


if __name__ == "__main__":
    sys.exit(main())
