"""The environment that advice depends on: facts of the whole trace, looked up once, and of a finding's place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique, string_ids
from tracemine.findings.blockers import ALLOCATED, blockers, derived_twice, in_model, model_calls
from tracemine.findings.facts import backward_ops
from tracemine.matching.advice import Fact
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import named
from tracemine.rows.table import BoolArray, Categories, Flags, IntArray, Rows, number
from tracemine.timeline import Timeline

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
_INDUCTOR = re.compile(r"^(## Call CompiledFxGraph|triton_)")  # in operators and kernels: what it makes is fused
_FREED = re.compile(r"^(cuda|hip)Free(?!ze)(?!Host)")
_FEWEST_ALLOCATIONS, _MOST_ALLOCATIONS_A_FREE = 20, 8
# Of gaps within operators: so many shapes, in so many steps, and so many of the gaps have their own, where each new one
# is planned.
_FEWEST_NEW_SHAPES, _SHARE_OF_NEW_SHAPES = 3, 0.8
_FUSED_NORM_SINCE = (2, 9)  # pytorch/pytorch#153666
# The first release in which an optimizer takes `fused=True` on CUDA; the newest that is known not to is one before.
_FUSED_STEP_SINCE = {"Adam": (1, 13), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 13)}
_USUAL = (2, 3)  # where the release is not known


class Environment(Struct, frozen=True):
    """Facts of a whole trace."""

    engine: str | None  # that serves the model
    tensorflow: bool
    amd: bool
    torch: tuple[int, int] | None  # as recorded; None: a profiler does not say
    compiled: bool
    fused: bool  # some of what was compiled, by Inductor
    replayed: bool
    graph_pieces: bool
    no_torch: bool
    uncached: bool
    model_calls: int  # of the outermost module that runs most often, in all steps; 1 a step where none is known
    repeated: bool  # it runs several times a step
    derived_twice: bool  # autograd differentiates what a backward pass computed
    blockers: tuple[str, ...]  # what the capture of a CUDA graph of the model does not allow, with how often
    beside: tuple[str, ...]  # the same outside of the model, which a graph of it does not hold

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
            "repeated": self.repeated,
            "derived_twice": self.derived_twice,
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
        texts = []
        if self.blockers:
            texts.append(
                f"What a capture does not allow was recorded, and has to go first: {'; '.join(self.blockers)}."
            )
        if self.beside:
            texts.append(f"Outside of the model, and not to be captured with it: {'; '.join(self.beside)}.")
        return " ".join(texts)


def environment_of(timeline: Timeline, activities: Rows, optimizer: Categories) -> Environment:
    """Return the facts of a trace. `optimizer`: of each activity the class of the optimizer in whose step it is."""
    names, files = categories(timeline.ops["name"]).values, categories(timeline.stacks["file"]).values
    calls = categories(timeline.api["name"])
    called = [str(name) for name in calls.values]
    devices = " ".join(device.name or "" for device in timeline.meta.devices)
    kernels = categories(timeline.activities["name"]).values
    graph = activities.columns["graph"]
    assert isinstance(graph, Flags)  # noqa: S101 - the row sets' documented kinds
    backward = backward_ops(timeline)
    model, calls_of_model = in_model(timeline, backward), model_calls(timeline, backward)
    return Environment(
        engine=next((name for name, seen in _ENGINES if any(map(seen.search, (*names, *files)))), None),
        tensorflow=not any(name.startswith("aten::") for name in names) and any(map(_TENSORFLOW.search, kernels)),
        amd=any(name.startswith("hip") for name in (*timeline.meta.versions, *called)) or "AMD" in devices,
        torch=_version(timeline.meta.versions.get("torch")),
        compiled=any(map(_COMPILED.search, names)),
        fused=any(map(_INDUCTOR.search, (*names, *kernels))),
        replayed=bool(graph.values.any()),
        graph_pieces=_graph_pieces(timeline, graph.values),
        no_torch=timeline.meta.format == "nsys"  # torch.profiler writes all others
        and "torch" not in timeline.meta.versions
        and not any(map(_TORCH.search, (*names, *files, *kernels))),
        uncached=_uncached(timeline, calls),
        model_calls=max(calls_of_model, timeline.steps.num_rows, 1),
        repeated=bool(timeline.steps.num_rows) and calls_of_model >= 2 * timeline.steps.num_rows,
        derived_twice=derived_twice(timeline, backward),
        blockers=tuple(blockers(timeline, activities, optimizer, model)),
        beside=tuple(blockers(timeline, activities, optimizer, model.others)),
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
    freed, allocated = named(calls, _FREED), named(calls, ALLOCATED)
    if allocated.sum() < _FEWEST_ALLOCATIONS:
        return False
    late = begin > (begin.min() + begin.max()) // 2
    return all(
        0 < (allocated & half).sum() <= _MOST_ALLOCATIONS_A_FREE * (freed & half).sum() for half in (late, ~late)
    )


def waited_in(timeline: Timeline, gaps: Rows, rows: Sequence[int]) -> frozenset[str]:
    """Return where the host was in most of these gaps, `in_launch` or `in_operator`, and whether the latter had other
    shapes nearly each time, `new_shapes`; nothing: neither, or not known."""
    chosen = np.array(rows, np.int64)
    begin, dur = number(gaps, "start_ns")[chosen], number(gaps, "dur_ns")[chosen]
    middle = begin + dur // 2
    next_row, launch = number(gaps, "next_row")[chosen], number(gaps, "launch_row", null=-1)[chosen]
    op = rows_of(timeline.activities["op_row"])[next_row]
    launched = taken(rows_of(timeline.api["start_ns"]), launch)
    within = taken(rows_of(timeline.ops["start_ns"]), op)
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


def runs_unfused(timeline: Timeline, environment: Environment, activities: IntArray) -> bool:
    """Return whether most of these activities run in what torch.compile traced, by a backend that makes no kernels."""
    if environment.fused or not environment.compiled or not len(activities):
        return False
    marked = named(categories(timeline.ops["name"]), _COMPILED)
    around = taken(
        nearest(rows_of(timeline.ops["parent_row"]), marked), rows_of(timeline.activities["op_row"])[activities]
    )
    return 2 * int((around >= 0).sum()) > len(activities)
