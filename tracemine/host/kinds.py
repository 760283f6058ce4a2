"""Kinds of what a host does, and how events are recognised as one; garbage collected and waits for the lock too."""

from __future__ import annotations

import re
from typing import Final, Literal, get_args

import numpy as np
from msgspec import Struct

from tracemine.columns import codes, examples
from tracemine.host.uses import shared_path
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import WORK, HostCalls, named
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

Kind = Literal[
    "operator",  # in an operator, and in no call of it
    "launch",  # in a call that launches a kernel, a copy, a set or a graph
    "wait",  # in a call that returns when the device is done
    "allocator",  # in a call that takes memory from the driver, or gives it back
    "module_load",  # in a call that loads a module or a library
    "compilation",  # in a phase of torch.compile
    "data_loading",  # in a loader's `__next__`
    "garbage_collection",
    "lock",  # until Python's global lock is free
    "runtime",  # in another call of the runtime or the driver
    "python",  # in no operator and no call
    "not_recorded",  # the same, where no operators are recorded: it may be anything
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# Kinds that not every recording would show.
SOMETIMES: Final[tuple[Kind, ...]] = ("allocator", "garbage_collection", "lock")

_NUMBER: Final[dict[str, int]] = {name: at for at, name in enumerate(KINDS)}
_LAUNCHES: Final = deferred(
    r"Launch|^(cuda|hip|cu)Mem(cpy|set)|^(cuda|hip|cu)Graph(Launch|Upload)|^hipExt\w*Launch|^(cuda|hip)MemPrefetch"
)
# Ranges by which programs and profilers mark what Python does next to the program.
_BESIDE: Final[tuple[tuple[Kind, re.Pattern[str]], ...]] = (
    ("garbage_collection", deferred(r"^(Python GC|Garbage Collection|gc\.collect)$", re.IGNORECASE)),
    ("lock", deferred(r"^Waiting for GIL$", re.IGNORECASE)),
)
_OF_LOCK: Final = deferred(r"^(Waiting for|Holding) GIL$", re.IGNORECASE)  # both come of one switch of a profiler


def is_collection(name: str) -> bool:
    """Return whether a range of this name marks that Python collects garbage.

    >>> is_collection("Python GC"), is_collection("aten::mm")
    (True, False)
    """
    return bool(dict(_BESIDE)["garbage_collection"].match(name))


class CallEvents(Struct, frozen=True):
    """Operators and annotations, then calls, then collections of garbage and waits for Python's lock. −1: not known."""

    begin: IntArray
    end: IntArray
    thread: IntArray  # −1: not recorded
    kind: IntArray  # position in KINDS; −1: an annotation that names no work
    op_row: IntArray  # the operator or annotation itself; of a call the operator around it
    api_row: IntArray
    stack_row: IntArray


def events_of(timeline: Timeline, calls: HostCalls, of_ops: IntArray) -> CallEvents:
    """Return all that threads of the host did. of_ops: the thread of each row of `ops`, as that of `calls`."""
    ops, api = timeline.ops, timeline.api
    begin = rows_of(ops["start_ns"]).astype(np.int64)
    count, called = ops.num_rows, api.num_rows
    found = CallEvents(
        begin=np.concatenate((begin, calls.begin)),
        end=np.concatenate((begin + rows_of(ops["dur_ns"]), calls.end)),
        thread=np.concatenate((of_ops, calls.thread)).astype(np.int64),
        kind=np.concatenate((_of_ops(timeline), _of_calls(timeline, calls))),
        op_row=np.concatenate((np.arange(count), rows_of(api["op_row"]))),
        api_row=np.concatenate((np.full(count, -1), np.arange(called))),
        stack_row=np.concatenate((rows_of(ops["stack_row"]), rows_of(api["stack_row"]))),
    )
    parts = [found]
    if timeline.meta.garbage_ns:
        told = collections(timeline, found.begin, found.end, found.thread, found.kind >= 0, found.stack_row)
        parts.append(_beside("garbage_collection", *told))
    if timeline.lock_waits.num_rows:
        parts.append(_beside("lock", *lock_waits(timeline, found.thread)))
    return CallEvents(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in CallEvents.__struct_fields__)
    )


def _beside(kind: Kind, begin: IntArray, end: IntArray, thread: IntArray, paths: IntArray) -> CallEvents:
    none = np.full(len(begin), -1)
    return CallEvents(begin, end, thread, np.full(len(begin), code(kind)), none, none, paths)


def code(kind: Kind) -> int:
    """Return the position of a kind in KINDS."""
    return _NUMBER[kind]


def unseen(timeline: Timeline) -> frozenset[Kind]:
    """Return the kinds of which the recording would show none, however often they were.

    >>> from tracemine.timeline import Meta
    >>> sorted(unseen(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    ['allocator', 'garbage_collection', 'lock']
    """
    names, marks = categories(timeline.ops["name"]), dict(_BESIDE)
    collects = timeline.meta.garbage_ns is not None
    seen = {
        "allocator": timeline.api.num_rows > 0,
        "garbage_collection": collects or bool(named(names, marks["garbage_collection"]).any()),
        "lock": timeline.lock_waits.num_rows > 0 or bool(named(names, _OF_LOCK).any()),
    }
    return frozenset(kind for kind in SOMETIMES if not seen[kind])


def _of_ops(timeline: Timeline) -> IntArray:
    """Return the kind of each operator; what lies in a phase of compiling, or of loading, is of that."""
    ops = timeline.ops
    names, parent = categories(ops["name"]), rows_of(ops["parent_row"])
    kind = np.where(categories(ops["kind"]).among("op"), code("operator"), -1)
    works = [(work.cause, work.operators) for work in WORK if work.operators is not None]
    for cause, pattern in (*works, *_BESIDE):
        marked = named(names, pattern)
        if marked.any():
            kind[nearest(parent, marked) >= 0] = _NUMBER[cause]
    return kind


def _of_calls(timeline: Timeline, calls: HostCalls) -> IntArray:
    name = categories(timeline.api["name"])
    works = [(_NUMBER[work.cause], named(name, work.calls)) for work in WORK if work.calls is not None]
    launches = calls.launches | named(name, _LAUNCHES)
    kinds = np.full(len(calls.begin), code("runtime"))
    for kind, holds in ((code("launch"), launches), (code("wait"), calls.blocks), *reversed(works)):
        kinds[holds] = kind
    return kinds


def collections(
    timeline: Timeline, begin: IntArray, end: IntArray, thread: IntArray, works: BoolArray, stack_row: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return begin, end and thread of each collection on threads that did anything else, and the call path around it.

    begin, end, thread, stack_row: of all that the threads did, operators first. works: what is more than a range.
    """
    found = np.array(timeline.meta.garbage_ns or (), np.int64).reshape(-1, 3).T
    found[2] = threads_of(timeline, thread, found[2])
    found = found[:, found[2] >= 0]
    paths = np.full(found.shape[1], -1, np.int64)
    parent = rows_of(timeline.stacks["parent_row"])
    if len(parent):
        for at, (since, until, of) in enumerate(found.T.tolist()):
            own = np.flatnonzero((thread == of) & works)
            holds = own[(begin[own] <= since) & (end[own] >= until)]
            before, after = own[end[own] <= since], own[begin[own] >= until]
            near = (
                before[np.argmax(end[before])] if len(before) else -1,
                after[np.argmin(begin[after])] if len(after) else -1,
            )
            near = (holds[np.argmax(begin[holds])],) * 2 if len(holds) else near
            one, other = (taken(stack_row, np.array([each])) for each in near)
            paths[at] = shared_path(parent, one, other)[0]
    return found[0], found[1], found[2], paths


def lock_waits(timeline: Timeline, thread: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return begin, end and thread of each wait for Python's lock, and the call path that waits. thread: as above."""
    begin, dur, pid, tid, stack_row = (
        rows_of(timeline.lock_waits[name]).astype(np.int64)
        for name in ("start_ns", "dur_ns", "pid", "tid", "stack_row")
    )
    return begin, begin + dur, threads_of(timeline, thread, tid, pid), stack_row


def threads_of(timeline: Timeline, thread: IntArray, tid: IntArray, pid: IntArray | None = None) -> IntArray:
    """Return the code of each of these threads; −1: nothing was recorded of it, or no process is told and several have
    a thread of that number. thread: the code of each operator, then of each call.
    """
    rows = examples(codes(thread + 1)) if len(thread) else np.zeros(0, np.int64)
    rows = rows[thread[rows] >= 0]
    told = {"tid": tid} if pid is None else {"pid": pid, "tid": tid}
    own = [np.concatenate([rows_of(table[name]) for table in (timeline.ops, timeline.api)])[rows] for name in told]
    same = codes(*(np.concatenate(each) for each in zip(own, told.values(), strict=True)))
    count = np.bincount(same[: len(rows)], minlength=int(same.max(initial=-1)) + 1)
    code = np.full(len(count), -1, np.int64)
    code[same[: len(rows)]] = thread[rows]
    code[count != 1] = -1
    return code[same[len(rows) :]]
