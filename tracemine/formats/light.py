"""The light window of a capture: the same program's later steps, recorded by GPU activities and runtime calls alone.

It is read where it lies next to the whole window, and matched to that call by call: a step of each has the same calls
on each of its threads, in the same order, which launch the same. So of each call, activity and step of the whole window
it tells when it came with the host slowed down little. Where the steps differ it tells nothing, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import Array, numbers, string_ids
from tracemine.errors import InputError, TracemineError
from tracemine.files import read_head
from tracemine.formats.graph_capture import SIZE_LIMIT
from tracemine.patterns import deferred
from tracemine.timeline import Timeline, warned
from tracemine.timeline.arrow import table_of
from tracemine.units import count_text

# Calls that every run of a step makes: they launch, or wait. Queries and allocations come as it happens.
_COMPARED = deferred(r"Launch|Memcpy|Memset|Synchronize|StreamWaitEvent", re.IGNORECASE)
_TIMES = ("start_ns", "dur_ns")
_SHOWN = 60  # characters of a kernel's name
_SYNC = "sync"  # of a call's kinds: what the device reported, with no thread
_MOST_STEPS = 1_000
_Time = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]
_Call = tuple[str, tuple[str, ...]]  # its name, and those of what it launches


class _Light(msgspec.Struct):
    """What `capture.json` says of it."""

    marks_ns: Annotated[list[tuple[_Time, _Time]], msgspec.Meta(min_length=1, max_length=_MOST_STEPS)]
    step_ns: _Time | None = None


class _About(msgspec.Struct):
    light: _Light | None = None


class _Differs(Exception):
    """Why a light window tells nothing of the whole one."""


_Step = dict[int, tuple[Array, list[_Call]]]  # by thread the calls that are compared: rows in order, what each is


class _Window(msgspec.Struct, frozen=True):
    """A window's steps, and how to find what each call launched."""

    timeline: Timeline
    begin: Array
    end: Array
    steps: list[_Step]
    launched: dict[int, list[int]]  # by call: activities in the order in which they began


def with_light(timeline: Timeline, about: Path, path: Path, read: Callable[[Path], Timeline]) -> Timeline:
    """Return the timeline with what the light window at `path` tells, as far as `about`, a `capture.json`, names it.

    `read` reads a trace. A light window that cannot be read, or whose steps are others, leaves a warning.
    """
    try:
        light = msgspec.json.decode(read_head(about, SIZE_LIMIT), type=_About).light
    except (InputError, msgspec.DecodeError, UnicodeDecodeError):
        return timeline
    if light is None:
        return timeline
    try:
        table = _matched(timeline, read(path), light)
    except (TracemineError, _Differs) as error:
        why = error.message if isinstance(error, TracemineError) else str(error)
        says = f"The light window is not used, and idle time is estimated: {why}."
        return replace(timeline, meta=warned(timeline.meta, [says]))
    return replace(timeline, light=table, meta=msgspec.structs.replace(timeline.meta, light_step_ns=light.step_ns))


def _matched(timeline: Timeline, light: Timeline, about: _Light) -> pa.Table:
    """Return the table `light`. Raises _Differs where steps are not the same."""
    marks = np.array(about.marks_ns, np.int64)
    begin = numbers(timeline.steps["start_ns"])
    end = begin + numbers(timeline.steps["dur_ns"])
    if not len(begin):
        raise _Differs("the trace has no steps")
    if (begin[1:] < end[:-1]).any() or (marks[:, 0] > marks[:, 1]).any() or (marks[1:, 0] < marks[:-1, 1]).any():
        raise _Differs("steps overlap")
    if len(marks) < len(begin):
        raise _Differs(f"it has {count_text(len(marks), 'step')}, the trace {len(begin)}")
    whole, other = _window(timeline, begin, end), _window(light, marks[:, 0], marks[:, 1])
    shift = _shift(whole.steps, other.steps)
    return _table(whole, other, shift)


def _window(timeline: Timeline, begin: Array, end: Array) -> _Window:
    api, activities = timeline.api, timeline.activities
    launch = numbers(activities["launch_row"], -1)
    order = np.lexsort((numbers(activities["start_ns"]), launch))
    order = order[launch[order] >= 0]
    launched: dict[int, list[int]] = {}
    for activity, call in zip(order.tolist(), launch[order].tolist(), strict=True):
        launched.setdefault(call, []).append(activity)
    name, names = string_ids(api["name"])
    kernel, kernels = string_ids(activities["name"])
    kind, kinds = string_ids(api["kind"])
    compared = np.array([*(bool(_COMPARED.search(text)) for text in names), False], np.bool_)[name]
    compared[list(launched)] = True
    compared &= np.array([*(text != _SYNC for text in kinds), True], np.bool_)[kind]
    rows = np.flatnonzero(compared)
    start, thread = numbers(api["start_ns"])[rows], numbers(api["tid"])[rows]
    step = np.searchsorted(begin, start, side="right") - 1
    inside = (step >= 0) & (start < end[step])
    rows, step, thread = rows[inside], step[inside], thread[inside]
    steps: list[_Step] = [{} for _ in begin]
    order = np.lexsort((rows, thread, step))
    ends = np.flatnonzero(np.diff(step[order]) | np.diff(thread[order])) + 1
    for group in np.split(order, ends) if len(order) else ():
        calls = [
            (names[name[row]], tuple(sorted(kernels[kernel[each]] for each in launched.get(row, ()))))
            for row in rows[group].tolist()
        ]
        steps[int(step[group[0]])][int(thread[group[0]])] = rows[group], calls
    return _Window(timeline, begin, end, steps, launched)


def _shift(whole: Sequence[_Step], light: Sequence[_Step]) -> int:
    """Return how many steps of the light window come before those that are the whole window's: as many as can.

    The first begins on an idle device, as no step does that is timed.
    """
    most = len(light) - len(whole)
    for shift in range(most, -1, -1):
        if all(_threads(*pair) is not None for pair in zip(whole, light[shift:], strict=False)):
            return shift
    raise _Differs(next(_differences(whole, light[most:])))


def _threads(whole: _Step, light: _Step) -> dict[int, int] | None:
    """Return, for each thread of a step, that of the other that makes the same calls; None where one has none."""
    pairs: dict[int, int] = {}
    if len(whole) != len(light):
        return None
    for tid, (_, calls) in whole.items():
        left = [each for each in (tid, *light) if each in light]  # the same, where it can be
        fits = (each for each in left if each not in pairs.values() and light[each][1] == calls)
        if (its_tid := next(fits, None)) is None:
            return None
        pairs[tid] = its_tid
    return pairs


def _differences(whole: Sequence[_Step], light: Sequence[_Step]) -> Iterator[str]:
    """Yield how steps differ."""
    for number, (one, other) in enumerate(zip(whole, light, strict=False)):
        if _threads(one, other) is not None:
            continue
        if len(one) != len(other):
            threads = count_text(len(one), "thread")
            yield f"calls of step {number} come from {threads} in the trace and from {len(other)} in it"
            continue
        mine, its = ([call for _, calls in step.values() for call in calls] for step in (one, other))
        if len(mine) != len(its):
            calls = count_text(len(mine), "call")
            yield f"step {number} makes {calls} to launch or to wait in the trace and {len(its)} in it"
            continue
        at = next((at for at, pair in enumerate(zip(mine, its, strict=True)) if pair[0] != pair[1]), 0)
        yield f"call {at} of step {number} is {_told(mine[at])} in the trace and {_told(its[at])} in it"


def _told(call: _Call) -> str:
    name, kernels = call
    return f"{name} of {kernels[0][:_SHOWN]}" if kernels else name


def _table(whole: _Window, light: _Window, shift: int) -> pa.Table:
    """Return the rows of the table `light`, in order of start. Times of the trace's clock: both first steps begin at
    once.
    """
    later = int(whole.begin[0]) - int(light.begin[shift])
    api, activities = light.timeline.api, light.timeline.activities
    call_times, times = (np.stack([numbers(each[name]) for name in _TIMES]) for each in (api, activities))
    name, names = string_ids(activities["name"])
    mine, my_names = string_ids(whole.timeline.activities["name"])
    told: dict[str, list[tuple[int, int, int]]] = {"activity_row": [], "api_row": [], "step_row": []}
    for number, step in enumerate(whole.steps):
        its_step = light.steps[number + shift]
        begin, end = int(light.begin[number + shift]), int(light.end[number + shift])
        told["step_row"].append((number, begin + later, end - begin))
        for tid, its in (_threads(step, its_step) or {}).items():
            for row, from_row in zip(step[tid][0].tolist(), its_step[its][0].tolist(), strict=True):
                start, dur = call_times[:, from_row].tolist()
                told["api_row"].append((row, start + later, dur))
                own, theirs = whole.launched.get(row, []), light.launched.get(from_row, [])
                if len(own) > 1:  # a graph's: those of one name in the order in which they began
                    own = sorted(own, key=lambda each: my_names[mine[each]])
                    theirs = sorted(theirs, key=lambda each: names[name[each]])
                for activity, its_activity in zip(own, theirs, strict=True):
                    start, dur = times[:, its_activity].tolist()
                    told["activity_row"].append((activity, start + later, dur))
    return _rows(told)


def _rows(told: dict[str, list[tuple[int, int, int]]]) -> pa.Table:
    rows = [(column, *member) for column, members in told.items() for member in members]
    rows.sort(key=lambda each: each[2])
    times = {name: np.array([row[at] for row in rows], np.int64) for at, name in enumerate(_TIMES, 2)}
    of = {name: np.array([row[1] if row[0] == name else -1 for row in rows], np.int64) for name in told}
    return table_of("light", times | of, len(rows))
