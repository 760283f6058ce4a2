"""The one host call that lasts through a stretch of idle time of which the cause is not recorded."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.findings.labels import short, sources
from tracemine.findings.record import Source
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import IntArray, Rows, category, number
from tracemine.timeline import Timeline

UNEXPLAINED = ("unknown", "event_wait")  # causes of gaps that do not say what was waited for

_LEAST_COVERED = 0.8  # of the gap
_LONGEST_NAME = 60  # names come from strangers


class Held(Struct, frozen=True):
    """A host call that lasts through a gap, and who made it."""

    call: str
    op: str | None
    line: str | None  # the innermost function of the program's

    @property
    def name(self) -> str:
        """The call and its operator, for people.

        >>> Held("hipMemcpyWithStream", "aten::copy_", None).name
        '`hipMemcpyWithStream` in `aten::copy_`'
        """
        op = "" if self.op is None else f" in `{self.op[:_LONGEST_NAME]}`"
        return f"`{self.call[:_LONGEST_NAME]}`{op}"

    @property
    def text(self) -> str:
        """The call, its operator and its place, for people.

        >>> Held("hipMemcpyWithStream", None, "engine.py: step (line 7)").text
        '`hipMemcpyWithStream`, called by engine.py: step (line 7)'
        """
        return self.name if self.line is None else f"{self.name}, called by {self.line}"


def held_longest(timeline: Timeline, gaps: Rows) -> tuple[int, Held] | None:
    """Return the longest gap without a recorded cause, ns, and the call that lasts through it.

    None where there is none, where no call does, or where that gap is not most of what is without a cause.
    """
    dur_ns = np.where(category(gaps, "cause").among(*UNEXPLAINED), number(gaps, "dur_ns"), 0)
    if not dur_ns.any():
        return None
    longest = int(dur_ns.argmax())
    gap_ns, begin_ns = int(dur_ns[longest]), int(number(gaps, "start_ns")[longest])
    held = held_in(timeline, begin_ns, begin_ns + gap_ns) if 2 * gap_ns >= dur_ns.sum() else None
    return None if held is None else (gap_ns, held)


def held_in(timeline: Timeline, begin_ns: int, end_ns: int) -> Held | None:
    """Return the call of the host that lasts through most of an interval; None where there is none, or several threads
    have one."""
    api = timeline.api
    begin, dur = rows_of(api["start_ns"]), rows_of(api["dur_ns"])
    thread = rows_of(api["tid"])  # a recorded sync says no thread, and what waits there is a call as well
    inside: IntArray = np.minimum(begin + dur, end_ns) - np.maximum(begin, begin_ns)
    rows = np.flatnonzero((thread >= 0) & (inside >= _LEAST_COVERED * (end_ns - begin_ns)))
    if not len(rows) or (thread[rows] != thread[rows[0]]).any():
        return None
    row = int(rows[0])  # a driver's call may lie within it
    op_row, stack_row = (api[name][row].as_py() for name in ("op_row", "stack_row"))
    lines = sources(timeline, stack_row)
    return Held(
        call=api["name"][row].as_py(),
        op=None if op_row is None else timeline.ops["name"][op_row].as_py(),
        line=_line(lines[0]) if lines else None,
    )


def _line(source: Source) -> str:
    return f"{short(source)} ({'begins at ' if source.begins else ''}line {source.line})"
