"""A trace of Proton: kernels with their call stacks, the scopes and launches of the host, and flows between the two.

Older versions write an object a stream, one a line, of kernels alone: no scope has times there, and no launch.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Struct, field

from tracemine.columns import Array
from tracemine.errors import InputError, Location
from tracemine.formats.kineto.nesting import Nesting
from tracemine.formats.proton.contexts import OWN_WORK, PROTON, UNNAMED, Contexts, is_own_work, own_work_text, stated
from tracemine.formats.small_tables import Row, small_report, small_timeline
from tracemine.timeline import Timeline

_LANE = re.compile(r"(?:CPU Thread|GPU Stream|Graph: Stream) (?P<number>\d{1,18})")
_COUNTER = re.compile(r"[ #:=_-]*\d{1,18}$")
_FURTHEST_NS = 1 << 61
_LAUNCH, _GRAPH_LAUNCH = "LaunchKernel", "GraphLaunch"
_MOST_NAMES = 16  # of outermost scopes that are looked at
_OUTERMOST = 2  # parts of a call stack: the root, and the scope
_NO_LAUNCHES = (
    "This version of Proton records no launches and no times of scopes: why the device waited is not known, and steps "
    "are inferred."
)


class _Args(Struct):
    name: str = ""
    call_stack: tuple[str, ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)


class _ProtonEvent(Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = math.nan
    dur: float = math.nan
    tid: Annotated[int, msgspec.Meta(ge=-1, le=1 << 60)] = -1
    id: int = -1
    args: _Args = field(default_factory=_Args)
    launch: int = -1  # of a kernel the number of its launch's flow; −1: not known

    @property
    def start_ns(self) -> int:
        return _ns(self.ts)

    @property
    def dur_ns(self) -> int:
        return _ns(self.dur)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns

    @property
    def own(self) -> bool:
        return is_own_work(self.args.call_stack, self.name)


def _ns(us: float) -> int:
    return round(us * 1000) if 0 <= us < _FURTHEST_NS / 1000 else -1


class _Object(Struct):
    traceEvents: list[_ProtonEvent]


class _Host(Struct):
    """What ran on the host: scopes in order, and launches by their flows' numbers."""

    scopes: list[_ProtonEvent]
    launches: dict[int, _ProtonEvent]
    replays: set[int]  # launches of several kernels: a CUDA graph each

    def asked_ns(self, kernels: Sequence[_ProtonEvent]) -> Array:
        """Return when kernels were asked for: their start where no launch was recorded, −1 where their own was not."""
        launched = [self.launches.get(kernel.launch) if self.launches else kernel for kernel in kernels]
        return np.array([-1 if event is None else event.start_ns for event in launched], np.int64)


def read_trace(content: bytes | bytearray, path: str) -> Timeline:
    """Return the timeline of a trace. Raises msgspec.DecodeError where it is damaged, InputError without a kernel."""
    events = _events(content)
    lanes = {
        event.tid: int(found["number"])
        for event in events
        if event.name == "thread_name" and (found := _LANE.fullmatch(event.args.name))
    }
    timed = [event for event in events if event.ph != "X" or min(event.start_ns, event.dur_ns) >= 0]
    of_gpu = [event for event in timed if event.cat == "kernel" and event.ph == "X"]
    kernels = [event for event in of_gpu if not event.own]
    kernels.sort(key=lambda kernel: (kernel.start_ns, lanes.get(kernel.tid, kernel.tid)))
    if not kernels:
        what = "is a trace of Triton's Proton, without a kernel"
        raise InputError(what, where=Location(path), hint="record what runs on the GPU")
    host = _host(timed, kernels)
    report = small_report(
        Counter(event.cat or "metadata" for event in events),
        _says(of_gpu, host),
        skipped={OWN_WORK: len(of_gpu) - len(kernels)},
        dropped={"event without a time": len(events) - len(timed)},
    )
    return small_timeline(_tables(kernels, host, lanes), source=Path(path).name, ingest=report, **PROTON)


def _says(of_gpu: Sequence[_ProtonEvent], host: _Host) -> tuple[str, str]:
    own_ns, gpu_ns = (sum(event.dur_ns for event in of_gpu if event.own is own) for own in (True, False))
    return own_work_text(own_ns, gpu_ns), "" if host.launches else _NO_LAUNCHES


def _events(content: bytes | bytearray) -> list[_ProtonEvent]:
    try:
        objects = [msgspec.json.decode(content, type=_Object)]
    except msgspec.DecodeError:
        objects = msgspec.json.Decoder(_Object).decode_lines(content)
    return [event for each in objects for event in each.traceEvents]


def _host(events: Sequence[_ProtonEvent], kernels: Sequence[_ProtonEvent]) -> _Host:
    """Return scopes and launches, and give each kernel its launch's number.

    A flow leads from the begin of a launch to the begin of its kernel, and of a graph's replay to the first one.
    """
    ran = [e for e in events if e.cat in ("scope", "metric") and e.ph == "X" and e.args.call_stack]
    at: dict[tuple[int, int], _ProtonEvent] = {}
    for event in sorted(ran, key=lambda e: len(e.args.call_stack)):  # of several the innermost
        at[event.tid, event.start_ns] = event
    flows = [e for e in events if e.cat == "flow" and e.id >= 0]
    launches = {e.id: at[e.tid, e.start_ns] for e in flows if e.ph == "s" and (e.tid, e.start_ns) in at}
    ends = {(e.tid, e.start_ns): e.id for e in flows if e.ph == "f" and e.id in launches}
    replays = _launched(kernels, launches, ends)
    calling = {id(event) for event in launches.values()}
    scopes = [event for event in ran if id(event) not in calling and not event.own]
    order = sorted(scopes, key=lambda e: (e.start_ns, -e.dur_ns, len(e.args.call_stack)))
    return _Host(order, launches, replays)


def _launched(
    kernels: Sequence[_ProtonEvent], launches: dict[int, _ProtonEvent], ends: dict[tuple[int, int], int]
) -> set[int]:
    """Give each kernel its launch's number, and return those of several kernels."""
    last: dict[int, int] = {}
    counts = Counter[int]()
    for kernel in kernels:
        lane, stack = kernel.tid, kernel.args.call_stack
        number = ends.get((lane, kernel.start_ns), -1)
        if number < 0 and lane in last:  # the next of a graph, where it stands in the same scopes
            around = launches[last[lane]].args.call_stack[:-1]
            number = last[lane] if stack[: len(around)] == around else -1
        kernel.launch = number
        if number >= 0:
            last[lane] = number
            counts[number] += 1
    return {number for number, count in counts.items() if count > 1}


def _tables(kernels: Sequence[_ProtonEvent], host: _Host, lanes: dict[int, int]) -> dict[str, list[Row]]:
    contexts = Contexts()
    numbers = sorted(host.launches, key=lambda n: (host.launches[n].start_ns, -host.launches[n].dur_ns, n))
    launch_row = {number: row for row, number in enumerate(numbers)}
    steps = _steps(host, kernels)
    step = _during(steps, host.asked_ns(kernels)).tolist()
    return {
        "activities": [
            {
                "kind": "kernel",
                "name": kernel.name or UNNAMED,
                "start_ns": kernel.start_ns,
                "dur_ns": kernel.dur_ns,
                "stream": None if (lane := lanes.get(kernel.tid, kernel.tid)) < 0 else lane,
                "launch_row": launch_row.get(kernel.launch),
                "unowned_reason": _why_unowned(kernel, host),
                "step_row": None if at < 0 else at,
                **contexts.columns(kernel.args.call_stack[:-1]),
                **stated(kernel.args.metrics),
            }
            for kernel, at in zip(kernels, step, strict=True)
        ],
        "ops": _ops(host.scopes, lanes, contexts),
        "api": [
            _host_row(host.launches[number], lanes, contexts)
            | {"kind": "runtime", "name": _GRAPH_LAUNCH if number in host.replays else _LAUNCH}
            for number in numbers
        ],
        "steps": [_host_row(event, lanes) | {"name": event.name or UNNAMED} for event in steps],
        "stacks": contexts.stacks(),
    }


def _why_unowned(kernel: _ProtonEvent, host: _Host) -> str:
    if kernel.launch < 0:
        return "no_host_events"
    return "graph_replay" if kernel.launch in host.replays else "outside_any_op"


def _host_row(event: _ProtonEvent, lanes: dict[int, int], contexts: Contexts | None = None) -> Row:
    times = {"start_ns": event.start_ns, "dur_ns": event.dur_ns, "pid": 0, "tid": lanes.get(event.tid, event.tid)}
    return times | ({} if contexts is None else {"module": contexts.module(event.args.call_stack[:-1])})


def _ops(scopes: Sequence[_ProtonEvent], lanes: dict[int, int], contexts: Contexts) -> list[Row]:
    """Return scopes as annotations, each with the innermost one around it."""
    rows = [
        _host_row(event, lanes, contexts) | {"kind": "annotation", "name": event.args.call_stack[-1] or UNNAMED}
        for event in scopes
    ]
    start, dur, thread = (np.array([row[name] for row in rows], np.int64) for name in ("start_ns", "dur_ns", "tid"))
    parents = Nesting(start, start + dur, np.unique(thread, return_inverse=True)[1].reshape(-1)).parents()
    return [row | ({"parent_row": at} if at >= 0 else {}) for row, at in zip(rows, parents.tolist(), strict=True)]


def _steps(host: _Host, kernels: Sequence[_ProtonEvent]) -> list[_ProtonEvent]:
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


def _spans(kernels: Sequence[_ProtonEvent]) -> list[_ProtonEvent]:
    """Return the outermost scopes as spans of their kernels, from the first one's start to the last one's end."""
    ends: dict[str, list[float]] = {}
    for kernel in kernels:
        if len(kernel.args.call_stack) > _OUTERMOST:
            first = ends.setdefault(kernel.args.call_stack[1], [kernel.ts, 0.0])
            first[1] = max(first[1], kernel.ts + kernel.dur)
    return [
        _ProtonEvent(name=name, ts=begin, dur=end - begin, tid=0, args=_Args(call_stack=("ROOT", name)))
        for name, (begin, end) in ends.items()
    ]


def _during(scopes: Sequence[_ProtonEvent], moments_ns: Array) -> Array:
    """Return which of some scopes, one after another, holds each moment; −1: none."""
    start, end = (np.array([getattr(each, name) for each in scopes], np.int64) for name in ("start_ns", "end_ns"))
    at = np.searchsorted(start, moments_ns, "right") - 1
    return np.where((at >= 0) & (moments_ns <= np.append(end, -1)[at]), at, -1)
