"""Places where the host waits for the device: what it calls there, and from which line."""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

import numpy as np
from msgspec import Struct

from tracemine.columns import codes
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, outermost, taken
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.host import WORK, HostCalls, last_begun, named
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_LISTS: Final = deferred(r"^aten::(lift_fresh|lift)$")  # what `torch.tensor` calls on what it has made
_DETACHED: Final = deferred(r"^aten::detach_$")  # what it calls last
_FACTORIES: Final = deferred(
    r"^aten::(ones|zeros|full|eye|arange|linspace|logspace|rand(int|perm|n)?|tri[lu]_indices|(hann|hamming)_window)$"
)
# What has one tensor to work on, the one that was made before.
_SHAPED: Final = deferred(
    r"^aten::(tri[lu]_?|fill_|zero_|normal_|uniform_|to|view|reshape|expand|repeat|flatten|(un)?squeeze|t|transpose"
    r"|permute|slice|flip|neg|cumsum|cos|sin|exp|(bitwise|logical)_not|contiguous|clone|type_as)$"
)


class Made(Struct, frozen=True):
    """What goes before an operator that copies to the device, of each row of `ops`."""

    of_list: BoolArray  # `torch.tensor(list)` goes before, or follows within the call
    host_ns: IntArray  # how long operators took that made what is copied of nothing, as recorded; 0: none did


def made_before(timeline: Timeline, thread: IntArray, launched: IntArray) -> Made:
    """Return what makes the tensors that outermost operators copy. thread: of each row of `ops`. launched: operators
    that make a call of the runtime, the outermost around each.
    """
    ops = timeline.ops
    is_op, above = categories(ops["kind"]).among("op"), rows_of(ops["parent_row"])
    top = np.flatnonzero(is_op & ((above < 0) | ~np.append(is_op, False)[above]))
    top = top[np.argsort(thread[top], kind="stable")]
    names = categories(ops["name"])
    lists, detached, factory, shaped = (
        np.append(named(names, each)[top], False) for each in (_LISTS, _DETACHED, _FACTORIES, _SHAPED)
    )
    place = np.arange(len(top))
    same = np.append(thread[top[1:]] == thread[top[:-1]], False) if len(top) else np.zeros(0, np.bool_)
    first = np.append(True, ~same[:-1])[: len(top)]  # of its thread
    of_list: BoolArray = np.zeros(ops.num_rows, np.bool_)
    before = lists | (detached & np.roll(lists, 1))
    of_list[top] = lists[1:] | (np.roll(before, 1)[:-1] & ~first)
    calls = np.zeros(ops.num_rows + 1, np.bool_)
    calls[launched] = True
    quiet = ~calls[:-1][top]
    other = ~(quiet & (factory | shaped)[:-1]) | first
    begun = np.maximum.accumulate(np.where(other, place, -1))  # the last operator that is no part of a chain
    began = _first_since(begun, quiet & factory[:-1], place)
    spent = np.append(0, np.cumsum(rows_of(ops["dur_ns"])[top]))
    host_ns = np.zeros(ops.num_rows, np.int64)
    known = np.flatnonzero((place > 0) & ~first)
    chain = np.append(-1, began)[known]  # of the operator before each
    host_ns[top[known]] = np.where(chain >= 0, spent[known] - spent[np.maximum(chain, 0)], 0)
    return Made(of_list=of_list, host_ns=host_ns)


def _first_since(begun: IntArray, factory: BoolArray, place: IntArray) -> IntArray:
    """Return the first factory at or behind where each operator's chain has begun, no later than itself; −1: none.

    >>> _first_since(np.array([0, 0, 0, 3]), np.array([False, True, False, False]), np.arange(4)).tolist()
    [-1, 1, 1, -1]
    """
    found = np.append(np.flatnonzero(factory), len(place))
    at = found[np.searchsorted(found, begun)]
    first: IntArray = np.where(at <= place, at, -1)
    return first


Wait = Literal[
    "print",  # of a tensor
    "mask",  # an operator whose result is as large as its input's values say
    "truth",  # `if tensor:`, `while tensor:`
    "number",  # `.item()`, `float(...)`
    "check",  # an operator that fetches a number itself: whether its result is right
    "to_host",  # a copy to memory that is not pinned
    "from_list",  # a copy of a few numbers that Python made a tensor of
    "made",  # a copy of what operators on the host made of nothing
    "from_host",  # a copy from memory that is not pinned
    "synchronize",
    "other",
]
WAITS: Final[tuple[Wait, ...]] = get_args(Wait)
_NUMBER: Final[dict[str, int]] = {name: at for at, name in enumerate(WAITS)}

_PRINTS: Final = deferred(r"(^|[/\\])torch[/\\]_tensor_str\.py$")
_OPERATORS: Final[tuple[tuple[Wait, re.Pattern[str]], ...]] = (  # the more specific first
    ("mask", deferred(r"^aten::(nonzero|masked_select|_?unique\w*|argwhere|repeat_interleave|bincount)(_|$)")),
    ("truth", deferred(r"^aten::(is_nonzero|equal|allclose)$")),
    ("number", deferred(r"^aten::(item|_local_scalar_dense)$")),
)
_WHOLE_DEVICE: Final = deferred(r"^(cuda|hip)DeviceSynchronize|^cuCtxSynchronize|^Context Sync")
_OF_EVENTS: Final = deferred(r"EventSynchronize")
_RECORDS: Final = deferred(r"^(cuda|hip|cu)EventRecord")
_FEW_BYTES: Final = 65_536


class Waits(Struct, frozen=True, kw_only=True):
    """Waits in order of time, an operator's calls together as one. −1: not known."""

    begin_ns: IntArray  # of its first call that waits
    end_ns: IntArray
    wait_ns: IntArray  # in calls that wait
    made_ns: IntArray  # as recorded, in the operators that made what it copies; 0: none did
    kind: IntArray  # position in WAITS
    thread: IntArray
    api_row: IntArray  # its last call that waits
    op_row: IntArray  # the outermost operator around it
    stack_row: IntArray
    call_row: IntArray  # rows of `api`: all calls that wait, in no order
    call_of: IntArray  # of each of these the wait that it is part of

    def __len__(self) -> int:
        return len(self.begin_ns)


def waits_of(timeline: Timeline, calls: HostCalls, of_ops: IntArray) -> Waits:
    """Return where the host waits for the device. What allocates or frees memory, and waits for that, is none; nor is
    a wait for an event behind which more was queued already: the device goes on. of_ops: the thread of each operator.
    """
    launch_row = rows_of(timeline.activities["launch_row"])
    api, ops = timeline.api, timeline.ops
    (frees,) = (work.calls for work in WORK if work.cause == "allocator" and work.calls is not None)
    waits = calls.blocks & (calls.thread >= 0) & ~named(categories(api["name"]), frees)
    rows = np.flatnonzero(waits & ~_leaves_work(timeline, calls))
    parent, is_op = rows_of(ops["parent_row"]), categories(ops["kind"]).among("op")
    op_row = rows_of(api["op_row"])
    calling = taken(outermost(nearest(parent, is_op), parent), op_row)
    outer = calling[rows]
    one = np.where(outer >= 0, outer, ops.num_rows + rows)  # calls of one operator are one wait
    rows, outer, one = (each[np.argsort(rows, kind="stable")] for each in (rows, outer, one))
    code = codes(one)
    count = int(code.max(initial=-1)) + 1
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    last[code] = np.arange(len(code))
    spent = np.zeros(count, np.int64)
    np.add.at(spent, code, (calls.end - calls.begin)[rows])
    made = made_before(timeline, of_ops, calling[calling >= 0])
    kind = _kinds(timeline, made, op_row[rows[first]], outer[first], rows[first], launch_row)
    order = np.argsort(calls.begin[rows[first]], kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    stack = rows_of(api["stack_row"])[rows]
    return Waits(
        begin_ns=calls.begin[rows[first]][order],
        end_ns=calls.end[rows[last]][order],
        wait_ns=spent[order],
        made_ns=np.where(kind == _NUMBER["made"], np.append(made.host_ns, 0)[outer[first]], 0)[order],
        kind=kind[order],
        thread=calls.thread[rows[first]][order],
        api_row=rows[last][order],
        op_row=outer[first][order],
        stack_row=stack[first][order],
        call_row=rows,
        call_of=place[code],
    )


def for_the_device(timeline: Timeline, waits: Waits) -> BoolArray:
    """Return which waits are for all of the device's work."""
    return named(categories(timeline.api["name"]), _WHOLE_DEVICE)[waits.api_row]


def _leaves_work(timeline: Timeline, calls: HostCalls) -> BoolArray:
    """Return which calls wait for an event that was recorded before the last launch of their thread, or return while
    the device is at work on what was launched before them: in the light window, where there is one.
    """
    names = categories(timeline.api["name"])
    events, records = named(names, _OF_EVENTS), named(names, _RECORDS)
    rows = np.flatnonzero(events)
    left = np.zeros(len(events), np.bool_)
    thread, begin = calls.thread[rows], calls.begin[rows]
    recorded, launched = (last_begun(calls, which, thread, begin) for which in (records, calls.launches))
    known = (recorded >= 0) & (launched >= 0)
    left[rows[known]] = calls.begin[launched[known]] > calls.begin[recorded[known]]
    left[rows] |= _at_work(timeline, calls, rows)
    return left


def _at_work(timeline: Timeline, calls: HostCalls, rows: IntArray) -> BoolArray:
    """Return which of these calls return before all has ended that was launched before them."""
    begin, end, light = calls.begin.copy(), calls.end.copy(), timeline.light
    launch, done = rows_of(timeline.activities["launch_row"]), rows_of(timeline.activities["start_ns"]).copy()
    done += rows_of(timeline.activities["dur_ns"])
    if light.num_rows:
        start, call, activity = (rows_of(light[name]) for name in ("start_ns", "api_row", "activity_row"))
        until, own, ran = start + rows_of(light["dur_ns"]), call >= 0, activity >= 0
        begin[:], done[:] = np.iinfo(np.int64).max, 0  # what is in no step of it tells nothing
        begin[call[own]], end[call[own]], done[activity[ran]] = start[own], until[own], until[ran]
    chosen = np.flatnonzero(launch >= 0)
    chosen = chosen[np.argsort(begin[launch[chosen]], kind="stable")]
    latest = np.append(0, np.maximum.accumulate(done[chosen]))
    found: BoolArray = latest[np.searchsorted(begin[launch[chosen]], begin[rows])] > end[rows]
    return found & (begin[rows] < np.iinfo(np.int64).max)


def _kinds(
    timeline: Timeline, made: Made, op: IntArray, outer: IntArray, call: IntArray, launch_row: IntArray
) -> IntArray:
    """Return the kind of each wait. Of each: its innermost and its outermost operator, and its first call."""
    ops, api = timeline.ops, timeline.api
    names, parent = categories(ops["name"]), rows_of(ops["parent_row"])
    kind = np.full(len(op), _NUMBER["other"])
    if ops.num_rows:  # else any operator may have made the call
        kind[(op < 0) & ~categories(api["name"]).that(lambda name: "Memcpy" in name)[call]] = _NUMBER["synchronize"]
    copied = _copies(timeline, op, call, launch_row)
    for direction, wait in (("DtoH", "to_host"), ("HtoD", "from_host")):
        kind[np.append(categories(timeline.activities["copy_kind"]).among(direction), False)[copied]] = _NUMBER[wait]
    few = np.append(numbers(timeline.activities["bytes"]).values, 0)[copied] < _FEW_BYTES
    copies = kind == _NUMBER["from_host"]
    kind[copies & (np.append(made.host_ns, 0)[outer] > 0)] = _NUMBER["made"]
    kind[copies & few & np.append(made.of_list, False)[outer]] = _NUMBER["from_list"]
    for wait, pattern in reversed(_OPERATORS):
        marked = named(names, pattern)
        if marked.any():
            kind[taken(nearest(parent, marked), op) >= 0] = _NUMBER[wait]
            if wait == "number":
                kind[(kind == _NUMBER[wait]) & ~np.append(marked, False)[outer]] = _NUMBER["check"]
    stacks = timeline.stacks
    prints = nearest(rows_of(stacks["parent_row"]), categories(stacks["file"]).that(_PRINTS.search))
    kind[taken(prints, rows_of(api["stack_row"])[call]) >= 0] = _NUMBER["print"]
    return kind


def _copies(timeline: Timeline, op: IntArray, call: IntArray, launch_row: IntArray) -> IntArray:
    """Return the copy that each wait is for: of its operator, else of its call; −1: none."""
    copies = np.flatnonzero(categories(timeline.activities["kind"]).among("memcpy"))
    by_op, by_call = np.full(timeline.ops.num_rows + 1, -1), np.full(timeline.api.num_rows + 1, -1)
    by_op[rows_of(timeline.activities["op_row"])[copies]] = copies
    by_call[launch_row[copies]] = copies
    by_op[-1] = by_call[-1] = -1  # of those that none is known of
    return np.where(by_op[op] >= 0, by_op[op], by_call[call])
