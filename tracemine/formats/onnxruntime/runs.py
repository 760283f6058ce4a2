"""Runs of a model in a profile: the nodes of each, and the kernels that each node launched."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct, field

from tracemine.formats.onnxruntime.events import Event

_TIMED = "_kernel_time"
_CPU = "CPUExecutionProvider"
_COPIES = re.compile(r"MemcpyToHost|MemcpyFromHost")


class Node(Struct):
    """One execution of a node: on a GPU the host's time of launching it, and its kernels."""

    name: str
    event: Event
    kernels: list[Event] = field(default_factory=list)

    @property
    def op_type(self) -> str:
        """What it computes."""
        return self.event.args.op_name or "Node"

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes it."""
        return self.event.args.provider == _CPU

    @property
    def is_copy(self) -> bool:
        """Whether ONNX Runtime put it in to move a tensor between providers."""
        return _COPIES.fullmatch(self.op_type) is not None


class Run(Struct):
    """One run of the model; `dur_ns` is the host's."""

    start_ns: int
    dur_ns: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def times(self) -> dict[str, int]:
        """When it began, and how long it lasted."""
        return {"start_ns": self.start_ns, "dur_ns": self.dur_ns}


class CountedRuns(Struct, frozen=True):
    """The runs that count, and how many do not: the first loads and tunes, a graph's replay names no node."""

    runs: list[Run]
    first_ns: int | None  # of the run that was left out
    replays: int


def runs_of(events: Sequence[Event]) -> CountedRuns:
    """Return the runs of a profile. Events are in order of their start."""
    spans = sorted(
        {(event.start_ns, event.dur_ns) for event in events if event.cat == "Session" and event.name == "model_run"}
    )
    timed = [
        Node(event.name.removesuffix(_TIMED), event)
        for event in events
        if event.cat == "Node" and event.name.endswith(_TIMED)
    ]
    _give_kernels(timed, [event for event in events if event.cat == "Kernel"])
    runs = _with_nodes(spans, timed)
    with_nodes = [run for run in runs if run.nodes]
    first = with_nodes[0].dur_ns if len(with_nodes) > 1 else None
    return CountedRuns(with_nodes[1:] if first is not None else with_nodes, first, len(runs) - len(with_nodes))


def _with_nodes(spans: list[tuple[int, int]], nodes: Sequence[Node]) -> list[Run]:
    """Return the runs, each with the nodes that began in it; without any span all nodes are one run's."""
    if not spans and nodes:
        last = nodes[-1].event
        spans = [(nodes[0].event.start_ns, last.start_ns + last.dur_ns - nodes[0].event.start_ns)]
    runs = [Run(*span) for span in spans]
    starts = [run.start_ns for run in runs]
    for node in nodes:
        at = bisect_right(starts, node.event.start_ns) - 1
        if at >= 0 and node.event.start_ns <= runs[at].start_ns + runs[at].dur_ns:
            runs[at].nodes.append(node)
    return runs


def _give_kernels(nodes: Sequence[Node], kernels: Sequence[Event]) -> None:
    """Give each kernel to the node that launched it: of those of its operator the last that had begun before it."""
    of_type: dict[str, list[Node]] = {}
    for node in nodes:
        of_type.setdefault(node.op_type, []).append(node)
    begins = {name: [node.event.start_ns for node in of_name] for name, of_name in of_type.items()}
    for kernel in kernels:
        name = kernel.args.op_name
        at = bisect_right(begins.get(name, ()), kernel.start_ns) - 1
        if at >= 0:
            of_type[name][at].kernels.append(kernel)
