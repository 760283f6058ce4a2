"""The environment that advice depends on: facts of the whole trace, looked up once, and of a finding's place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from tracemine.columns import numbers, sorted_unique
from tracemine.findings.facts import backward_ops
from tracemine.findings.graphs.blockers import blockers, derived_twice, in_model, model_calls
from tracemine.findings.graphs.obstacles import Obstacles
from tracemine.findings.recorder import OTHER_PROFILERS
from tracemine.matching.advice import Fact
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.engines import engine_in
from tracemine.rows.host import named
from tracemine.rows.table import BoolArray, Flags, IntArray, Rows
from tracemine.timeline import Timeline, producer_of

# What shows PyTorch in a profile that records no operators: its namespaces, and Inductor's and its folder's names.
_TORCH = deferred(r"^(aten|torch\w*|prims|c10d)::|\bat::|\bc10::|\bat_cuda_detail::|^triton_|(^|[/\\])torch[/\\]")
_OPERATION = 2  # instructions at most of a module that is one operation of a function that is not jitted
_MOST_REPLAYS_A_STEP = 2  # a step that replays more graphs is in pieces
_AMPERE = 8  # of its compute capability; the first of NVIDIA's whose matrix units take bfloat16
_TENSORFLOW = deferred(r"\btensorflow::|\bEigen::internal::EigenMetaKernel\b")
_LIBRARY = deferred(r"(?:^|[/\\])(transformers|diffusers)[/\\]")
_COMPILED = deferred(r"^(Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction)")
_INDUCTOR = deferred(r"^(## Call CompiledFxGraph|triton_)")  # in operators and kernels: what it makes is fused


class Environment(Struct, frozen=True):
    """Facts of a whole trace."""

    producer: str  # of the kernels, one of PRODUCERS
    engine: str | None  # that serves the model
    tensorflow: bool
    amd: bool
    torch: tuple[int, int] | None  # as recorded; None: a profiler does not say
    compiled: bool
    fused: bool  # some of what was compiled, by Inductor
    replayed: bool
    graph_pieces: bool
    no_torch: bool
    model_calls: int  # of the outermost module that runs most often, in all steps; 1 a step where none is known
    repeated: bool  # it runs several times a step
    half: str  # the type of half precision that the GPU multiplies faster than float32
    derived_twice: bool  # autograd differentiates what a backward pass computed
    blockers: tuple[str, ...]  # what the capture of a CUDA graph of the model does not allow, with how often
    beside: tuple[str, ...]  # the same outside of the model, which a graph of it does not hold

    @property
    def facts(self) -> dict[str, Fact]:
        return {
            "producer": self.producer,
            "engine": self.engine,
            "tensorflow": self.tensorflow,
            "amd": self.amd,
            "compiled": self.compiled,
            "replayed": self.replayed,
            "graph_pieces": self.graph_pieces,
            "no_torch": self.no_torch,
            "repeated": self.repeated,
            "derived_twice": self.derived_twice,
            "blockers": bool(self.blockers),
        }

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


def environment_of(timeline: Timeline, activities: Rows, obstacles: Obstacles) -> Environment:
    """Return the facts of a trace. obstacles: what stands in the way of graphs."""
    names, files = categories(timeline.ops["name"]).values, categories(timeline.stacks["file"]).values
    calls = categories(timeline.api["name"])
    called = [str(name) for name in calls.values]
    producer = producer_of(timeline.meta)
    devices = " ".join(device.name or "" for device in timeline.meta.devices)
    kernels = categories(timeline.activities["name"]).values
    graph = activities.columns["graph"]
    assert isinstance(graph, Flags)  # noqa: S101 - the row sets' documented kinds
    backward = backward_ops(timeline)
    model, calls_of_model = in_model(timeline, backward), model_calls(timeline, backward)
    return Environment(
        producer=producer,
        engine=None if (engine := engine_in(names, files)) is None else engine.name,
        tensorflow=not any(name.startswith("aten::") for name in names) and any(map(_TENSORFLOW.search, kernels)),
        amd=any(name.startswith("hip") for name in (*timeline.meta.versions, *called)) or "AMD" in devices,
        torch=_version(timeline.meta.versions.get("torch")),
        compiled=_jitted(timeline) if producer == "xla" else any(map(_COMPILED.search, names)),
        fused=any(map(_INDUCTOR.search, (*names, *kernels))),
        replayed=bool(graph.values.any()),
        graph_pieces=_graph_pieces(timeline, graph.values),
        no_torch=producer != "torch"
        or (
            timeline.meta.format in OTHER_PROFILERS
            and "torch" not in timeline.meta.versions
            and not any(map(_TORCH.search, (*names, *files, *kernels)))
        ),
        model_calls=max(calls_of_model, timeline.steps.num_rows, 1),
        repeated=bool(timeline.steps.num_rows) and calls_of_model >= 2 * timeline.steps.num_rows,
        half=_half(timeline),
        derived_twice=derived_twice(timeline, backward),
        blockers=tuple(blockers(obstacles, model)),
        beside=tuple(blockers(obstacles, ~model)),
    )


def oldest_generation(timeline: Timeline) -> float:
    """Return the least major number of the recorded compute capabilities; infinite where none is recorded."""
    recorded = (device.compute_capability or "" for device in timeline.meta.devices)
    return min((int(first) for each in recorded if (first := each.partition(".")[0]).isdecimal()), default=math.inf)


def _half(timeline: Timeline) -> str:
    return "float16" if oldest_generation(timeline) < _AMPERE else "bfloat16"


def library_of(files: Iterable[str]) -> str | None:
    """Return the library in whose file the innermost of these lines is."""
    found = next(map(_LIBRARY.search, files), None)
    return None if found is None else found[1]


def _version(text: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,3})\.(\d{1,3})", text or "")
    return None if found is None else (int(found[1]), int(found[2]))


def _jitted(timeline: Timeline) -> bool:
    """Return whether most of what ran is of modules that XLA compiled from more than an operation or two."""
    size = np.bincount(numbers(timeline.instructions.column("execution")))
    return 2 * int(size[size > _OPERATION].sum()) > int(size.sum())


def _graph_pieces(timeline: Timeline, graph: BoolArray) -> bool:
    """Return whether steps replay several graphs each; False where steps are not known."""
    launch, step = (rows_of(timeline.activities[name])[graph] for name in ("launch_row", "step_row"))
    inside = (launch >= 0) & (step >= 0)
    replays, steps = len(sorted_unique(launch[inside])), len(sorted_unique(step[inside]))
    return replays > _MOST_REPLAYS_A_STEP * steps


def runs_unfused(timeline: Timeline, environment: Environment, activities: IntArray) -> bool:
    """Return whether most of these activities run in what torch.compile traced, by a backend that makes no kernels."""
    if environment.fused or not environment.compiled or not len(activities):
        return False
    marked = named(categories(timeline.ops["name"]), _COMPILED)
    around = taken(
        nearest(rows_of(timeline.ops["parent_row"]), marked), rows_of(timeline.activities["op_row"])[activities]
    )
    return 2 * int((around >= 0).sum()) > len(activities)
