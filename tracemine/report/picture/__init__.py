"""What reports draw of a trace besides its findings: activities, the host, dataflow, a roofline, where the time goes.

picture(timeline, …)  → Picture
trace_name(path)      → what a trace is called, where the path says it

Activities lie in lanes, a stream of a device each, and so does what host threads did: lines of the user's Python,
operators, and calls into the GPU's runtime.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from tracemine.columns import codes, examples, numbers, sorted_unique, string_ids
from tracemine.devices import Device
from tracemine.findings.context import Cause
from tracemine.findings.parts import part_of_activities
from tracemine.findings.record import Scan, Source
from tracemine.flow.record import Flow
from tracemine.patterns import deferred
from tracemine.report.picture.dataflow import DataflowPicture, dataflow_of
from tracemine.report.picture.roofline import Roofline, roofline_of
from tracemine.rows.ancestors import above, nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import threads
from tracemine.rows.table import IntArray, Rows
from tracemine.timeline import Timeline
from tracemine.top import Top, Tops
from tracemine.top.origin import NOT_KNOWN, line_paths

_ANY = deferred(
    r"^(runs?|traces?|profiles?|captures?|timelines?|results?|outputs?|logs?|findings|report|rank_?\d+)"
    r"(\.pt)?(\.(json|sqlite|nsys-rep))?(\.(gz|zst))?$",
    re.IGNORECASE,
)

__all__ = ["Activities", "DataflowPicture", "HostLane", "Picture", "Roofline", "picture"]

_NOT_RECORDED = -1
_MOST_THREADS = 2  # those that launch most
_LEAST_SHARE = 0.02  # of all launches: a thread with fewer is not drawn


class Picture(Struct, frozen=True, kw_only=True, eq=False):
    """What is drawn of a trace that its findings do not hold."""

    activities: Activities
    dataflow: Mapping[str, DataflowPicture]  # of a finding's first occurrence, by fingerprint; missing: not known
    roofline: Roofline | None  # None: the GPU is not known
    sources: Mapping[str, str] = field(default_factory=dict)  # generated code by fingerprint of a variant
    name: str = ""  # of the trace or the capture; "": what its path says
    host: tuple[HostLane, ...] = ()
    tops: Mapping[str, Top] = field(default_factory=dict)  # where the time goes, by what it is added up by
    asked: Tops | None = None  # other tables of the same trace, made when they are asked for
    frames: Mapping[str, Source] = field(default_factory=dict)  # the user's own, of findings that hold none


def picture(
    timeline: Timeline,
    dataflow: Flow,
    rows: Mapping[str, Rows],
    device: Device | None,
    scan: Scan,
    causes: Sequence[Cause] = (),
    step_of: IntArray | None = None,
) -> Picture:
    """Return what is drawn of a trace. device: the one of estimates. causes: of the scan. step_of: of each activity."""
    activities = activities_of(timeline, rows["activities"], scan, causes, step_of)
    return Picture(
        activities=activities,
        dataflow=dataflow_of(timeline, dataflow, scan.findings),
        roofline=None if device is None else roofline_of(timeline, rows["activities"], device, scan),
        host=host_lanes(timeline, activities.begin_ns),
    )


class Activities(Struct, frozen=True, kw_only=True, eq=False):
    """Activities in the timeline's order. Nanoseconds."""

    begin_ns: int  # of the first one, on the trace's clock
    base_ns: int  # that this clock has more than the file that was read; 0: as much, or not known
    start_ns: IntArray  # from `begin_ns` on
    dur_ns: IntArray
    lane: IntArray  # position in `lanes`
    lanes: tuple[tuple[int | None, int | None], ...]  # device and stream; None: not recorded
    name: IntArray  # position in `names`
    names: tuple[str, ...]
    part: IntArray  # position in PARTS
    step: IntArray  # position in `steps`; −1: in none that counts
    # Start, from `begin_ns` on and negative before it, and duration of each step that counts: from its first launch, as
    # far as that was recorded, to the end of its last activity.
    steps: tuple[tuple[int, int], ...]

    def end_ns(self) -> IntArray:
        """Return when each ends, from `begin_ns` on."""
        return self.start_ns + self.dur_ns


def activities_of(
    timeline: Timeline, rows: Rows, scan: Scan, causes: Sequence[Cause] = (), step_of: IntArray | None = None
) -> Activities:
    """Return the activities of a timeline. rows: its row set `activities`. causes: those with a part of the step.
    step_of: the step of each, as `measure` finds it; None: none are known.

    >>> from tracemine.pipeline import analyse, mined
    >>> analysis = analyse("fixtures/captures/chain")
    >>> made = activities_of(analysis.timeline, analysis.rows["activities"], mined(analysis))
    >>> made.lanes, int(made.start_ns[0]), len(made.names) <= len(made.start_ns)
    (((0, 7),), 0, True)
    """
    table = timeline.activities
    start = numbers(table.column("start_ns"))
    begin_ns = int(start[0]) if len(start) else 0
    name, names = string_ids(table.column("name"))
    dur = numbers(table.column("dur_ns"))
    lane, lanes = _lanes(timeline)
    step, steps = _steps(timeline, start, start + dur, step_of)
    return Activities(
        begin_ns=begin_ns,
        base_ns=timeline.meta.base_ns or 0,
        start_ns=start - begin_ns,
        dur_ns=dur,
        lane=lane,
        lanes=lanes,
        name=name.astype(np.int64),
        names=tuple(names),
        part=part_of_activities(rows, scan.findings, causes),
        step=step,
        steps=steps,
    )


def _lanes(timeline: Timeline) -> tuple[IntArray, tuple[tuple[int | None, int | None], ...]]:
    """Return the lane of each activity, and what device and stream each is, in order."""
    table = timeline.activities
    device, stream = (numbers(table.column(name), _NOT_RECORDED) for name in ("device", "stream"))
    lane = codes(device, stream)
    example = examples(lane)
    pairs = zip(device[example].tolist(), stream[example].tolist(), strict=True)
    lanes = tuple((_known(one_device), _known(one_stream)) for one_device, one_stream in pairs)
    return lane, lanes


def _known(ordinal: int) -> int | None:
    return None if ordinal == _NOT_RECORDED else ordinal


def _steps(
    timeline: Timeline, start: IntArray, end: IntArray, step_of: IntArray | None
) -> tuple[IntArray, tuple[tuple[int, int], ...]]:
    """Return the place of each activity's step among those that count, in order of time, and those."""
    if step_of is None or not (step_of >= 0).any():
        return np.full(len(start), -1, np.int64), ()
    rows = np.flatnonzero(step_of >= 0)
    known, of = np.unique(step_of[rows], return_inverse=True)
    launch_row = rows_of(timeline.activities["launch_row"])[rows]
    launched = taken(rows_of(timeline.api["start_ns"]), launch_row)
    begin, done = np.full(len(known), np.iinfo(np.int64).max), np.full(len(known), np.iinfo(np.int64).min)
    np.minimum.at(begin, of, np.where(launch_row >= 0, np.minimum(launched, start[rows]), start[rows]))
    np.maximum.at(done, of, end[rows])
    order = np.argsort(begin, kind="stable")
    place = np.empty(len(known), np.int64)
    place[order] = np.arange(len(known))
    step = np.full(len(start), -1, np.int64)
    step[rows] = place[of.reshape(-1)]
    first = int(start[0])
    drawn = ((int(begin[at]) - first, int(done[at] - begin[at])) for at in order)
    return step, tuple(drawn)


class HostLane(Struct, frozen=True, kw_only=True, eq=False):
    """Spans of one thread that do not overlap, in order of start. Nanoseconds on the trace's clock."""

    title: str
    start_ns: IntArray
    dur_ns: IntArray
    name: IntArray  # position in `names`
    names: tuple[str, ...]


def host_lanes(timeline: Timeline, begin_ns: int) -> tuple[HostLane, ...]:
    """Return the lanes of the threads that launch most, each from the user's lines down to what these call.

    begin_ns: the moment that counts as 0.

    >>> from tracemine.pipeline import analyse
    >>> [lane.title for lane in host_lanes(analyse("fixtures/captures/chain").timeline, 0)]
    ['Python', 'operators', 'within', 'GPU calls']
    """
    of_api, of_ops = threads(timeline)
    launch = rows_of(timeline.activities["launch_row"])
    launching = of_api[sorted_unique(launch[launch >= 0])]
    count = np.bincount(launching[launching >= 0], minlength=1)
    drawn = [at for at in np.argsort(-count, kind="stable")[:_MOST_THREADS] if count[at] > _LEAST_SHARE * count.sum()]
    depth, lanes = _depth(timeline), []
    for number, thread in enumerate(drawn, 1):
        behind = f" ({number})" if len(drawn) > 1 else ""
        outer, inner = (np.flatnonzero((of_ops == thread) & (depth == at)) for at in (0, 1))
        lanes += [
            _python(f"Python{behind}", timeline, outer, begin_ns),
            _lane(f"operators{behind}", timeline.ops, outer, begin_ns),
            _lane(f"within{behind}", timeline.ops, inner, begin_ns),
            _lane(f"GPU calls{behind}", timeline.api, np.flatnonzero(of_api == thread), begin_ns),
        ]
    return tuple(lane for lane in lanes if len(lane.start_ns))


def _depth(timeline: Timeline) -> IntArray:
    """Return how many operators are around each operator, 2 at most; −1 of annotations."""
    parent = rows_of(timeline.ops["parent_row"])
    is_op = categories(timeline.ops["kind"]).among("op")
    outer = above(nearest(parent, is_op), parent)
    depth = np.where(outer < 0, 0, np.where(taken(outer, outer) < 0, 1, 2))
    return np.where(is_op, depth, -1)


def _lane(title: str, table: pa.Table, rows: IntArray, begin_ns: int) -> HostLane:
    start, dur = rows_of(table["start_ns"])[rows], rows_of(table["dur_ns"])[rows]
    names = categories(table["name"])
    return _named(title, start - begin_ns, dur, names.codes[rows].astype(np.int64), names.values)


def _python(title: str, timeline: Timeline, rows: IntArray, begin_ns: int) -> HostLane:
    """Return the user's lines that operators come from: one span for as long as one leads to the next."""
    paths, of_rows = line_paths(timeline.stacks)
    texts: dict[str, int] = {}
    of_path = [-1 if path == NOT_KNOWN else texts.setdefault(path[0] or "", len(texts)) for path in paths]
    of_stack = np.append(np.array(of_path, np.int64)[of_rows], -1)
    name = of_stack[rows_of(timeline.ops["stack_row"])[rows]]
    known = name >= 0
    rows, name = rows[known], name[known]
    start = rows_of(timeline.ops["start_ns"])[rows] - begin_ns
    end = start + rows_of(timeline.ops["dur_ns"])[rows]
    first = np.append(True, name[1:] != name[:-1])[: len(name)]
    last = np.append(first[1:], True)[: len(name)]
    return _named(title, start[first], end[last] - start[first], name[first], tuple(texts))


def _named(title: str, start: IntArray, dur: IntArray, code: IntArray, values: Sequence[str]) -> HostLane:
    """Return a lane with those names alone that are in it."""
    used, name = np.unique(code, return_inverse=True)
    texts = tuple(values[each] if each >= 0 else "?" for each in used.tolist())
    return HostLane(title=title, start_ns=start, dur_ns=dur, name=name.reshape(-1), names=texts)


def trace_name(path: str) -> str:
    """Return the last part of a path that names this trace alone; where none does, the last one.

    >>> [trace_name(path) for path in ("runs/decoder/run", "a/b.pt.trace.json.gz", "bert/trace.json", "run")]
    ['decoder', 'b.pt.trace.json.gz', 'bert', 'run']
    """
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    if not parts:
        return path
    return next((part for part in reversed(parts) if not _ANY.match(part)), parts[-1])
