"""The record of what a CUDA graph, and torch.compile in each mode, would come to."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from tracemine.findings.record import Range

# `graphs_by_step`: reduce-overhead, and `torch.compiler.cudagraph_mark_step_begin()` in front of each step.
WayName = Literal["cuda_graph", "default", "reduce_overhead", "graphs_by_step", "max_autotune"]
WAYS: Final[tuple[WayName, ...]] = get_args(WayName)
Outcome = Literal["works", "fails", "unknown"]
Effect = Literal[
    "raises",  # an error in the capture, the compilation or the call
    "breaks",  # it runs as several graphs, with Python and waits between them
    "skips",  # it runs compiled, and nothing is replayed
    "stale",  # each replay computes with what the first one had
    "overwrites",  # a later call takes the memory of results that are still read: torch raises
    "records_again",  # a graph for each size or sequence of operators
    "recompiles",  # compiled once more, for sizes that differ
    "already",  # graphs are replayed there already
    "not_known",
]


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was recorded in a span and that a way of launching less does not take as it is."""

    kind: str
    says: str
    line: str | None  # the user's line, with its function; null: none was recorded
    times: int  # in all steps; where no steps are known, in all that was recorded
    effects: dict[WayName, Effect]  # ways that are not in it take it


class WayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of launching less comes to. `works`: as one graph a call, which computes the same."""

    way: WayName
    outcome: Outcome
    effect: Effect | None  # of the gravest obstacle; null: none is in the way
    by: str | None  # its kind
    saving_ns: Range | None = None  # of all steps; null: it does not work, or was not asked


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The step, or a module or function of the user's. What it launches backward counts as its own."""

    kind: Literal["step", "module", "function"]
    name: str
    line: str | None
    calls: int  # in all steps
    launches: int  # likewise
    share: float  # of all launches
    ways: tuple[WayOutcome, ...]
    obstacles: tuple[Obstacle, ...]
    notes: tuple[str, ...]  # what has to be seen to, though it stops nothing
    saving_ns: Range | None = None  # of all steps, where each stretch between obstacles is one launch; null: not asked

    def way(self, name: WayName) -> WayOutcome:
        """Return what one way comes to."""
        return self.ways[WAYS.index(name)]


class SpanPart(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the step that one CUDA graph can hold. Numbers are of all steps."""

    first: str | None  # the line that launches first
    last: str | None
    times: int
    launches: int
    saving_ns: Range | None = None  # null: not asked


class Graphs(msgspec.Struct, frozen=True, kw_only=True):
    """What capturing would come to: of the step, and of what in it launches a twentieth of all or more."""

    step: Span
    spans: tuple[Span, ...]  # most launches first
    parts: tuple[SpanPart, ...]  # likewise
    generates: bool  # the library's loop over tokens is in it
    steps: int  # that are looked at; 0: none are known, and the step is all that was recorded
