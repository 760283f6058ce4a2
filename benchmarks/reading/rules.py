"""How long one rule takes over many rows, as a rule file: load, symbolise, match, bind, measure. One core.

    python -m benchmarks rules [ROWS] [RUNS]

Synthetic rows: a repeating layer of 29 kernels of 60 names in 8 families, 5 % replaced at random, on 8 streams. Prints
every run's CPU seconds, matches, and the highest memory held on top of the rows. Linux only (memory from /proc).

Then the built-in rules over who reads what, on a million operators or ROWS if fewer: a layer of a transformer again and
again, spelled out operator by operator, with a sort by expert and a convolution with its norm; 2 % of the operators
replaced at random.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tracemine.causes import load_rules
from tracemine.flow import Evidence
from tracemine.matching import Matches, Rule, find
from tracemine.matching.advice import FACTS
from tracemine.matching.load import Vocabulary, load_rule
from tracemine.rows.graph import MOST_AXES, NodeGraph, NodeTensors
from tracemine.rows.table import Categories, ColumnDoc, Flags, Numbers, Rows

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


# Operator, its class, and how many operators before it those stand that it reads.
SPELLED_OUT = (
    *(("copy", "copy", (1,)), ("pow", "pointwise", (1,)), ("mean", "reduction", (1,)), ("add", "pointwise", (1,))),
    *(("rsqrt", "pointwise", (1,)), ("mul", "pointwise", (1, 5)), ("copy", "copy", (1,)), ("mul", "pointwise", (1,))),
    *(("mm", "gemm", (1,)), ("mm", "gemm", (2,)), ("mm", "gemm", (3,))),
    *(("mul", "pointwise", (3,)), ("neg", "pointwise", (4,)), ("cat", "copy", (1, 5)), ("mul", "pointwise", (1,))),
    *(("add", "pointwise", (1, 4)), ("bmm", "gemm", (1, 6)), ("mul", "pointwise", (1,)), ("add", "pointwise", (1,))),
    *(("_softmax", "softmax", (1,)), ("copy", "copy", (1,)), ("bmm", "gemm", (1, 11)), ("mm", "gemm", (1,))),
    *(("add", "pointwise", (1, 24)), ("max", "reduction", (1,)), ("sort", "sort", (1,))),
    *(("cudnn_convolution", "conv", (3,)), ("native_batch_norm", "norm", (1,))),
)
MOST_OPERATORS = 1_000_000


def synthetic_graph(count: int) -> Rows:
    """Operators of one activity each, and who reads what."""
    random = np.random.default_rng(0)
    length = len(SPELLED_OUT)
    kinds = sorted({(name, op_class) for name, op_class, _ in SPELLED_OUT})
    which = np.array([kinds.index((name, op_class)) for name, op_class, _ in SPELLED_OUT])
    which = np.tile(which, count // length + 1)[:count]
    changed = random.random(count, np.float32) < 0.02
    which[changed] = random.integers(0, len(kinds), int(changed.sum()))
    back = np.array([[at, step] for at, (_, _, steps) in enumerate(SPELLED_OUT) for step in steps])
    consumer = (np.arange(0, count, length)[:, None] + back[:, 0]).ravel()
    producer = consumer - np.tile(back[:, 1], len(consumer) // len(back))
    kept = (consumer < count) & (producer >= 0)
    order = np.lexsort((producer[kept], consumer[kept]))
    consumer, producer = consumer[kept][order], producer[kept][order]
    proven = np.full(len(consumer), Evidence.PROVEN, np.int8)
    known, nothing = np.ones(count, np.bool_), np.zeros(count, np.bool_)
    entry = np.zeros(count, np.int64)
    shape = np.full((2, MOST_AXES), -1)
    shape[0, -3:] = 64
    tensors = NodeTensors(
        of=dict.fromkeys(("in0", "in1", "in2", "out"), entry),
        shape=shape,
        rank=np.array([3, -1]),
        strides=shape,
        has_strides=np.array([True, False]),
        dtype=np.array([0, -1]),
        dtypes=("float32",),
        axis=np.full(count, -1),
    )
    graph = NodeGraph(
        activity=np.arange(count),
        activity_begin=np.arange(count + 1),
        activity_node=np.arange(count),
        known=known,
        told=known,
        consumer=consumer,
        producer=producer,
        evidence=proven,
        usable=np.ones(len(consumer), np.bool_),
        passed=np.ones(len(consumer), np.bool_),
        read_begin=np.searchsorted(consumer, np.arange(count + 1)),
        read_buffer=producer,
        read_writer=producer,
        read_first=np.zeros(len(consumer), np.int64),
        read_last=np.ones(len(consumer), np.int64),
        read_evidence=proven,
        tensors_of=lambda: tensors,
        liveness_of=lambda: (nothing, True),
    )
    columns = {
        "kind": Categories(np.zeros(count, np.int32), ("kernel",)),
        "operation": Categories(which.astype(np.int32), tuple(name for name, _ in kinds)),
        "op_class": Categories(which.astype(np.int32), tuple(op_class for _, op_class in kinds)),
        "dtype": Categories(np.zeros(count, np.int32), ("int64",)),
        "running_statistics": Flags(np.array([name == "native_batch_norm" for name, _ in kinds])[which]),
        "compiled": Flags(nothing),
        "start_ns": Numbers(np.arange(count)),
        **{name: Numbers(np.zeros(count, np.int64)) for name in ("chain", "device", "stream", "segment")},
    }
    return Rows("activities", count, columns, graph)


def rule_from(text: str) -> Rule:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "benchmark"
        path.mkdir()
        (path / "rule.toml").write_text(HEAD + text)
        return load_rule(path, Vocabulary(DOCS, FACTS))


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
    graph = synthetic_graph(min(count, MOST_OPERATORS))
    print(f"{graph.count:,} operators, who reads what")
    for rule in (rule for rule in load_rules() if rule.match):
        runs_of_it = [measured(rule, graph) for _ in range(runs)]
        seconds = [cpu for _, cpu, _ in runs_of_it]
        print(
            f"{rule.id}: {len(runs_of_it[0][0]):,} matches, CPU s {' '.join(f'{s:.2f}' for s in seconds)}, "
            f"{max(peak for *_, peak in runs_of_it):+.0f} MB at the peak"
        )


if __name__ == "__main__":
    main()
