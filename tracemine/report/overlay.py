"""Findings as slices of a Chrome trace, to be opened with the trace they were found in, in Perfetto.

A process "tracemine" has a track for each rule, and each occurrence of a finding is a slice on it: from the start of
its first activity to the end of its last; of idle time, each gap. Slices of one track nest or stand apart, for viewers
take no others; what would overlap partly is on a further track. Times are those of the trace's own file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tracemine.columns import sorted_unique
from tracemine.documents.words import of_finding
from tracemine.findings.record import Finding, Scan
from tracemine.report.escape import json_text, line
from tracemine.report.picture import Activities
from tracemine.rows.table import IntArray
from tracemine.units import range_text, time_text

PROCESS = 7_496_142  # no process id of Linux, and no GPU's number
_LONGEST = 2_000  # characters of a fix


@dataclass(frozen=True, slots=True, order=True)
class TraceSlice:
    """A stretch of time that a finding is about. Nanoseconds on the file's clock."""

    begin_ns: int
    end_ns: int
    occurrence: int  # counted from 1


def overlay(scan: Scan, activities: Activities) -> Iterator[bytes]:
    """Yield a whole trace of findings alone, piece by piece."""
    yield b'{"displayTimeUnit": "ns", "baseTimeNanoseconds": %d, "traceEvents": [\n' % activities.base_ns
    for number, event in enumerate(events(scan, activities)):
        yield (b",\n" if number else b"") + event
    yield b"\n]}\n"


def events(scan: Scan, activities: Activities) -> Iterator[bytes]:
    """Yield the events of a trace, each a JSON object: names of the process and its tracks, and all slices."""
    yield _named("process_name", 0, name="tracemine")
    yield _named("process_sort_index", 0, sort_index=-1)
    thread, idle_since = 0, idle_since_ns(activities)
    for rule in dict.fromkeys(finding.rule for finding in scan.reported):
        of_rule = [finding for finding in scan.reported if finding.rule == rule]
        every = [(one, finding) for finding in of_rule for one in slices_of(finding, activities, idle_since)]
        for number, track in enumerate(tracks([one for one, _ in every])):
            thread += 1
            yield _named("thread_name", thread, name=line(rule) if not number else f"{line(rule)} ({number + 1})")
            yield _named("thread_sort_index", thread, sort_index=thread)
            for at in track:
                yield _event(*every[at], thread)


def slices_of(finding: Finding, activities: Activities, idle_since: IntArray) -> list[TraceSlice]:
    """Return the slices of a finding, in the order of its occurrences. idle_since: as `idle_since_ns` returns it."""
    count = len(activities.start_ns)
    clock_ns = activities.begin_ns - activities.base_ns
    start, end = activities.start_ns, activities.end_ns()
    found = []
    for number, occurrence in enumerate(finding.activities, 1):
        rows = np.array([row for row in occurrence if 0 <= row < count], np.int64)
        if not len(rows):
            continue
        if finding.on_gpu:
            spans = [(int(start[rows].min()), int(end[rows].max()))]
        else:
            spans = [(int(idle_since[row]), int(start[row])) for row in rows]
        found += [TraceSlice(clock_ns + begin, clock_ns + last, number) for begin, last in spans]
    return found


def tracks(slices: Sequence[TraceSlice]) -> list[list[int]]:
    """Return the places of slices by track: each is on the first where it overlaps none partly.

    >>> tracks([TraceSlice(0, 10, 1), TraceSlice(5, 15, 2), TraceSlice(2, 4, 3), TraceSlice(10, 12, 4)])
    [[0, 2, 3], [1]]
    """
    found: list[list[int]] = []
    open_until: list[list[int]] = []  # of each track the ends of the slices that are not over, outermost first
    for at in sorted(range(len(slices)), key=lambda at: (slices[at].begin_ns, -slices[at].end_ns)):
        one = slices[at]
        for track, ends in zip(found, open_until, strict=True):
            while ends and ends[-1] <= one.begin_ns:
                ends.pop()
            if not ends or one.end_ns <= ends[-1]:
                track.append(at)
                ends.append(one.end_ns)
                break
        else:
            found.append([at])
            open_until.append([one.end_ns])
    return found


def idle_since_ns(activities: Activities) -> IntArray:
    """Return for each activity when its device had ended all that began before; its own start where it had not."""
    devices = np.array([-1 if device is None else device for device, _ in activities.lanes], np.int64)
    of, end = devices[activities.lane], activities.end_ns()
    found = activities.start_ns.copy()
    for device in sorted_unique(of):
        rows = np.flatnonzero(of == device)
        before = np.maximum.accumulate(end[rows])[:-1]
        found[rows[1:]] = np.minimum(before, found[rows[1:]])
    return found


def _named(what: str, thread: int, **values: Any) -> bytes:
    return json_event({"ph": "M", "name": what, "pid": PROCESS, "tid": thread, "args": values})


def _event(one: TraceSlice, finding: Finding, thread: int) -> bytes:
    savings = {
        name: f"{time_text(saving.mid)} ({range_text(saving.low, saving.high)})"
        for name, saving in (
            ("saves of step time", of_finding(finding, "step_saving_ns")),
            ("saves of GPU time", of_finding(finding, "gpu_saving_ns")),
        )
        if saving.high
    }
    return json_event(
        {
            "ph": "X",
            "cat": "tracemine",
            "name": line(finding.title),
            "pid": PROCESS,
            "tid": thread,
            "ts": microseconds(one.begin_ns),
            "dur": microseconds(one.end_ns - one.begin_ns),
            "args": {
                "fingerprint": line(finding.fingerprint),
                "rule": line(finding.rule),
                "severity": line(finding.severity),
                "evidence": line(finding.evidence),
                "occurrence": f"{one.occurrence:,} of {finding.occurrences:,}",
                **savings,
                "savings are": "a step" if finding.per_step is not None else "over the trace",
                "fix": "\n".join(line(each) for each in finding.fix[:_LONGEST].splitlines()),
            },
        }
    )


def microseconds(ns: int) -> msgspec.Raw:
    """Return nanoseconds as microseconds, with all their digits.

    >>> bytes(microseconds(4_392_751_939_925_915)), bytes(microseconds(-1_500))
    (b'4392751939925.915', b'-1.500')
    """
    whole, part = divmod(abs(ns), 1_000)
    return msgspec.Raw(f"{'-' if ns < 0 else ''}{whole}.{part:03d}".encode())


def json_event(event: dict[str, Any]) -> bytes:
    """Return an event as JSON, with nothing in it that ends a script."""
    return json_text(msgspec.json.encode(event).decode()).encode()
