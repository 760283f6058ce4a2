"""How long one rule takes over many rows, as a rule file: load, symbolise, match, bind, measure. One core.

    python benchmarks/rules.py [ROWS] [RUNS]

Synthetic rows: a repeating layer of 29 kernels of 60 names in 8 families, 5 % replaced at random, on 8 streams. Prints
every run's CPU seconds, matches, and the highest memory held on top of the rows. Linux only (memory from /proc).
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tracemine.matching import Matches, Rule, find, load_rule
from tracemine.rows.table import Categories, ColumnDoc, Numbers, Rows

FAMILIES = ("gemm", "elementwise", "cast", "norm", "reduce", "copy", "attention", "softmax")
NAMES = (8, 20, 6, 4, 4, 4, 8, 6)  # kernel names a family
# fmt: off
LAYER = (28, 0, 8, 9, 34, 1, 10, 46, 2, 11, 12, 28, 13, 29, 3, 14, 15, 16, 4, 17, 34, 38, 9, 10, 11, 12, 13, 5, 8)
# fmt: on

HEAD = 'title = "t"\nstatus = "experimental"\nwhat = "w"\nwhy = "y"\nfix = "f"\nsaving = "fuse"\n'
RULES = {
    "runs of 4 short kernels": """
pattern = "short{4,}"
[define]
short = { family = "elementwise", dur_ns.lt = 4_000 }
[measures]
kernels = "count(short)"
removable_ns = "sum(short.dur_ns)"
""",
    "gemm and its epilogue": """
pattern = "mm cast? pointwise{1,3} last"
[define]
mm = { family = "gemm" }
cast = { family = "cast" }
pointwise = { family = "elementwise" }
last = { family = ["cast", "norm"] }
[measures]
kernels = "count(cast, pointwise, last)"
removable_ns = "sum(cast.dur_ns, pointwise.dur_ns, last.dur_ns)"
""",
    "overlapping variables": """
pattern = "mm small{0,4} pointwise? last"
[define]
mm = { family = "gemm" }
small = { dur_ns.lt = 4_000 }
pointwise = { family = "elementwise" }
last = { family = ["cast", "norm"], gap_ns.lt = 8_000 }
[measures]
kernels = "count(small, pointwise)"
removable_ns = "sum(small.dur_ns)"
""",
}
DOCS = {
    "activities": tuple(
        ColumnDoc(name, kind, "")
        for name, kind in (
            ("family", "categories"),
            ("dur_ns", "numbers"),
            ("gap_ns", "numbers"),
            ("start_ns", "numbers"),
            ("device", "numbers"),
            ("stream", "numbers"),
        )
    )
}


def synthetic_rows(count: int, *, by_time: bool) -> Rows:
    """`by_time`: rows stand in order of start, the streams mixed; else one stream after the other."""
    random = np.random.default_rng(0)
    family_of = np.repeat(np.arange(8, dtype=np.int32), NAMES)
    name = np.tile(np.array(LAYER, np.int16), count // len(LAYER) + 1)[:count]
    changed = random.random(count, np.float32) < 0.05
    name[changed] = random.integers(0, len(family_of), int(changed.sum()))
    family = family_of[name]
    dur = random.integers(800, 40_000, count)
    dur[family == 1] //= 6
    gap = random.integers(200, 9_000, count)
    stream = np.sort(np.arange(count) % 8)
    if by_time:
        stream = np.ascontiguousarray(stream.reshape(8, -1).T.ravel()) if count % 8 == 0 else np.arange(count) % 8
    return Rows(
        "activities",
        count,
        {
            "family": Categories(family, FAMILIES),
            "dur_ns": Numbers(dur),
            "gap_ns": Numbers(gap),
            "start_ns": Numbers(np.cumsum(dur + gap)),
            "device": Numbers(np.zeros(count, np.int64)),
            "stream": Numbers(stream),
        },
    )


def rule_from(text: str) -> Rule:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "benchmark"
        path.mkdir()
        (path / "rule.toml").write_text(HEAD + text)
        return load_rule(path, DOCS)


def status_megabytes(field: str) -> float:
    """VmRSS (now) or VmHWM (the highest since it was reset) of this process, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measured(rule: Rule, rows: Rows) -> tuple[Matches, float, float]:
    """Matches, CPU seconds, and the megabytes that were held on top of what was held before."""
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = status_megabytes("VmRSS")
    start = time.process_time()
    matches = find(rule, rows)
    return matches, time.process_time() - start, status_megabytes("VmHWM") - before


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print(f"{count:,} rows; Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    for order, by_time in (("one stream after the other", False), ("in order of time", True)):
        rows = synthetic_rows(count, by_time=by_time)
        for title, text in RULES.items():
            rule = rule_from(text)
            runs_of_it = [measured(rule, rows) for _ in range(runs)]
            seconds = [cpu for _, cpu, _ in runs_of_it]
            print(
                f"{order}: {title}: {len(runs_of_it[0][0]):,} matches, CPU s {' '.join(f'{s:.2f}' for s in seconds)}, "
                f"{count / min(seconds) / 1e6:.1f} M rows/s, {max(peak for *_, peak in runs_of_it):+.0f} MB at the peak"
            )
        del rows


if __name__ == "__main__":
    main()
