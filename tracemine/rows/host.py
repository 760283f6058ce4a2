"""Host threads: their calls, which of them block, and time spent in one kind of work.

Everything is looked up for all gaps at once. A thread is a code; recorded syncs, which say no thread, have −1.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from tracemine.columns import ordered
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.codes import combination_codes, grouped_running_maximum
from tracemine.rows.table import BoolArray, Categories, IntArray, Numbers
from tracemine.timeline import Timeline

# Host calls that return only when the device has done what was asked. Asynchronous copies that touch pageable memory
# are staged through a buffer and block as well; whether one does is known by the copy it launched.
_BLOCKING = deferred(
    r"^(cuda|hip)(Device|Stream|Event)Synchronize|^cu(Ctx|Stream|Event)Synchronize"
    r"|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|Peer|WithStream|[DH]to[DH])?(_ptds)?(_v\d+)?$|^cuMemcpy([DH]to[DH])?(_v\d+)?$"
    r"|^(cuda|hip)(Free|FreeHost|HostFree)$|^np\.asarray\(jax\.Array\)$|block_until_ready$"
)
_ASYNCHRONOUS_COPY = deferred(r"Memcpy\w*Async")
_HOST_WAITS = deferred(r"^(Stream|Context|Event) Sync", re.IGNORECASE)  # kinds of recorded syncs that block the host
_STREAM_WAITS = deferred(r"^(cuda|hip|cu)StreamWaitEvent")


class HostWork(Struct, frozen=True):
    """A kind of work that keeps a host from launching: the cause that it is, and its calls' or operators' names."""

    cause: str
    calls: re.Pattern[str] | None = None
    operators: re.Pattern[str] | None = None


# A loop at its data: torch.utils.data, and Lightning's name for the same.
LOADS = deferred(r"^enumerate\(DataLoader\)|(?i:dataloader\w*_next\b)")
# The more specific first: a loader that pins memory is allocating for as long as it does.
WORK = (
    HostWork(
        "allocator",
        calls=deferred(
            r"^(cuda|hip)(Malloc|Free(?!ze)|Host(Alloc|Free|Register|Unregister|Malloc)|MemPool(TrimTo|Create))"
            r"|^(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|SetAccess|Release|AddressReserve|AddressFree|HostAlloc|HostRegister)"
        ),
    ),
    HostWork(
        "module_load",
        calls=deferred(
            r"^(cu|cuda|hip)(Module|Library)(Load|Unload|Get)|^cuLink(Create|AddData|AddFile|Complete)"
            r"|^cuKernelGetFunction"
        ),
    ),
    # torch names each phase of compiling so (torch._dynamo.utils.dynamo_timed), the others are JAX's and XLA's; none of
    # them is part of a warm step.
    HostWork("compilation", operators=deferred(r" \(dynamo_timed\)$|^backend_compile(_and_load)?$|^XlaCompile(:|$)")),
    HostWork("data_loading", operators=LOADS),
)


class HostCalls(Struct, frozen=True):
    """The `api` table as arrays."""

    begin: IntArray
    end: IntArray
    thread: IntArray
    launches: BoolArray  # the call launched an activity
    blocks: BoolArray  # the call waits for the device
    stream_waits: BoolArray  # the call makes a stream wait for an event

    @staticmethod
    def of(timeline: Timeline, launch_row: IntArray, thread: IntArray) -> HostCalls:
        api, activities = timeline.api, timeline.activities
        begin = numbers(api.column("start_ns")).values.astype(np.int64)
        end = begin + numbers(api.column("dur_ns")).values.astype(np.int64)
        name = categories(api.column("name"))
        staged = np.zeros(len(begin), np.bool_)
        pageable = np.zeros(activities.num_rows, np.bool_)
        for column in ("source_memory", "target_memory"):
            memory = categories(activities.column(column))
            pageable |= memory.among("pageable")
        staged[launch_row[pageable & (launch_row >= 0)]] = True
        launches = np.zeros(len(begin), np.bool_)
        launches[launch_row[launch_row >= 0]] = True
        blocks = named(name, _BLOCKING) | named(name, _HOST_WAITS) | (staged & named(name, _ASYNCHRONOUS_COPY))
        return HostCalls(begin, end, thread, launches, blocks, named(name, _STREAM_WAITS))


def host_calls(timeline: Timeline) -> tuple[HostCalls, IntArray]:
    """Return all calls, and the thread of each row of `ops`."""
    of_calls, of_ops = threads(timeline)
    return HostCalls.of(timeline, rows_of(timeline.activities["launch_row"]), of_calls), of_ops


def threads(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return a code for the thread of each row of `api` and of `ops`, the same in both; −1 for recorded syncs."""
    api, ops = timeline.api, timeline.ops
    pid, tid = (_stacked(numbers(api.column(each)), numbers(ops.column(each))) for each in ("pid", "tid"))
    code = combination_codes(pid, tid)
    kind = categories(api.column("kind"))
    is_sync = kind.among("sync")
    return np.where(is_sync, -1, code[: api.num_rows]), code[api.num_rows :]


def _stacked(first: Numbers, other: Numbers) -> Numbers:
    values = np.concatenate((first.values.astype(np.int64, copy=False), other.values.astype(np.int64, copy=False)))
    if first.valid is None and other.valid is None:
        return Numbers(values)
    known = [np.ones(len(each.values), np.bool_) if each.valid is None else each.valid for each in (first, other)]
    return Numbers(values, np.concatenate(known))


def named(name: Categories, pattern: re.Pattern[str]) -> BoolArray:
    """Return which rows have a name in which the pattern is found; each distinct name is searched once."""
    return name.that(pattern.search)


# --- which call blocked the host -------------------------------------------------------------------------------------


def blocking_call(
    calls: HostCalls, launch: IntArray, previous_launch: IntArray, idle_from: IntArray
) -> tuple[IntArray, IntArray]:
    """Return, for each gap, the call that blocked the host when the device went idle (−1: none), and for how long.

    It began before the device went idle, ended after that and before the next launch began, and its thread launched
    nothing in between. Looked for on the thread that launched next, then on the one that launched before (a backward
    pass runs on a thread of its own), then among recorded syncs, which say no thread.
    """
    found, blocked = np.full(len(launch), -1, np.int64), np.zeros(len(launch), np.int64)
    if not len(calls.begin):
        return found, blocked
    next_begin = calls.begin[launch]
    own, other = calls.thread[launch], np.where(previous_launch >= 0, calls.thread[previous_launch], -2)
    for thread, asked in ((own, found < 0), (other, (other >= 0) & (other != own)), (np.full_like(own, -1), found < 0)):
        rows = np.flatnonzero(asked & (found < 0))
        found[rows], blocked[rows] = _blocking_on(calls, thread[rows], own[rows], next_begin[rows], idle_from[rows])
    return found, blocked


def _blocking_on(
    calls: HostCalls, thread: IntArray, own: IntArray, next_begin: IntArray, idle_from: IntArray
) -> tuple[IntArray, IntArray]:
    """Return as `blocking_call`, of one thread for each gap; `own`: the thread that launched next."""
    last = last_of(np.flatnonzero(calls.blocks), calls.thread, calls.end, thread, next_begin, inclusive=True)
    begin, end = calls.begin[last], calls.end[last]
    fits = (last >= 0) & (begin < idle_from) & (end >= idle_from)
    found, blocked = np.full(len(thread), -1, np.int64), np.zeros(len(thread), np.int64)
    rows = np.flatnonzero(fits)
    if not len(rows):
        return found, blocked
    thread, own, next_begin, last = (each[rows] for each in (thread, own, next_begin, last))
    # Nothing was launched in between: the thread's last launch before the next one began no later than this call.
    launching = np.where(thread < 0, own, thread)
    latest = last_begun(calls, calls.launches, launching, next_begin)
    latest_free = last_begun(calls, calls.launches & ~calls.blocks, launching, next_begin)
    since = np.where(latest_free >= 0, calls.begin[latest_free], np.iinfo(np.int64).min)
    fits = (latest < 0) | (calls.begin[latest] <= calls.begin[last])
    found[rows] = np.where(fits, last, -1)
    blocked[rows] = np.where(fits, _blocked_since(calls, thread, since, last), 0)
    return found, blocked


def _blocked_since(calls: HostCalls, thread: IntArray, since: IntArray, last: IntArray) -> IntArray:
    """Return time that the thread spent in blocking calls begun after `since`, up to and with `last`; 0 without one."""
    rows = np.flatnonzero(calls.blocks)
    order = rows[np.lexsort((calls.end[rows], calls.thread[rows]))]
    if not len(order):
        return np.zeros(len(last), np.int64)
    place = np.zeros(len(calls.begin), np.int64)
    place[order] = np.arange(len(order))
    total = np.r_[0, np.cumsum(calls.end[order] - calls.begin[order])]
    before = last_of(rows, calls.thread, calls.begin, thread, since, inclusive=True)
    first = np.where(before >= 0, place[before] + 1, np.searchsorted(calls.thread[order], thread))
    first = np.minimum(first, place[last])
    span = calls.end[last] - calls.begin[order[first]]  # a call inside another must not count twice
    return np.where(last >= 0, np.minimum(total[place[last] + 1] - total[first], span), 0)


def last_begun(calls: HostCalls, which: BoolArray, thread: IntArray, until: IntArray) -> IntArray:
    """Return, for each thread and moment, the last such call that had begun before; −1: none."""
    return last_of(np.flatnonzero(which), calls.thread, calls.begin, thread, until, inclusive=False)


def last_of(
    rows: IntArray, thread: IntArray, time: IntArray, wanted: IntArray, until: IntArray, *, inclusive: bool
) -> IntArray:
    """Return the one of `rows` on the `wanted` thread whose time is the last before `until` (or at it); −1: none.

    >>> thread, time = np.array([0, 0, 1]), np.array([10, 20, 15])
    >>> last_of(np.arange(3), thread, time, np.array([0, 1, 1]), np.array([20, 20, 15]), inclusive=False).tolist()
    [0, 2, -1]
    """
    if not len(rows):
        return np.full(len(wanted), -1, np.int64)
    key, _ = ordered(np.concatenate((thread[rows], wanted)), np.concatenate((time[rows], until)))
    order = np.argsort(key[: len(rows)], kind="stable")
    asked = np.searchsorted(key[order], key[len(rows) :], side="right" if inclusive else "left") - 1
    found = rows[order[np.maximum(asked, 0)]]
    return np.where((asked >= 0) & (thread[found] == wanted), found, -1)


# --- time spent in one kind of work ----------------------------------------------------------------------------------


class Intervals(Struct, frozen=True):
    """Intervals of groups (threads), cut to what is new where they overlap. In order of group and begin."""

    row: IntArray  # the caller's row number
    group: IntArray
    begin: IntArray
    end: IntArray
    before: IntArray  # length of the group's intervals before it

    @staticmethod
    def of(row: IntArray, group: IntArray, begin: IntArray, end: IntArray) -> Intervals:
        order = np.lexsort((-end, begin, group))
        row, group, begin, end = (each[order] for each in (row, group, begin, end))
        latest = grouped_running_maximum(end, group)
        follows = np.concatenate(([False], group[1:] == group[:-1]))[: len(group)]
        begin = np.where(follows, np.maximum(begin, np.concatenate(([0], latest))[: len(group)]), begin)
        new = end > begin
        row, group, begin, end = (each[new] for each in (row, group, begin, end))
        total = np.cumsum(end - begin) - (end - begin)
        first = np.searchsorted(group, group)
        return Intervals(row, group, begin, end, total - total[first] if len(total) else total)

    def last_begun(self, group: IntArray, until: IntArray) -> IntArray:
        """Return, for each group and moment, the last interval begun before; −1: none."""
        return last_of(np.arange(len(self.row)), self.group, self.begin, group, until, inclusive=False)

    def covered(self, group: IntArray, since: IntArray, until: IntArray) -> IntArray:
        """Return how much of [since, until) the group's intervals cover.

        >>> some = Intervals.of(np.arange(3), np.zeros(3, int), np.array([10, 12, 30]), np.array([20, 18, 40]))
        >>> some.covered(np.array([0, 0, 7]), np.array([15, 0, 0]), np.array([35, 50, 50])).tolist()
        [10, 20, 0]
        """
        found: IntArray = np.maximum(self._until(group, until) - self._until(group, since), 0)
        return found

    def _until(self, group: IntArray, moment: IntArray) -> IntArray:
        if not len(self.row):
            return np.zeros(len(moment), np.int64)
        last = self.last_begun(group, moment)
        length = np.minimum(self.end[last], moment) - self.begin[last]
        return np.where(last >= 0, self.before[last] + length, 0)


def is_graph_launch(launch: Categories) -> BoolArray:
    """Return which host calls replay a whole graph: one call, many activities."""
    return launch.that(lambda name: "GraphLaunch" in name)
