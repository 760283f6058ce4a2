"""Activities of a trace by lane, a stream of a device: what a timeline is drawn from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import codes, examples, numbers, string_ids
from tracemine.findings.context import Cause
from tracemine.findings.parts import part_of_activities
from tracemine.findings.record import Scan
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import IntArray, Rows
from tracemine.timeline import Timeline

__all__ = ["Activities", "DrawnStep", "activities_of"]

_NOT_RECORDED = -1


class DrawnStep(Struct, frozen=True):
    """A step that counts: from its first launch, as far as that was recorded, to the end of its last activity."""

    start_ns: int  # from `begin_ns` of the activities on; before it, negative
    dur_ns: int


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
    steps: tuple[DrawnStep, ...]

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
) -> tuple[IntArray, tuple[DrawnStep, ...]]:
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
    drawn = (DrawnStep(int(begin[at]) - first, int(done[at] - begin[at])) for at in order)
    return step, tuple(drawn)
