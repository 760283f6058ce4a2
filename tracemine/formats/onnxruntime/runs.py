"""Runs of a model in what ONNX Runtime's profiler writes: the nodes of each, and the kernels that each node launched.

An event is a line of a JSON array; of a file that is cut off those before the cut are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, field

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.small_tables import TimedEvent
from tracemine.formats.source import FileSource

_TIMED = "_kernel_time"
_CPU = "CPUExecutionProvider"
_LARGEST_BYTES = 1 << 31
_Id = Annotated[int, Meta(ge=-1, le=1 << 62)]


class NodeArguments(Struct, frozen=True):
    """What is recorded of a node or a kernel."""

    op_name: str = ""
    provider: str = ""
    input_type_shape: Raw = Raw(b"[]")
    output_type_shape: Raw = Raw(b"[]")
    stream: int | str = 0


class Event(TimedEvent, kw_only=True):
    """An event, in microseconds since the profiler's start."""

    cat: str
    name: str
    pid: _Id = 0
    tid: _Id = 0
    args: NodeArguments = field(default_factory=NodeArguments)


_ALL = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)


def _by_lines(text: bytes) -> tuple[list[Event], int]:
    """Return the events of lines that are whole, and how many are not."""
    events, damaged = list[Event](), 0
    for line in text.strip().removeprefix(b"[").removesuffix(b"]").splitlines():
        if written := line.strip().rstrip(b","):
            try:
                events.append(_ONE.decode(written))
            except (msgspec.DecodeError, RecursionError):
                damaged += 1
    return events, damaged


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


class RecordedRuns(Struct, frozen=True):
    """The runs that count, and what does not: the first loads and tunes, a graph's replay names no node."""

    runs: list[Run]
    first_ns: int | None  # of the run that was left out
    replays: int
    events: Counter[str]  # by category
    dropped: dict[str, int]
    truncated: bool


def read_runs(source: FileSource, progress: Progress | None) -> RecordedRuns:
    """Return the runs of a profile. Raises InputError where there is none of its nodes."""
    text = bytes(source.whole(progress, _LARGEST_BYTES, "ONNX Runtime's profiler")).decode("utf-8", "replace").encode()
    damaged, truncated = 0, source.truncated
    try:
        events = _ALL.decode(text)
    except (msgspec.DecodeError, RecursionError):
        events, damaged = _by_lines(text)
        truncated = truncated or not text.rstrip().endswith(b"]")
    of_cat: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.start_ns):
        if min(event.start_ns, event.dur_ns) >= 0:
            of_cat[event.cat].append(event)
    if not of_cat["Node"]:
        raise InputError(
            "holds no node of ONNX Runtime" + (", and is cut off" if truncated else ""),
            where=Location(source.path),
            hint="call session.run, then session.end_profiling, before the process ends",
        )
    counts = Counter({cat: len(kept) for cat, kept in of_cat.items()})
    dropped = {"line that is no event": damaged, "event of no time that can be": len(events) - counts.total()}
    runs = _runs(of_cat)
    with_nodes = [run for run in runs if run.nodes]
    first_ns = with_nodes[0].dur_ns if len(with_nodes) > 1 else None
    counted = with_nodes[first_ns is not None :]
    return RecordedRuns(counted, first_ns, len(runs) - len(with_nodes), counts, dropped, truncated)


def _runs(of_cat: dict[str, list[Event]]) -> list[Run]:
    """Return all runs, each with the nodes that began in it."""
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
    return runs


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
