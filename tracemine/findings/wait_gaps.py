"""Idle time that the host's waits for the device lead to: what goes of it where the timeline runs again without them.

Behind a wait the queue is empty, and what the host launches comes late until it is ahead again. In a recording, which
slows the host, launches come late anyhow; what a wait costs shows where it runs again at the pace that it has alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import codes, sorted_unique, unique_pairs
from tracemine.findings.scenarios import Change
from tracemine.findings.steps import Fix, Steps
from tracemine.host.waits import WAITS, Waits, for_the_device
from tracemine.perfmodel import Range
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, numbers, rows_of, take
from tracemine.rows.graph import NodeGraph
from tracemine.rows.host import HostCalls
from tracemine.rows.iterations import Iterations
from tracemine.rows.rounds import FEWEST_WAITS
from tracemine.rows.table import BoolArray, IntArray, Rows, category, flags, number
from tracemine.rows.user_frames import source_lines
from tracemine.timeline import Timeline

# Operators that look for places or for values that differ, and give as many as there are.
_SELECTS: Final = (
    *("aten::nonzero", "aten::_unique", "aten::_unique2", "aten::unique_dim"),
    *("aten::unique_consecutive", "aten::unique_dim_consecutive"),
)
_MAKES: Final = ("from_list", "made")
_NUMBERS: Final = ("number", "truth", "check")
_LONGEST_TEST: Final = 4  # operators from what is tested to the number that is fetched
_PINNED_INSTEAD_BYTES: Final = 65_536  # pageable copies from so much on are a finding of their own
_OF_WAITS: Final = ("synchronisation", "after_wait")
_LEAST_NS: Final = 2_000  # of a gap, as recorded
_LEAST_SHARE: Final = 0.25  # of a gap that goes without its wait: below that the host is late anyhow
_LEAST_OF_FIRST: Final = 0.1  # of the one that gets most shorter of those behind a wait
_STALL_NS: Final = 1_000_000  # unprofiled: from so much on the host does something else, which is a finding of its own


class WaitGaps(Struct, frozen=True):
    """Gaps that follow waits: how much of each goes where the host does not wait."""

    place: IntArray  # of each wait a code: the same for the same line, operator and kind
    behind: IntArray  # of each gap the wait that it follows; −1: none of a place that waits in most steps
    wait: IntArray  # the same; −1 too where three quarters of the gap stay without it
    freed_ns: tuple[IntArray, IntArray, IntArray]  # of each gap, unprofiled: least, usual, most
    gone: BoolArray  # of each gap: what ends it is not launched without the wait


def wait_gaps(
    timeline: Timeline,
    calls: HostCalls,
    waits: Waits,
    counted: Iterations | None,
    gaps: Rows,
    steps: Steps,
    graph: NodeGraph | None = None,
) -> WaitGaps:
    """Return which gaps go with which waits, of those that come back in most steps; no gap gets longer than it is."""
    place, none = _places(timeline, waits), np.zeros(gaps.count, np.int64)
    chosen = _repeated(waits, place, counted, _asked(timeline, calls, waits, counted))
    if not chosen.any() or not gaps.count:
        return WaitGaps(place, none - 1, none - 1, (none, none, none), none > 0)
    fetched = _fetched(timeline, waits, chosen)
    gone = np.maximum(_gone(timeline, waits, chosen), _tested(timeline, waits, chosen, place, graph))
    waiting = waits.call_row[chosen[waits.call_of]]
    made_ns: IntArray = np.append(waits.made_ns, 0)[gone]
    made = (gone >= 0) & (made_ns > 0)
    aside_ns = _fetching_aside_ns(timeline, calls, waits, chosen, gaps)
    aside = (aside_ns > 0) & (gone < 0) & ~fetched
    without = _without(steps, timeline, (gone >= 0) & ~made, waiting)
    changes = [
        without,
        replace(_without(steps, timeline, fetched & (gone < 0), waiting[:0]), whole=False),
        _without_each(steps, timeline, made, made_ns + without.most_ns),
        _without_each(steps, timeline, aside, aside_ns),
    ]
    with_waits, without_ns = steps.gaps_ns(), steps.gaps_ns(changes)
    (takes,) = steps.replay.takes([(changes, steps.paces[::-1])])
    gained_ns = len(sorted_unique(steps.device)) * np.maximum(takes[:, 0] - takes[:, -1], 0.0)
    following = number(gaps, "next_row")
    wait = np.where(gone[following] >= 0, gone[following], _followed(steps, waits, chosen, following))
    late = category(gaps, "cause").among("host_bound") & ((with_waits[1] < _STALL_NS) | made[following])
    late &= np.where(flags(gaps, "between_steps"), number(gaps, "within_steps_ns"), number(gaps, "dur_ns")) >= _LEAST_NS
    usual = with_waits[1] - without_ns[1]
    share = np.where(_largest(usual, wait, late), _LEAST_OF_FIRST, _LEAST_SHARE)
    late &= (usual > 0) & (usual >= share * with_waits[1])
    counts = late | category(gaps, "cause").among(*_OF_WAITS)
    freed_ns = [
        np.minimum(_net(before - after, wait, counts, most_ns), before)
        for before, after, most_ns in zip(with_waits, without_ns, gained_ns.tolist(), strict=True)
    ]
    late &= freed_ns[1] > 0
    return WaitGaps(
        place, wait, np.where(late, wait, -1), (freed_ns[0], freed_ns[1], freed_ns[2]), gone[following] >= 0
    )


def _largest(shorter: IntArray, wait: IntArray, late: BoolArray) -> BoolArray:
    """Return the gap of each wait that gets most shorter without it.

    >>> _largest(np.array([3, 5, 2, 9]), np.array([0, 0, 1, -1]), np.ones(4, np.bool_)).tolist()
    [False, True, True, False]
    """
    rows = np.flatnonzero(late & (wait >= 0))
    order = rows[np.lexsort((-shorter[rows], wait[rows]))]
    found = np.zeros(len(wait), np.bool_)
    found[order[np.flatnonzero(np.diff(wait[order], prepend=-1))]] = True
    return found


def _without(steps: Steps, timeline: Timeline, gone: BoolArray, calls: IntArray) -> Change:
    """Return the timeline's change where these activities are not launched, and the host waits in none of the calls."""
    rows = np.flatnonzero(gone)
    gone_ns = int(numbers(timeline.activities["dur_ns"]).values[rows].sum())
    return steps.change(Fix([rows[:, None]], [Range(gone_ns, gone_ns, gone_ns)], "nothing", unwaited=calls))


def _asked(timeline: Timeline, calls: HostCalls, waits: Waits, counted: Iterations | None) -> BoolArray:
    """Return which waits are the program's own, and no other finding's."""
    launching = np.zeros(int(calls.thread.max(initial=-1)) + 2, np.bool_)
    launching[calls.thread[calls.launches]] = True
    launching[-1] = False  # of no thread
    placed = (waits.op_row >= 0) | (waits.stack_row >= 0)
    found: BoolArray = launching[waits.thread] & placed & ~_large_copies(timeline, waits)
    if counted is None:
        return found
    order = np.argsort(counted.begin_ns, kind="stable")
    begin, end = counted.begin_ns[order], counted.end_ns[order]
    step = np.searchsorted(begin, waits.begin_ns, side="right") - 1
    found &= (step >= 0) & (waits.begin_ns < np.append(end, 0)[step])
    launches = np.sort(calls.begin[calls.launches])
    following = np.append(launches, np.iinfo(np.int64).max)[np.searchsorted(launches, waits.end_ns)]
    leaves = np.searchsorted(begin, following, side="right") - 1 != step
    found &= ~(for_the_device(timeline, waits) & (leaves | (following >= np.append(end, 0)[step])))
    return found


def _large_copies(timeline: Timeline, waits: Waits) -> BoolArray:
    """Return which waits are for a copy from or to pageable memory that is large, and not of what the host makes."""
    activities = timeline.activities
    pageable = np.zeros(activities.num_rows, np.bool_)
    for column in ("source_memory", "target_memory"):
        pageable |= categories(activities[column]).among("pageable")
    pageable &= numbers(activities["bytes"]).values >= _PINNED_INSTEAD_BYTES
    launch = rows_of(activities["launch_row"])[pageable]
    copies = np.zeros(timeline.api.num_rows, np.bool_)
    copies[launch[launch >= 0]] = True
    found = np.zeros(len(waits), np.bool_)
    found[waits.call_of[copies[waits.call_row]]] = True
    found &= waits.made_ns == 0
    return found


def _gone(timeline: Timeline, waits: Waits, chosen: BoolArray) -> IntArray:
    """Return of each activity the chosen wait that it goes with: what looks for the places of a mask, and a copy of
    numbers that Python made a tensor of, or of what operators made. What does by value or by a known index, or keeps
    those numbers on the device, launches none of it. −1: none.
    """
    parent, rows = rows_of(timeline.ops["parent_row"]), np.flatnonzero(chosen)
    selects = categories(timeline.ops["name"]).among(*_SELECTS)
    made = np.zeros(len(selects), np.bool_)
    lists = waits.op_row[rows[np.isin(waits.kind[rows], [WAITS.index(each) for each in _MAKES])]]
    made[lists[lists >= 0]] = True
    around = nearest(parent, selects | made)
    op = taken(around, rows_of(timeline.api["op_row"])[waits.api_row[rows]])
    of_op = np.full(len(selects) + 1, -1)
    of_op[op[op >= 0]] = rows[op >= 0]
    found: IntArray = of_op[taken(around, rows_of(timeline.activities["op_row"]))]
    return found


def _tested(timeline: Timeline, waits: Waits, chosen: BoolArray, place: IntArray, graph: NodeGraph | None) -> IntArray:
    """Return of each activity the chosen wait for which alone it computes, in the function that waits, where a loop
    asks whether to go on: asked in every tenth round, it is seldom computed. −1: none.
    """
    tested = chosen & (waits.kind == WAITS.index("truth")) & (np.bincount(place)[place] >= FEWEST_WAITS)
    found = np.full(timeline.activities.num_rows, -1)
    if graph is None or not tested.any():
        return found
    line = take(source_lines(timeline.stacks), rows_of(timeline.ops["stack_row"])).codes.astype(np.int64)
    op_row, of_op = rows_of(timeline.activities["op_row"]), np.full(len(line) + 1, -1)
    of_op[waits.op_row[tested]] = np.flatnonzero(tested)
    of_op[-1] = -1
    around = nearest(rows_of(timeline.ops["parent_row"]), of_op[:-1] >= 0)
    first = op_row[graph.first_activity]
    wait = of_op[taken(around, first)]
    for _ in range(_LONGEST_TEST):
        reader = wait[graph.consumer]
        others, latest = np.zeros(len(wait), np.bool_), np.full(len(wait), -1)
        others[graph.producer[reader < 0]] = True
        np.maximum.at(latest, graph.producer, reader)
        same = taken(line, first) == taken(line, np.append(waits.op_row, -1)[latest])
        wait = np.where((wait < 0) & ~others & same, latest, wait)
    found[graph.activity] = np.repeat(wait, np.diff(graph.activity_begin))
    return found


def _fetched(timeline: Timeline, waits: Waits, chosen: BoolArray) -> BoolArray:
    """Return which activities fetch the number that one of the chosen waits is for."""
    numbers_of = chosen & np.isin(waits.kind, [WAITS.index(each) for each in _NUMBERS])
    op = waits.op_row[numbers_of]
    own = np.zeros(timeline.ops.num_rows + 1, np.bool_)
    own[op[op >= 0]] = True
    around = nearest(rows_of(timeline.ops["parent_row"]), own[:-1])
    copies = categories(timeline.activities["copy_kind"]).among("DtoH")
    found: BoolArray = copies & (taken(around, rows_of(timeline.activities["op_row"])) >= 0)
    return found


def _fetching_aside_ns(timeline: Timeline, calls: HostCalls, waits: Waits, chosen: BoolArray, gaps: Rows) -> IntArray:
    """Return for how long one of the chosen waits has lasted when another thread launches its copy to the host; 0 of
    other activities. All that is fetching: what goes on with the value on the device does none of it.
    """
    asked = np.zeros(timeline.api.num_rows + 1, np.bool_)
    asked[waits.call_row[chosen[waits.call_of]]] = True
    following, wait = number(gaps, "next_row"), number(gaps, "sync_row", null=-1)
    launch = rows_of(timeline.activities["launch_row"])[following]
    aside = categories(timeline.activities["copy_kind"]).among("DtoH")[following] & asked[wait] & (launch >= 0)
    rows = np.flatnonzero(aside)
    launch, wait = launch[rows], wait[rows]
    during = (calls.thread[launch] != calls.thread[wait]) & (calls.begin[launch] <= calls.end[wait])
    found = np.zeros(timeline.activities.num_rows, np.int64)
    found[following[rows]] = np.where(during, calls.begin[launch] - calls.begin[wait], 0)
    return found


def _without_each(steps: Steps, timeline: Timeline, gone: BoolArray, own_ns: IntArray) -> Change:
    """Return the timeline's change where these copies are not launched, and with each goes so much of the host's time
    before it at most, as recorded.
    """
    host = steps.replay.host
    event = np.append(host.launch, -1)[steps.replay.launch]
    change = _without(steps, timeline, gone & (event >= 0), np.zeros(0, np.int64))
    rows = change.unlaunched
    return replace(change, most_ns=np.minimum(own_ns[rows], host.work_ns[event[rows]]))


def _places(timeline: Timeline, waits: Waits) -> IntArray:
    if not len(waits):
        return waits.kind
    line = take(source_lines(timeline.stacks), waits.stack_row).codes
    operator = taken(rows_of(timeline.api["op_row"]), waits.api_row)
    name = take(categories(timeline.ops["name"]), operator).codes
    return codes(line.astype(np.int64), name.astype(np.int64), waits.kind)


def _repeated(waits: Waits, place: IntArray, counted: Iterations | None, asked: BoolArray) -> BoolArray:
    """Return which of the waits that are asked for are of a place that waits in most steps."""
    rows = np.flatnonzero(asked)
    if not len(rows):
        return asked
    place = place[rows]
    if counted is None:
        often = np.bincount(place) > 1
    else:
        step = np.searchsorted(np.sort(counted.begin_ns), waits.begin_ns[rows], side="right")
        pairs = unique_pairs(place, step)
        often = 2 * np.bincount(pairs[0]) > len(counted)
    found = np.zeros(len(waits), np.bool_)
    found[rows[often[place]]] = True
    return found


def _followed(steps: Steps, waits: Waits, chosen: BoolArray, following: IntArray) -> IntArray:
    """Return the chosen wait that each gap's launch is behind, where no other one of the host's waits is between."""
    host = steps.replay.host
    of_call = np.full(int(max(host.call.max(initial=0), waits.call_row.max(initial=0))) + 1, -1)
    kept = chosen[waits.call_of]
    of_call[waits.call_row[kept]] = waits.call_of[kept]
    events = np.arange(len(host.call))
    last = np.maximum.accumulate(np.where(host.waits_for >= 0, events, -1))
    launch = np.append(host.launch, -1)[steps.replay.launch[following]]
    behind = np.where(launch >= 0, last[launch], -1)
    return np.where(behind >= 0, of_call[host.call[behind]], -1)


def _net(shorter: IntArray, wait: IntArray, counts: BoolArray, most_ns: float) -> IntArray:
    """Return by how much the gaps that count are shorter, with what others of their wait are shorter, or longer
    instead; all, `most_ns`.

    >>> every = np.ones(4, np.bool_)
    >>> _net(np.array([6, -2, 4, -4]), np.array([0, 0, 1, -1]), every, 4.0).tolist()
    [2, 0, 2, 0]
    >>> _net(np.array([6, 2, 4, 4]), np.array([0, 0, 1, -1]), np.array([True, False, False, True]), 10.0).tolist()
    [8, 0, 0, 0]
    """
    gains = np.where(counts, np.maximum(shorter, 0), 0).astype(np.float64)
    of_wait, positive = (np.bincount(wait + 1, each, int(wait.max(initial=-1)) + 2) for each in (shorter, gains))
    left = np.where(positive > 0, np.maximum(of_wait, 0.0), 0.0)
    left[0] = 0.0  # of gaps behind no wait
    share = left * min(most_ns / max(left.sum(), 1.0), 1.0) / np.maximum(positive, 1.0)
    net: IntArray = (gains * share[wait + 1]).astype(np.int64)
    return net
