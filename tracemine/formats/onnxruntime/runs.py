"""Runs of a model in a profile: the nodes of each, and the kernels that each node launched."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct, field

from tracemine.formats.onnxruntime.events import Event

_TIMED = "_kernel_time"
_CPU = "CPUExecutionProvider"


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
        return self.op_type in ("MemcpyToHost", "MemcpyFromHost")


class Run(Struct):
    """One run of the model; its times are the host's."""

    start_ns: int
    dur_ns: int
    nodes: list[Node] = field(default_factory=list)


class CountedRuns(Struct, frozen=True):
    """The runs that count, and how many do not: the first loads and tunes, a graph's replay names no node."""

    runs: list[Run]
    first_ns: int | None  # of the run that was left out
    replays: int


def runs_of(events: Sequence[Event]) -> CountedRuns:
    """Return the runs of a profile. Events are in order of their start."""
    of_cat: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        of_cat[event.cat].append(event)
    timed = [Node(e.name.removesuffix(_TIMED), e) for e in of_cat["Node"] if e.name.endswith(_TIMED)]
    _give_kernels(timed, of_cat["Kernel"])
    spans = sorted({(event.start_ns, event.dur_ns) for event in of_cat["Session"] if event.name == "model_run"})
    if not spans and timed:  # without any span all nodes are one run's
        first, last = timed[0].event, timed[-1].event
        spans = [(first.start_ns, last.start_ns + last.dur_ns - first.start_ns)]
    runs = [Run(*span) for span in spans]
    starts = [run.start_ns for run in runs]
    for node in timed:
        at = bisect_right(starts, node.event.start_ns) - 1
        if at >= 0 and node.event.start_ns <= runs[at].start_ns + runs[at].dur_ns:
            runs[at].nodes.append(node)
    with_nodes = [run for run in runs if run.nodes]
    first_ns = with_nodes[0].dur_ns if len(with_nodes) > 1 else None
    return CountedRuns(with_nodes[first_ns is not None :], first_ns, len(runs) - len(with_nodes))


def _give_kernels(nodes: Sequence[Node], kernels: Sequence[Event]) -> None:
    """Give each kernel to the node that launched it: of those of its operator the last that had begun before it."""
    of_type: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        of_type[node.op_type].append(node)
    begins = {name: [node.event.start_ns for node in of_name] for name, of_name in of_type.items()}
    for kernel in kernels:
        name = kernel.args.op_name
        at = bisect_right(begins.get(name, ()), kernel.start_ns) - 1
        if at >= 0:
            of_type[name][at].kernels.append(kernel)
