"""A trace of Proton: kernels with their call stacks, the scopes and launches of the host, and flows between the two.

Older versions write an object a stream, one a line, of kernels alone: no scope has times there, and no launch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Struct, field

from tracemine.columns import Array
from tracemine.errors import InputError, Location
from tracemine.formats.kineto.nesting import Nesting
from tracemine.formats.proton.tree import UNNAMED, Contexts, ScopedKernel, proton_timeline
from tracemine.formats.small_tables import Row, TimedEvent
from tracemine.timeline import Timeline

_LANE = re.compile(r"(?:CPU Thread|GPU Stream|Graph: Stream) (?P<number>\d{1,18})")
_COUNTER = re.compile(r"[ #:=_-]*\d{1,18}$")
_MOST_NAMES = 16  # of outermost scopes that are looked at
_OUTERMOST = 2  # parts of a call stack: the root, and the scope
_NO_LAUNCHES = (
    "This version of Proton records no launches and no times of scopes: why the device waited is not known, and steps "
    "are inferred."
)


class _Args(Struct):
    name: str = ""
    call_stack: tuple[str, ...] = ()
    metrics: dict[str, Any] = {}


class _ProtonEvent(TimedEvent):
    ph: str = ""
    cat: str = ""
    name: str = ""
    tid: Annotated[int, msgspec.Meta(ge=-1, le=1 << 60)] = -1
    id: int = -1
    args: _Args = field(default_factory=_Args)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns

    @property
    def kernel(self) -> ScopedKernel:
        stack = (*self.args.call_stack[:-1], self.name or UNNAMED)
        return ScopedKernel(stack, self.dur_ns, self.args.metrics, self.start_ns, self.tid)


class _Object(Struct):
    traceEvents: list[_ProtonEvent]


class _Host(Struct):
    """What ran on the host, in order: scopes, and launches."""

    scopes: list[_ProtonEvent]
    launches: list[_ProtonEvent]
    launched: list[int]  # by which launch each kernel was; −1: not known

    def asked_ns(self, kernels: Sequence[ScopedKernel]) -> Array:
        """Return when kernels were asked for: their start where no launch was recorded, −1 where their own was not."""
        if not self.launches:
            return np.array([kernel.start_ns for kernel in kernels], np.int64)
        return np.array([self.launches[row].start_ns if row >= 0 else -1 for row in self.launched], np.int64)


def read_trace(content: bytes | bytearray, path: str) -> Timeline:
    """Return the timeline of a trace. Raises msgspec.DecodeError where it is damaged, InputError without a kernel."""
    events = _events(content)
    lanes = {
        event.tid: int(found["number"])
        for event in events
        if event.name == "thread_name" and (found := _LANE.fullmatch(event.args.name))
    }
    timed = [event for event in events if event.ph != "X" or min(event.start_ns, event.dur_ns) >= 0]
    of_gpu = [event.kernel for event in timed if event.cat == "kernel" and event.ph == "X"]
    kernels = [kernel for kernel in of_gpu if not kernel.own]
    kernels.sort(key=lambda kernel: (kernel.start_ns, lanes.get(kernel.thread, kernel.thread)))
    if not kernels:
        what = "is a trace of Triton's Proton, without a kernel"
        raise InputError(what, where=Location(path), hint="record what runs on the GPU")
    host = _host(timed, kernels)
    return proton_timeline(
        path,
        of_gpu,
        _tables(kernels, host, lanes),
        producer="Triton Proton",
        events=Counter(event.cat or "metadata" for event in events),
        says=() if host.launches else (_NO_LAUNCHES,),
        dropped={"event without a time": len(events) - len(timed)},
    )


def _events(content: bytes | bytearray) -> list[_ProtonEvent]:
    try:
        objects = [msgspec.json.decode(content, type=_Object)]
    except msgspec.DecodeError:
        objects = msgspec.json.Decoder(_Object).decode_lines(content)
    return [event for each in objects for event in each.traceEvents]


def _host(events: Sequence[_ProtonEvent], kernels: Sequence[ScopedKernel]) -> _Host:
    """Return scopes and launches."""
    ran = [e for e in events if e.cat in ("scope", "metric") and e.ph == "X" and e.args.call_stack]
    launches, ends = _flows(events, ran)
    calling = set(map(id, launches))
    scopes = [event for event in ran if id(event) not in calling and not event.kernel.own]
    scopes.sort(key=lambda e: (e.start_ns, -e.dur_ns, len(e.args.call_stack)))
    return _Host(scopes, launches, _launched(kernels, launches, ends))


def _flows(
    events: Sequence[_ProtonEvent], ran: Sequence[_ProtonEvent]
) -> tuple[list[_ProtonEvent], dict[tuple[int, int], int]]:
    """Return the launches in order, and by thread and time where the flow of which of them ends.

    A flow leads from the begin of a launch to the begin of its kernel, and of a graph's replay to the first one.
    """
    at: dict[tuple[int, int], _ProtonEvent] = {}
    for event in sorted(ran, key=lambda e: len(e.args.call_stack)):  # of several the innermost
        at[event.tid, event.start_ns] = event
    flows = [e for e in events if e.cat == "flow" and e.id >= 0]
    calls = {e.id: at[e.tid, e.start_ns] for e in flows if e.ph == "s" and (e.tid, e.start_ns) in at}
    order = sorted(calls, key=lambda number: (calls[number].start_ns, -calls[number].dur_ns, number))
    row = {number: at for at, number in enumerate(order)}
    ends = {(e.tid, e.start_ns): row[e.id] for e in flows if e.ph == "f" and e.id in row}
    return [calls[number] for number in order], ends


def _launched(
    kernels: Sequence[ScopedKernel], launches: Sequence[_ProtonEvent], ends: dict[tuple[int, int], int]
) -> list[int]:
    """Return the launch of each kernel: that whose flow ends at it, or the last of its stream, in the same scopes."""
    last: dict[int, int] = {}
    found = list[int]()
    for kernel in kernels:
        row = ends.get((kernel.thread, kernel.start_ns), -1)
        if row < 0 and kernel.thread in last:
            around = launches[last[kernel.thread]].args.call_stack[:-1]
            row = last[kernel.thread] if kernel.stack[: len(around)] == around else -1
        if row >= 0:
            last[kernel.thread] = row
        found.append(row)
    return found


def _tables(kernels: Sequence[ScopedKernel], host: _Host, lanes: dict[int, int]) -> dict[str, list[Row]]:
    contexts = Contexts()
    steps = _steps(host, kernels)
    step = _during(steps, host.asked_ns(kernels)).tolist()
    together = Counter(host.launched)  # kernels of a launch: several are a CUDA graph's
    called = [_host_row(event, lanes, contexts) for event in host.launches]
    why = ["graph_replay" if together[row] > 1 else "outside_any_op" for row in range(len(called))] + ["no_host_events"]
    return {
        "activities": [
            kernel.row(contexts)
            | {
                "stream": None if (lane := lanes.get(kernel.thread, kernel.thread)) < 0 else lane,
                "launch_row": None if row < 0 else row,
                "unowned_reason": why[row],
                "step_row": None if at < 0 else at,
            }
            for kernel, row, at in zip(kernels, host.launched, step, strict=True)
        ],
        "ops": _ops(host.scopes, lanes, contexts),
        "api": [
            row | {"kind": "runtime", "name": "GraphLaunch" if together[at] > 1 else "LaunchKernel"}
            for at, row in enumerate(called)
        ],
        "steps": [_host_row(event, lanes) | {"name": event.name or UNNAMED} for event in steps],
        "stacks": contexts.stacks,
    }


def _host_row(event: _ProtonEvent, lanes: dict[int, int], contexts: Contexts | None = None) -> Row:
    times = {"start_ns": event.start_ns, "dur_ns": event.dur_ns, "pid": 0, "tid": lanes.get(event.tid, event.tid)}
    return times if contexts is None else times | {"module": contexts.columns(event.args.call_stack[:-1])["module"]}


def _ops(scopes: Sequence[_ProtonEvent], lanes: dict[int, int], contexts: Contexts) -> list[Row]:
    """Return scopes as annotations, each with the innermost one around it."""
    rows = [
        _host_row(event, lanes, contexts) | {"kind": "annotation", "name": event.args.call_stack[-1] or UNNAMED}
        for event in scopes
    ]
    start, dur, thread = (np.array([row[name] for row in rows], np.int64) for name in ("start_ns", "dur_ns", "tid"))
    parents = Nesting(start, start + dur, np.unique(thread, return_inverse=True)[1].reshape(-1)).parents()
    return [row | {"parent_row": at if at >= 0 else None} for row, at in zip(rows, parents.tolist(), strict=True)]


def _steps(host: _Host, kernels: Sequence[ScopedKernel]) -> list[_ProtonEvent]:
    """Return the outermost scopes that are steps: those of a name, but for a number at its end, that occur several
    times, one after another on one thread, and of such names the one in which most GPU time was launched. Where scopes
    have no times they last as long as their kernels: those that a number tells apart.
    """
    by_name: dict[tuple[int, str], list[_ProtonEvent]] = {}
    for event in host.scopes if host.launches else _spans(kernels):
        if len(event.args.call_stack) == _OUTERMOST:
            by_name.setdefault((event.tid, _COUNTER.sub("", event.args.call_stack[-1])), []).append(event)
    repeated = [
        each
        for each in by_name.values()
        if len(each) > 1 and all(one.end_ns <= other.start_ns for one, other in pairwise(each))
    ][:_MOST_NAMES]
    asked, spent = host.asked_ns(kernels), np.array([kernel.dur_ns for kernel in kernels], np.int64)
    return max(repeated, key=lambda scopes: int(spent[_during(scopes, asked) >= 0].sum()), default=[])


def _spans(kernels: Sequence[ScopedKernel]) -> list[_ProtonEvent]:
    """Return the outermost scopes as spans of their kernels, from the first one's start to the last one's end."""
    ends: dict[str, list[int]] = {}
    for kernel in kernels:
        if len(kernel.stack) > _OUTERMOST:
            first = ends.setdefault(kernel.stack[1], [kernel.start_ns, 0])
            first[1] = max(first[1], kernel.start_ns + kernel.dur_ns)
    return [
        _ProtonEvent(begin / 1_000, (end - begin) / 1_000, name=name, tid=0, args=_Args(call_stack=("ROOT", name)))
        for name, (begin, end) in ends.items()
    ]


def _during(scopes: Sequence[_ProtonEvent], moments_ns: Array) -> Array:
    """Return which of some scopes, one after another, holds each moment; −1: none."""
    start, end = (np.array([getattr(each, name) for each in scopes], np.int64) for name in ("start_ns", "end_ns"))
    at = np.searchsorted(start, moments_ns, "right") - 1
    return np.where((at >= 0) & (moments_ns <= np.append(end, -1)[at]), at, -1)
