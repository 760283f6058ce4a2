"""What a recording says that cannot have been: lost, malformed and impossible records.

A stream runs one thing after another, nothing begins after the host has waited for it, and what was launched ran. A
record against that is ended, left out or counted, and said before all else (`IngestReport.doubts`); where it leaves no
time that can be believed, nothing is said of the program (`IngestReport.unusable`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from msgspec.structs import replace
from msgspec.structs import replace as changed

from tracemine.columns import MISSING, Array, codes, numbers, sorted_unique, string_ids
from tracemine.patterns import deferred
from tracemine.timeline import Timeline
from tracemine.timeline.arrow import integers
from tracemine.units import count_text, time_text

_LAUNCH = deferred(r"LaunchKernel|LaunchCooperative|GraphLaunch", re.IGNORECASE)
_GRAPH = deferred(r"GraphLaunch", re.IGNORECASE)
_CAPTURE = deferred(r"BeginCapture|GraphInstantiate", re.IGNORECASE)  # what is launched meanwhile does not run
_WAIT = deferred(r"(?:Stream|Device|Ctx)Synchronize", re.IGNORECASE)
_WAIT_FOR_ALL = deferred(r"(?:Device|Ctx)Synchronize", re.IGNORECASE)

# A record is too long where it ends so long after its successor has: dependent launches overlap, and end in order.
_OVERLAP_NS = 20_000
_MOST_OVERLONG = 0.01  # of a stream's records; where more overlap it is no stream, such as two processes' in one file
_TIMES_ALL_ELSE = 10  # a record so many times as far away as all the rest takes is none
_CLOCKS_NS = 1_000_000  # by which the clocks of host and GPU may differ
_LOST_STEPS = 0.5  # from which on the other steps do not represent the whole
_LEAST_RECORDED = 0.1  # of what was launched: a window of a longer recording shows few ends of many beginnings
_FEWEST_STEPS = 3
_FEWEST_RECORDS = 5
_STEPS_NAMED = 4

_WHY_LOST = (
    "another profiler held the GPU's counters (CUPTI, roctracer), the process ended before the profiler was stopped, "
    "or it was not permitted to record the GPU"
)
_NEGATIVE = "negative duration set to 0"
_UNTIMED = "GPU record without any time"


def trusted(timeline: Timeline) -> Timeline:
    """Return the timeline without what its file says that cannot have been, and with what is to be said of it."""
    timeline, lost = _without_lost(timeline)
    timeline = _ended(timeline)
    unusable = tuple(_unusable(timeline))
    timeline = _with_lost(timeline, lost)
    report = timeline.meta.ingest
    doubts = [*unusable, *report.doubts]
    if count := report.repaired.get(_NEGATIVE, 0):
        doubts.append(
            f"{count_text(count, 'record')} of negative duration: how long each took is lost, and counts as 0."
        )
    return _reported(timeline, doubts=tuple(doubts), unusable=bool(unusable)) if doubts else timeline


def _without_lost(timeline: Timeline) -> tuple[Timeline, pa.Table]:
    """Return the timeline without records that stand at the clock's own beginning and took nothing, and those."""
    start, dur = (numbers(timeline.activities[name]) for name in ("start_ns", "dur_ns"))
    lost = (dur == 0) & (start == timeline.meta.base_ns) if timeline.meta.base_ns is not None else dur < 0
    if not lost.any():
        return timeline, timeline.activities.slice(0, 0)
    without = timeline.activities.filter(lost)
    # They began before they were launched, as what a clock that differs shows.
    warnings = tuple(one for one in timeline.meta.ingest.warnings if not one.startswith("The trace's clocks disagree"))
    kept = replace(timeline, activities=timeline.activities.filter(~lost))
    if late := _began_before_launch(kept):
        warnings += (f"The trace's clocks disagree: {count_text(late, 'activity')} began before being launched.",)
    return _reported(kept, warnings=warnings), without


def _with_lost(timeline: Timeline, lost: pa.Table) -> Timeline:
    """Return the timeline with records without any time where they change none: of no length, behind what ran before
    them on their stream. So what was launched is all there, in order. Without any time at all they are left out.
    """
    if not len(lost):
        return timeline
    report, says = (
        timeline.meta.ingest,
        f"{count_text(len(lost), 'GPU record')} without any time: when they ran is lost",
    )
    if not timeline.activities.num_rows:
        dropped = report.dropped | {_UNTIMED: len(lost)}
        return _reported(timeline, dropped=dropped, doubts=(*report.doubts, f"{says}, and they are left out."))
    at = lost.schema.get_field_index("start_ns")
    column = lost.schema.field(at)
    placed = lost.set_column(at, column, integers(_places(timeline, lost), column.type))
    activities = pa.concat_tables((placed, timeline.activities)).combine_chunks()
    launched = _launched_ns(replace(timeline, activities=activities))
    untimed = np.arange(len(activities)) < len(lost)
    # Of what begins with them they come first, in order of launch; all else keeps its order.
    order = np.lexsort((np.where(untimed, launched, 0), ~untimed, numbers(activities["start_ns"])))
    repaired = report.repaired | {f"{_UNTIMED} set to no length": len(lost)}
    return _reported(
        replace(timeline, activities=activities.take(pa.array(order))),
        repaired=repaired,
        doubts=(*report.doubts, f"{says}, and how long each took counts as 0."),
    )


def _places(timeline: Timeline, lost: pa.Table) -> Array:
    """Return when what ran before each lost record on its stream ended, by order of launch; where none is known to
    have run before, when its device began.
    """
    kept = timeline.activities
    start, dur = (numbers(kept[name]) for name in ("start_ns", "dur_ns"))
    launched, of_lost = _launched_ns(timeline), _launched_ns(replace(timeline, activities=lost))
    stream = codes(
        *(np.concatenate((numbers(kept[name]), numbers(lost[name]))) for name in ("device", "context", "stream"))
    )
    device = codes(np.concatenate((numbers(kept["device"]), numbers(lost["device"]))))
    places = np.full(len(lost), int(start.min()))
    for code in sorted_unique(device[len(kept) :]).tolist():
        of_device = start[device[: len(kept)] == code]
        places[device[len(kept) :] == code] = int(of_device.min()) if len(of_device) else int(start.min())
    for code in sorted_unique(stream[len(kept) :]).tolist():
        rows = np.flatnonzero((stream[: len(kept)] == code) & (launched != MISSING))
        rows = rows[np.argsort(launched[rows], kind="stable")]
        ends = np.maximum.accumulate((start + dur)[rows])
        own = np.flatnonzero((stream[len(kept) :] == code) & (of_lost != MISSING))
        before = np.searchsorted(launched[rows], of_lost[own], "left") - 1
        known = before >= 0
        places[own[known]] = ends[before[known]]
    return places


def _began_before_launch(timeline: Timeline) -> int:
    launched = _launched_ns(timeline)
    return int((launched > numbers(timeline.activities["start_ns"])).sum())


def _ended(timeline: Timeline) -> Timeline:
    """Return the timeline in which a record ends where the next of its stream begins, if it lies over that."""
    start, dur = (numbers(timeline.activities[name]) for name in ("start_ns", "dur_ns"))
    too_long, ends = _overlong(timeline, start, dur)
    count = len(too_long)
    if not count:
        return timeline
    longest = int(dur[too_long].max())
    dur = dur.copy()
    dur[too_long] = ends - start[too_long]
    at = timeline.activities.schema.get_field_index("dur_ns")
    activities = timeline.activities.set_column(
        at, timeline.activities.schema.field(at), integers(dur, timeline.activities.schema.field(at).type)
    )
    report = timeline.meta.ingest
    says = (
        f"{count_text(count, 'GPU record')} of up to {time_text(longest)} over what ran after on the same stream, "
        "which cannot be: ended where the next begins."
    )
    repaired = report.repaired | {"GPU record ended where the next of its stream begins": count}
    return _reported(replace(timeline, activities=activities), repaired=repaired, doubts=(*report.doubts, says))


def _overlong(timeline: Timeline, start: Array, dur: Array) -> tuple[Array, Array]:
    """Return the rows of records that lie over their successors, and where each has to end.

    Kernels of one graph run side by side and count as no successors.
    """
    activities = timeline.activities
    graph = _launched_by(timeline, _GRAPH) | (numbers(activities["graph_id"]) != MISSING)
    rows = np.flatnonzero(~graph & (numbers(activities["stream"]) != MISSING))
    if len(rows) < _FEWEST_RECORDS:
        return rows[:0], rows[:0]
    stream = codes(*(numbers(activities[name])[rows] for name in ("device", "context", "stream")))
    order = np.argsort(stream, kind="stable")  # within a stream by start, as rows are
    rows, stream = rows[order], stream[order]
    end = start[rows] + dur[rows]
    over = (stream[1:] == stream[:-1]) & (end[:-1] > end[1:] + _OVERLAP_NS) & (start[rows[1:]] > start[rows[:-1]])
    found = np.flatnonzero(over)
    many = np.bincount(stream[found], minlength=int(stream.max()) + 1)
    most = np.maximum(_MOST_OVERLONG * np.bincount(stream), 1)
    found = found[many[stream[found]] <= most[stream[found]]]
    return rows[found], start[rows[found + 1]]


def _unusable(timeline: Timeline) -> Iterator[str]:
    """Yield a sentence for each thing that leaves no time to be believed."""
    yield from _lost(timeline)
    yield from _after_its_wait(timeline)
    yield from _beyond_all(timeline)


def _lost(timeline: Timeline) -> Iterator[str]:
    """Yield that most of what was launched, or most steps, have no record of the GPU."""
    launches = _calls(timeline, _LAUNCH)
    if not len(launches) or len(_calls(timeline, _CAPTURE)):
        return
    row = numbers(timeline.activities["launch_row"])
    ran = np.zeros(timeline.api.num_rows, np.bool_)
    ran[row[row >= 0]] = True
    recorded = int(ran[launches].sum())
    launched = f"{count_text(len(launches), 'launch')} {'was' if len(launches) == 1 else 'were'} recorded"
    if not timeline.activities.num_rows:
        yield f"{launched} and none of their kernels: the GPU's records were lost. {_sentence(_WHY_LOST)}"
        return
    if not len(row[row >= 0]):  # how they belong together is not recorded
        return
    begin, dur = (numbers(timeline.steps[name]) for name in ("start_ns", "dur_ns"))
    start = numbers(timeline.api["start_ns"])[launches]
    of_step = np.searchsorted(begin, start, "right") - 1
    within = (of_step >= 0) & (start < (begin + dur)[of_step]) if len(begin) else np.zeros(len(start), np.bool_)
    launching = np.bincount(of_step[within], minlength=len(begin)) > 0
    working = np.bincount(of_step[within & ran[launches]], minlength=len(begin)) > 0
    empty = int((launching & ~working).sum())
    if int(launching.sum()) >= _FEWEST_STEPS and empty > _LOST_STEPS * launching.sum():
        yield (
            f"{empty} of {count_text(int(launching.sum()), 'step')} have launches and no GPU activity: the GPU's "
            f"records of them were lost. {_left(timeline, working)}{_sentence(_WHY_LOST)}"
        )
    elif recorded < _LEAST_RECORDED * len(launches):
        yield (
            f"{launched}, and the kernels of {recorded:,} of them: the GPU's records of the others were lost. "
            f"{_sentence(_WHY_LOST)}"
        )


def _left(timeline: Timeline, working: Array) -> str:
    """Name the steps that have any GPU activity."""
    names = timeline.steps["name"].to_pylist()
    left = [names[row] for row in np.flatnonzero(working).tolist()]
    if not left or len(left) > _STEPS_NAMED:
        return ""
    return f"Only {', '.join(left)} {'counts' if len(left) == 1 else 'count'}. "


def _sentence(text: str) -> str:
    return f"Perhaps {text}."


def _after_its_wait(timeline: Timeline) -> Iterator[str]:
    """Yield that what was launched before the host waited began after the wait was over.

    A wait for one stream does not say which: some stream must have been done by then.
    """
    waits = _calls(timeline, _WAIT)
    launched, start = _launched_ns(timeline), numbers(timeline.activities["start_ns"])
    known = np.flatnonzero(launched != MISSING)
    if not len(waits) or not len(known):
        return
    begin, dur = (numbers(timeline.api[name])[waits] for name in ("start_ns", "dur_ns"))
    kind = np.isin(waits, _calls(timeline, _WAIT_FOR_ALL))
    stream = codes(*(numbers(timeline.activities[name])[known] for name in ("device", "stream")))
    first, last = np.full(len(waits), np.iinfo(np.int64).max), np.full(len(waits), MISSING)
    for code in range(int(stream.max()) + 1):
        rows = known[stream == code]
        rows = rows[np.argsort(launched[rows], kind="stable")]
        latest = np.append(MISSING, np.maximum.accumulate(start[rows]))  # begin of the last of those launched so far
        began = latest[np.searchsorted(launched[rows], begin, "left")]
        first, last = np.where(began == MISSING, first, np.minimum(first, began)), np.maximum(last, began)
    waited = last != MISSING
    began = np.where(kind, last, first)
    late = waited & (began > begin + dur + _CLOCKS_NS)
    if 2 * int(late.sum()) > int(waited.sum()):
        by = time_text(int((began - begin - dur)[late].max()))
        yield (
            f"Kernels begin up to {by} after the host had waited for them ({int(late.sum())} of "
            f"{count_text(int(waited.sum()), 'wait')}): the GPU's times cannot be used. "
            "Record it again, with a newer driver."
        )


def _beyond_all(timeline: Timeline) -> Iterator[str]:
    """Yield that one record lies, or reaches, many times as far from all else as that takes."""
    start, dur = (numbers(timeline.activities[name]) for name in ("start_ns", "dur_ns"))
    # Of kernels alone the first may lie far off: its launch loads what the hooks of Proton need.
    alone = timeline.meta.format == "proton" and not timeline.api.num_rows
    if len(dur) < _FEWEST_RECORDS or alone:
        return
    end = start + dur
    host = [
        _extent(*(numbers(table[name]) for name in ("start_ns", "dur_ns"))) for table in (timeline.ops, timeline.api)
    ]
    for row in (int(end.argmax()), int(start.argmin())):
        parts = (slice(0, row), slice(row + 1, None))
        extents = [*host, *(_extent(start[part], dur[part]) for part in parts)]
        first, last = min(begin for begin, _ in extents), max(end_ns for _, end_ns in extents)
        beyond_ns = max(int(end[row]) - last, first - int(start[row]))
        if beyond_ns > _TIMES_ALL_ELSE * max(last - first, 1):
            yield (
                f"One GPU record reaches {time_text(beyond_ns)} beyond all else, and that takes "
                f"{time_text(last - first)}: its time cannot be, and no step's time is known. Record it again."
            )
            return


def _extent(start: Array, dur: Array) -> tuple[int, int]:
    """Return when the first of some records begins and the last ends; where there is none, the latest and earliest."""
    limits = np.iinfo(np.int64)
    return int(start.min(initial=limits.max)), int((start + dur).max(initial=limits.min))


def _launched_ns(timeline: Timeline) -> Array:
    """Return when each activity was launched; MISSING where that is not known."""
    row = numbers(timeline.activities["launch_row"])
    start = np.append(numbers(timeline.api["start_ns"]), MISSING)
    return start[np.where(row >= 0, row, -1)]


def _launched_by(timeline: Timeline, pattern: re.Pattern[str]) -> Array:
    """Return which activities a call of such a name launched."""
    row = numbers(timeline.activities["launch_row"])
    chosen = np.zeros(timeline.api.num_rows + 1, np.bool_)
    chosen[_calls(timeline, pattern)] = True
    return chosen[np.where(row >= 0, row, -1)]


def _calls(timeline: Timeline, pattern: re.Pattern[str]) -> Array:
    """Return the rows of calls with such a name."""
    ids, names = string_ids(timeline.api["name"])
    chosen = np.array([*(pattern.search(name) is not None for name in names), False], np.bool_)
    return np.flatnonzero(chosen[ids])


def _reported(timeline: Timeline, **facts: object) -> Timeline:
    return replace(timeline, meta=changed(timeline.meta, ingest=changed(timeline.meta.ingest, **facts)))
