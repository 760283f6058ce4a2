"""What a recorded model shows and what is predicted of it. prediction.py prints it, models_kernels.py each kernel.

A folder holds what record_models.py writes. Times are nanoseconds of one step.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.predictions.inductor_code import Code, read
from tracemine.columns import numbers
from tracemine.findings import device_of, find
from tracemine.flow import Evidence, Flow
from tracemine.fusion import Groups
from tracemine.matching import Rule, mine
from tracemine.ops import COMPUTE_BOUND_CLASSES
from tracemine.perfmodel import Curves, Prediction, Unfused, one_kernel
from tracemine.pipeline import analyse
from tracemine.rows import Rows
from tracemine.rows.table import BoolArray, IntArray, Numbers
from tracemine.timeline import Timeline

FloatArray = npt.NDArray[np.float64]

TRACES = {"eager": "eager", "lean": "lean.json.gz", "compiled": "compiled.json.gz", "graph": "graph.json.gz"}
SAME_KERNELS = 0.97  # of a graph's and eager's kernels, by name, that are the same; below, the graph runs others

_COPIES = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::cat", "aten::stack")


# -- what a trace shows ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trace:
    timeline: Timeline
    flow: Flow
    groups: Groups
    rows: dict[str, Rows]
    steps: int

    @classmethod
    def read(cls, path: Path) -> Trace:
        found = analyse(path)
        steps = max(found.timeline.steps.num_rows, 1)
        return cls(found.timeline, found.dataflow, found.groups, found.rows, steps)

    @property
    def dur_ns(self) -> IntArray:
        return self.numbers("dur_ns").values.astype(np.int64)

    @property
    def memory(self) -> BoolArray:
        """For each activity, whether it is memory-bound and no library's own."""
        return ~self.of_class(*COMPUTE_BOUND_CLASSES) & ~self.rows["activities"].columns["auxiliary"].values

    def of_class(self, *classes: str) -> BoolArray:
        return self.told("op_class", lambda name: name in classes) > 0

    @property
    def copies(self) -> BoolArray:
        """For each activity, whether its operator copied and changed no type: into another layout or place."""
        nodes, node = self.flow.nodes, self.groups.activity_node
        widths = np.zeros((2, len(nodes)), np.int64)
        item = numbers(self.flow.timeline.tensors.column("itemsize_bytes"), 0)
        for width, part in zip(widths, (self.flow.reads, self.flow.writes), strict=True):
            np.maximum.at(width, part.node, item[part.tensor_row])
        read, written = widths
        same = np.append((read == written) | (read == 0), True)[node]
        return (self.told("op", lambda name: name in _COPIES) > 0) & same

    @property
    def kernels(self) -> BoolArray:
        """For each activity, whether it is a kernel: no copy or set of the driver's."""
        return self.told("kind", lambda kind: kind == "kernel") > 0

    def moves(self, code: Code) -> BoolArray:
        """For each activity, whether Inductor made it to move data and nothing else."""
        return self.told("name", code.moves) > 0

    def finishing(self, code: Code) -> FloatArray:
        """For each activity, the share of its kernel's launches that only finish what another kernel began."""
        return self.told("name", lambda name: code.finishing.get(name, 0.0))

    def told(self, column: str, by: Callable[[str], float]) -> FloatArray:
        """For each activity, what `by` says of its text in a column, asked once a text; 0 where there is none."""
        texts = self.rows["activities"].columns[column]
        return np.array([*map(by, texts.values), 0.0])[texts.codes]

    def numbers(self, name: str) -> Numbers:
        return self.rows["activities"].columns[name]

    def step_ns(self, which: BoolArray) -> int:
        return int(self.dur_ns[which].sum()) // self.steps

    def a_step(self, which: BoolArray) -> float:
        return float(which.sum()) / self.steps


# -- predicted ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The memory-bound part of a step once every group is one kernel."""

    memory_ns: int
    low_ns: int
    high_ns: int
    kernels: float  # without those that only move data or finish sums
    grouped: float  # activities that are in groups
    fused_ns: FloatArray  # of each group


def predicted(trace: Trace, curves: Curves) -> Predicted:
    found, dur = trace.groups, trace.dur_ns
    member = found.activity_group >= 0
    of_group = np.bincount(found.activity_group[member], dur[member], len(found))
    of_node = np.bincount(found.activity_node[member], dur[member], len(found.node_group))
    ends = np.zeros((3, len(found)))
    launched = np.ones(len(found))
    computes = np.bincount(found.activity_group[member], ~trace.copies[member], len(found)) > 0
    for at in range(len(found)):
        nodes = found.node[found.begin[at] : found.begin[at + 1]].tolist()
        members = [
            Unfused(reads=int(found.node_reads[n]), writes=int(found.node_writes[n]), dur_ns=of_node[n]) for n in nodes
        ]
        kernel = found.kernels[found.kernel[at]]
        after = one_kernel(kernel, members, curves, sure=found.evidence[at] != Evidence.ADJACENT).after_ns
        launched[at] = unfinished(curves.predict(kernel))
        ends[:, at] = np.minimum((after.low, after.mid, after.high), of_group[at])
    alone = trace.memory & ~member
    rest = int(dur[alone].sum())
    low, mid, high = ((rest + int(end.sum())) // trace.steps for end in ends)
    return Predicted(
        memory_ns=mid,
        low_ns=low,
        high_ns=high,
        kernels=(int((alone & trace.kernels & ~trace.copies).sum()) + float(launched[computes].sum())) / trace.steps,
        grouped=trace.a_step(member),
        fused_ns=ends[1],
    )


def unfinished(prediction: Prediction) -> int:
    """Kernels without those that only finish partial sums: one of each two, where a reduction is split."""
    count = prediction.kernels
    return count - count // 2 if prediction.kind in ("columns", "split") else count


# -- a case ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One model, nanoseconds and kernels of one step. Null: not recorded."""

    name: str
    says: str
    training: bool
    eager_gpu_ns: int
    eager_memory_ns: int
    eager_memory_kernels: float
    predicted_memory_ns: int
    predicted_low_ns: int
    predicted_high_ns: int
    predicted_kernels: float
    lean_memory_ns: int | None
    lean_gpu_ns: int | None
    lean_eager_memory_ns: int | None
    compiled_gpu_ns: int | None
    compiled_memory_ns: int | None
    compiled_kernels: float | None
    compiled_moves_ns: int | None
    eager_attention: float  # kernels that are attention as one operation
    compiled_attention: float | None
    compiled_moves: float | None
    eager_step_ns: int  # no profiler
    compiled_step_ns: int | None
    graph_step_ns: int | None
    graph_same: float | None  # of its kernels and eager's, those that both run
    gap_saving_ns: int  # that gap findings claim of a step, mid
    lean_gap_saving_ns: int | None

    @property
    def error(self) -> float | None:
        """Points of eager GPU time by which the predicted memory-bound part is off; above 0 is predicted slower."""
        if self.compiled_memory_ns is None:
            return None
        return 100 * (self.predicted_memory_ns - self.compiled_memory_ns) / self.eager_gpu_ns

    @property
    def held(self) -> bool:
        """Whether the interval, group by group end to end, holds what torch.compile took."""
        return self.predicted_low_ns <= (self.compiled_memory_ns or -1) <= self.predicted_high_ns

    @property
    def kernel_error(self) -> float | None:
        """Percent by which the predicted number of kernels is off torch.compile's."""
        return 100 * (self.predicted_kernels / self.compiled_kernels - 1) if self.compiled_kernels else None

    @property
    def same_attention(self) -> bool:
        """Whether the compiled step has attention where eager has it: a model's code can tell that it is traced."""
        return self.eager_attention == self.compiled_attention

    @property
    def lean_error(self) -> float | None:
        """Points by which the saving without an execution trace differs from the one with."""
        if self.lean_memory_ns is None or self.lean_eager_memory_ns is None or self.lean_gpu_ns is None:
            return None
        lean = (self.lean_eager_memory_ns - self.lean_memory_ns) / self.lean_gpu_ns
        return 100 * (lean - (self.eager_memory_ns - self.predicted_memory_ns) / self.eager_gpu_ns)

    @property
    def busy(self) -> float:
        """Of a step, the part that the GPU is busy."""
        return self.eager_gpu_ns / self.eager_step_ns

    @property
    def idle_ns(self) -> int:
        """Of a step, what the GPU is not busy: no gap can give back more."""
        return max(self.eager_step_ns - self.eager_gpu_ns, 0)

    @property
    def same_graph(self) -> bool:
        return self.graph_same is not None and self.graph_same >= SAME_KERNELS

    @property
    def gap_error(self) -> float | None:
        """Percent by which the claimed saving is off what a graph's replay saves."""
        if self.graph_step_ns is None or not self.same_graph:
            return None
        saved = self.eager_step_ns - self.graph_step_ns
        return 100 * (self.gap_saving_ns - saved) / saved if saved > 0 else None


def outcome(folder: Path, curves_of: Callable[[Timeline], Curves], rules: Sequence[Rule]) -> Outcome | str:
    """The case in `folder`, or why there is none."""
    times = json.loads((folder / "times.json").read_text("utf-8"))
    if "failed" in times:
        return f"{folder.name}: {times['failed']}"
    traces = {name: Trace.read(folder / path) for name, path in TRACES.items() if (folder / path).exists()}
    eager, lean, compiled, graph = (traces.get(name) for name in TRACES)
    if eager is None:
        return f"{folder.name}: no eager trace"
    everything = np.ones(len(eager.dur_ns), bool)
    curves = curves_of(eager.timeline)
    fused = predicted(eager, curves)
    code = read(sorted(folder.glob("inductor_*.py")))
    moves = compiled and compiled.moves(code)
    closing = [rule for rule in rules if rule.rows == "gaps"]
    return Outcome(
        name=folder.name,
        says=times["says"],
        training=times["training"],
        eager_gpu_ns=eager.step_ns(everything),
        eager_memory_ns=eager.step_ns(eager.memory),
        eager_memory_kernels=eager.a_step(eager.memory),
        predicted_memory_ns=fused.memory_ns,
        predicted_low_ns=fused.low_ns,
        predicted_high_ns=fused.high_ns,
        predicted_kernels=fused.kernels,
        lean_memory_ns=lean and predicted(lean, curves).memory_ns,
        lean_gpu_ns=lean and lean.step_ns(lean.dur_ns >= 0),
        lean_eager_memory_ns=lean and lean.step_ns(lean.memory),
        compiled_gpu_ns=compiled and compiled.step_ns(compiled.dur_ns >= 0),
        compiled_memory_ns=compiled and compiled.step_ns(compiled.memory),
        compiled_kernels=compiled and computing(compiled, code),
        eager_attention=eager.a_step(eager.of_class("attention")),
        compiled_attention=compiled and compiled.a_step(compiled.of_class("attention")),
        compiled_moves_ns=compiled and compiled.step_ns(moves),
        compiled_moves=compiled and compiled.a_step(moves),
        eager_step_ns=step_ns(times, "eager") or 0,
        compiled_step_ns=step_ns(times, "compiled"),
        graph_step_ns=step_ns(times, "graph"),
        graph_same=graph and same_kernels(eager, graph),
        gap_saving_ns=claimed(eager, closing),
        lean_gap_saving_ns=lean and claimed(lean, closing),
    )


def computing(compiled: Trace, code: Code) -> float:
    """Memory-bound kernels of a compiled step, without those that only move data or finish what another began."""
    counted = compiled.memory & compiled.kernels & ~compiled.moves(code)
    return float((1 - compiled.finishing(code))[counted].sum()) / compiled.steps


def step_ns(times: dict[str, Any], label: str) -> int | None:
    """Steps back to back are no slower than steps alone: where they were measured so, something else ran meanwhile."""
    return min((times[key] for key in (f"{label}_pipelined_ns", f"{label}_alone_ns") if key in times), default=None)


def same_kernels(one: Trace, other: Trace) -> float:
    """Of the kernels of a step of both, by name, the share that both run."""
    a, b = (
        Counter(column.values[code] for code in column.codes.tolist())
        for column in (trace.rows["activities"].columns["name"] for trace in (one, other))
    )
    first, second = ({name: n / t.steps for name, n in own.items()} for own, t in ((a, one), (b, other)))
    shared = sum(min(n, second.get(name, 0)) for name, n in first.items())
    return shared / max(sum(first.values()), sum(second.values()), 1)


def claimed(trace: Trace, rules: Sequence[Rule]) -> int:
    """Step time that a scan with these rules alone claims, mid: what others leave of it is another question."""
    matches, device = mine(trace.rows, rules), device_of(trace.timeline)
    found = find(trace.timeline, trace.rows, matches, device, groups=trace.groups, min_saving_ns=0)
    return sum(f.step_saving_ns.mid for f in found.findings) // trace.steps
