"""The environment that advice depends on: facts of the whole trace, looked up once, and of a finding's place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tracemine.columns import sorted_unique, string_ids
from tracemine.matching.advice import Fact
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, Categories, Flags, IntArray, Rows, category, number
from tracemine.timeline import Timeline
from tracemine.units import count_text

# Operators' namespaces, and folders of Python files, that only these engines have.
_ENGINES = (
    ("vllm", re.compile(r"^(vllm|_C_cache_ops)::|(^|[/\\])vllm[/\\]")),
    ("sglang", re.compile(r"^(sgl_kernel|sglang)::|(^|[/\\])sglang[/\\]")),
)
# What shows PyTorch in a profile that records no operators: its namespaces, and Inductor's and its folder's names.
_TORCH = re.compile(r"^(aten|torch\w*|prims|c10d)::|\bat::|\bc10::|\bat_cuda_detail::|^triton_|(^|[/\\])torch[/\\]")
_MOST_REPLAYS_A_STEP = 2  # a step that replays more graphs is in pieces
_TENSORFLOW = re.compile(r"\btensorflow::|\bEigen::internal::EigenMetaKernel\b")
_LIBRARY = re.compile(r"(?:^|[/\\])(transformers|diffusers)[/\\]")
_COMPILED = re.compile(r"^(Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction)")
_FREED = re.compile(r"^(cuda|hip)Free(?!ze)(?!Host)")
_ALLOCATED = re.compile(r"^(cuda|hip)Malloc(?!Host)")
_FEWEST_ALLOCATIONS, _MOST_ALLOCATIONS_A_FREE = 20, 8
# Of gaps within operators: so many shapes, in so many steps, and so many of the gaps have their own, where each new one
# is planned.
_FEWEST_NEW_SHAPES, _SHARE_OF_NEW_SHAPES = 3, 0.8
_FUSED_NORM_SINCE = (2, 9)  # pytorch/pytorch#153666
# The first release in which an optimizer takes `fused=True` on CUDA; the newest that is known not to is one before.
_FUSED_STEP_SINCE = {"Adam": (1, 13), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 13)}
_USUAL = (2, 3)  # where the release is not known
_SYNCHRONISES = re.compile(r"^(cuda|hip)(Stream|Event)Synchronize")
# Operators that wait for a value, or for a size, from the device; what runs in them waits as part of them.
_READS_BACK = {"aten::_local_scalar_dense": "`.item()`", "aten::nonzero": "`nonzero`", "aten::_unique2": "`unique`"}
_LOOPED_ADAM = re.compile(r"^aten::(_foreach_)?addcdiv_$")
_ADAMS = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax"})


@dataclass(frozen=True, slots=True)
class Environment:
    """Facts of a whole trace."""

    engine: str | None  # that serves the model
    tensorflow: bool
    amd: bool
    torch: tuple[int, int] | None  # as recorded; None: a profiler does not say
    compiled: bool
    replayed: bool
    graph_pieces: bool
    no_torch: bool
    uncached: bool
    blockers: tuple[str, ...]  # what the capture of a CUDA graph does not allow, with how often

    @property
    def facts(self) -> dict[str, Fact]:
        return {
            "engine": self.engine,
            "tensorflow": self.tensorflow,
            "amd": self.amd,
            "compiled": self.compiled,
            "replayed": self.replayed,
            "graph_pieces": self.graph_pieces,
            "no_torch": self.no_torch,
            "uncached": self.uncached,
            "blockers": bool(self.blockers),
            "no_fused_norm": self.torch is not None and self.torch < _FUSED_NORM_SINCE,
        }

    def has_fused_step(self, optimizer: str | None) -> bool:
        """Return whether this torch's optimizer of that class takes `fused=True` on a GPU."""
        since = _FUSED_STEP_SINCE.get(optimizer or "")
        return since is not None and (self.torch or _USUAL) >= since

    @property
    def blockers_text(self) -> str:
        """A paragraph; "" where nothing is in the way."""
        if not self.blockers:
            return ""
        return f"What a capture does not allow was recorded, and has to go first: {'; '.join(self.blockers)}."


def environment_of(timeline: Timeline, activities: Rows, optimizer: Categories) -> Environment:
    """Return the facts of a trace. `optimizer`: of each activity the class of the optimizer in whose step it is."""
    names, files = categories(timeline.ops["name"]).values, categories(timeline.stacks["file"]).values
    calls = categories(timeline.api["name"])
    called = [str(name) for name in calls.values]
    devices = " ".join(device.name or "" for device in timeline.meta.devices)
    kernels = categories(timeline.activities["name"]).values
    graph = activities.columns["graph"]
    assert isinstance(graph, Flags)  # noqa: S101 - the row sets' documented kinds
    return Environment(
        engine=next((name for name, seen in _ENGINES if any(map(seen.search, (*names, *files)))), None),
        tensorflow=not any(name.startswith("aten::") for name in names) and any(map(_TENSORFLOW.search, kernels)),
        amd=any(name.startswith("hip") for name in (*timeline.meta.versions, *called)) or "AMD" in devices,
        torch=_version(timeline.meta.versions.get("torch")),
        compiled=any(map(_COMPILED.search, names)),
        replayed=bool(graph.values.any()),
        graph_pieces=_graph_pieces(timeline, graph.values),
        no_torch=timeline.meta.format == "nsys"  # torch.profiler writes all others
        and "torch" not in timeline.meta.versions
        and not any(map(_TORCH.search, (*names, *files, *kernels))),
        uncached=_uncached(timeline, calls),
        blockers=tuple(_blockers(timeline, activities, calls, optimizer)),
    )


def library_of(files: Iterable[str]) -> str | None:
    """Return the library in whose file the innermost of these lines is."""
    found = next(map(_LIBRARY.search, files), None)
    return None if found is None else found[1]


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,3})\.(\d{1,3})", text or "")
    return None if found is None else (int(found[1]), int(found[2]))


def _graph_pieces(timeline: Timeline, graph: BoolArray) -> bool:
    """Return whether steps replay several graphs each; False where steps are not known."""
    launch, step = (rows_of(timeline.activities[name])[graph] for name in ("launch_row", "step_row"))
    inside = (launch >= 0) & (step >= 0)
    replays, steps = len(sorted_unique(launch[inside])), len(sorted_unique(step[inside]))
    return replays > _MOST_REPLAYS_A_STEP * steps


def _uncached(timeline: Timeline, calls: Categories) -> bool:
    """Return whether memory is freed about as often as allocated in the first half and in the second."""
    begin = rows_of(timeline.api["start_ns"])
    freed, allocated = _named(calls, _FREED), _named(calls, _ALLOCATED)
    if allocated.sum() < _FEWEST_ALLOCATIONS:
        return False
    late = begin > (begin.min() + begin.max()) // 2
    return all(
        0 < (allocated & half).sum() <= _MOST_ALLOCATIONS_A_FREE * (freed & half).sum() for half in (late, ~late)
    )


def _named(names: Categories, pattern: re.Pattern[str]) -> BoolArray:
    return np.array([*(pattern.search(name) is not None for name in names.values), False], np.bool_)[names.codes]


def _blockers(timeline: Timeline, activities: Rows, calls: Categories, optimizer: Categories) -> Iterable[str]:
    ops = categories(timeline.ops["name"])
    counts = np.bincount(ops.codes[ops.codes >= 0], minlength=len(ops.values))
    times = dict(zip(ops.values, counts.tolist(), strict=True))
    for name, text in _READS_BACK.items():
        if times.get(name):
            yield f"{text}, {count_text(times[name], 'time')}"
    pageable = np.zeros(activities.count, np.bool_)
    for name in ("source_memory", "target_memory"):
        pageable |= category(activities, name).among("pageable")
    if count := int(pageable.sum()):
        yield count_text(count, "copy") + " from or to pageable memory"
    if count := int(_named(calls, _ALLOCATED).sum()):
        yield f"memory allocated by the driver, {count_text(count, 'time')} (warm up before the capture)"
    if count := _waits(timeline, calls, ops):
        yield f"a stream or an event waited for, {count_text(count, 'time')}"
    adams = sorted(_ADAMS.intersection(optimizer.values)) if _looped(times) else []
    if adams:
        yield f"{adams[0]} in a loop, unless it was made with `capturable=True`"


def _looped(times: dict[str, int]) -> bool:
    return any(_LOOPED_ADAM.search(name) for name in times) and not any("_fused_adam" in name for name in times)


def _waits(timeline: Timeline, calls: Categories, ops: Categories) -> int:
    """Count calls that wait for a stream or an event, without those of operators counted as such, and of copies."""
    owner = rows_of(timeline.api["op_row"])
    counted = _named(ops, re.compile("|".join(map(re.escape, (*_READS_BACK, "aten::copy_")))))
    own = np.where(owner >= 0, counted[owner], False) if len(counted) else np.zeros(len(owner), np.bool_)
    return int((_named(calls, _SYNCHRONISES) & ~own).sum())


def waited_in(timeline: Timeline, gaps: Rows, rows: Sequence[int]) -> frozenset[str]:
    """Return where the host was in most of these gaps, `in_launch` or `in_operator`, and whether the latter had other
    shapes nearly each time, `new_shapes`; nothing: neither, or not known."""
    chosen = np.array(rows, np.int64)
    begin, dur = number(gaps, "start_ns")[chosen], number(gaps, "dur_ns")[chosen]
    middle = begin + dur // 2
    next_row, launch = number(gaps, "next_row")[chosen], number(gaps, "launch_row", null=-1)[chosen]
    op = rows_of(timeline.activities["op_row"])[next_row]
    launched = _started(rows_of(timeline.api["start_ns"]), launch)
    within = _started(rows_of(timeline.ops["start_ns"]), op)
    half = max(int(dur.sum()), 1) / 2
    if dur[(launched >= 0) & (launched <= middle)].sum() > half:
        return frozenset(["in_launch"])
    inside = (within >= 0) & (within <= middle)
    if dur[inside].sum() <= half:
        return frozenset()
    shapes = string_ids(timeline.ops["input_shapes"])[0][op[inside]]
    distinct = len(sorted_unique(shapes[shapes >= 0]))
    steps = sorted_unique(rows_of(timeline.activities["step_row"])[next_row[inside]])
    new = distinct >= max(_FEWEST_NEW_SHAPES, _SHARE_OF_NEW_SHAPES * len(shapes))
    new &= (steps >= 0).sum() >= _FEWEST_NEW_SHAPES  # layers of one step differ too, and are planned in the first
    return frozenset(["in_operator", "new_shapes"] if new else ["in_operator"])


def _started(start: IntArray, rows: IntArray) -> IntArray:
    return np.where(rows >= 0, start[rows], -1) if len(start) else np.full(len(rows), -1, np.int64)
