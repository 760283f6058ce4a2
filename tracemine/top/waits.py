"""Where the host waits for the device: the waits of each line, what for, and what the step is shorter without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracemine.columns import codes, is_among
from tracemine.findings.light import waits_ns
from tracemine.findings.record import Range
from tracemine.findings.steps import Fix, Steps
from tracemine.host.uses import USES, uses_of
from tracemine.host.waits import WAITS, Waits, waits_of
from tracemine.rows.arrow import categories
from tracemine.rows.host import HostCalls, host_calls
from tracemine.rows.iterations import Iterations
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline
from tracemine.top.lines import line_paths
from tracemine.top.record import WaitRow

_MOST_ASKED = 64  # lines of which the step is run again without their waits; those that wait longest
_NOTHING = Range(0, 0, 0)


def wait_rows(timeline: Timeline, steps: Iterations | None, replayed: Steps) -> list[WaitRow]:
    """Return the waits of each line and use, what saves most first. replayed: the timeline as it can be run again."""
    calls, of_ops = host_calls(timeline)
    waits = waits_of(timeline, calls, of_ops)
    begin_ns = np.zeros(0, np.int64) if steps is None else np.sort(steps.begin_ns)
    use = uses_of(timeline, waits, begin_ns, of_ops)
    inside = np.flatnonzero(_inside(waits, steps))
    if not len(inside):
        return []
    waiting_ns = _waiting_ns(timeline, calls, waits)
    paths, of_stack = line_paths(timeline.stacks)
    line = np.append(of_stack, -1)[waits.stack_row]
    operator = np.append(categories(timeline.ops["name"]).codes, -1)[waits.op_row]
    told_by = np.where(line >= 0, -1, operator)  # an operator tells apart where no line does
    group = codes(*(column[inside].astype(np.int64) for column in (line, told_by, waits.kind, use)))
    members = [inside[group == at] for at in range(int(group.max()) + 1)]
    members.sort(key=lambda rows: -int(waiting_ns[rows].sum()))
    names = categories(timeline.ops["name"]).values
    rows = []
    for own, saving in zip(members, [*_savings(waits, members, replayed)], strict=True):
        of_line, of_operator, of_use = (int(each[own[0]]) for each in (line, operator, use))
        path = () if of_line < 0 else paths[of_line]
        rows.append(
            WaitRow(
                line=path[0] if path else None,
                operator=None if of_operator < 0 else names[of_operator],
                kind=WAITS[int(waits.kind[own[0]])],
                use=None if of_use < 0 else USES[of_use],
                waits=len(own),
                wait_ns=int(waiting_ns[own].sum()),
                saving_ns=saving,
            )
        )
    return sorted(rows, key=lambda row: (-(row.saving_ns or _NOTHING).mid, -row.wait_ns))


def _waiting_ns(timeline: Timeline, calls: HostCalls, waits: Waits) -> IntArray:
    """Return for how long the host is in the calls of each wait: in the light window where there is one."""
    lasted = (calls.end - calls.begin)[waits.call_row]
    waiting = np.zeros(len(waits), np.int64)
    np.add.at(waiting, waits.call_of, waits_ns(timeline, waits.call_row, lasted))
    return waiting


def _inside(waits: Waits, steps: Iterations | None) -> BoolArray:
    """Return which waits begin in a step; all where no steps are known."""
    if steps is None:
        return np.ones(len(waits), np.bool_)
    order = np.argsort(steps.begin_ns, kind="stable")
    begin, end = steps.begin_ns[order], np.maximum.accumulate(steps.end_ns[order])
    at = np.searchsorted(begin, waits.begin_ns, side="right") - 1
    inside: BoolArray = (at >= 0) & (waits.begin_ns < end[np.maximum(at, 0)])
    return inside


def _savings(waits: Waits, members: Sequence[IntArray], replayed: Steps) -> Iterator[Range | None]:
    """Yield what each group saves where the timeline is run again without it and those before; None: not asked."""
    asked = members[:_MOST_ASKED]
    calls = (waits.call_row[is_among(waits.call_of, rows)] for rows in asked)
    yield from replayed.gains([Fix([], [], "each", unwaited=call) for call in calls])
    yield from [None] * (len(members) - len(asked))
