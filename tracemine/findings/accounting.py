"""Accounting: what the timeline measured, and the rules that no sum over findings may break.

Everything that says "never more than there is" is here: which part of the device's busy time each activity alone
covers, the trace's totals, and the check that a scan keeps within them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import sorted_unique, uncovered
from tracemine.errors import InputError, Location
from tracemine.findings.inside import extents_of
from tracemine.findings.per_step import first_unseen, observed, step_summary, usual_steps
from tracemine.findings.record import NOTHING, Finding, Range, StepSummary, Summary, UnprofiledTime, activity_rows
from tracemine.perfmodel import Unprofiled
from tracemine.rows.arrow import rows_of
from tracemine.rows.iterations import Iterations, iterations
from tracemine.rows.spans import Spans
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_MOST_NS = 1 << 62  # 146 years; sums of what is within it fit an int64


class Accounts(Struct, frozen=True, kw_only=True):
    """Measured totals, nanoseconds; arrays have one entry an activity."""

    dur_ns: IntArray
    exclusive_ns: IntArray  # the time that the device would be less busy without it: parts of the union in start order
    devices: int  # devices that were active
    span_ns: int  # first activity's start to the last one's end, over all devices
    gpu_time_ns: int
    gpu_busy_ns: int
    per_step: StepSummary | None
    step_of: IntArray  # the step, marked or inferred, that it is part of; −1: none, or one that is not counted
    extents: Spans | None = None  # when steps were under way; None: none are known
    counted: Iterations | None = None  # the steps that tell what one takes

    @property
    def judged_ns(self) -> int:
        """Return how long what counts takes: steps where any are known, and else the span."""
        steps = None if self.extents is None else int(self.extents.dur.sum())
        return min(self.span_ns, steps or self.span_ns)

    @property
    def steps(self) -> int:
        """Number of steps; 0: none are known."""
        return 0 if self.per_step is None else self.per_step.count

    @property
    def in_step(self) -> BoolArray:
        """Return whether each activity is part of a step."""
        return self.step_of >= 0

    @property
    def gpu_idle_ns(self) -> int:
        """Idle time of all devices within the span."""
        return self.devices * self.span_ns - self.gpu_busy_ns


def measure(timeline: Timeline) -> Accounts:
    """Add up a timeline. Nanoseconds.

    Raise InputError where 64 bits cannot count what its activities last, or the spans of its devices, together.

    >>> from tracemine.timeline import Meta
    >>> measure(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).span_ns
    0
    """
    activities = timeline.activities
    start, dur = rows_of(activities["start_ns"]), rows_of(activities["dur_ns"])
    device = rows_of(activities["device"])
    ordinals = sorted_unique(device)
    span = int((start + dur).max()) - int(start.min()) if len(dur) else 0
    if max(float(dur.sum(dtype=np.float64)), len(ordinals) * span) >= _MOST_NS:
        raise InputError(
            "its GPU activities last for more than a century, or lie as far apart",
            where=Location(timeline.meta.source),
            hint="see what wrote their times",
        )
    exclusive = np.zeros(len(dur), dtype=np.int64)
    for ordinal in ordinals:
        rows = np.flatnonzero(device == ordinal)
        exclusive[rows] = uncovered(start[rows], start[rows] + dur[rows])  # rows stand in start order
    every = observed(timeline, iterations(timeline))
    found, apart = usual_steps(timeline, exclusive, every)
    steps = step_summary(timeline, exclusive, found)
    step_of = np.full(len(dur), -1) if found is None else found.of_activity
    return Accounts(
        dur_ns=dur,
        exclusive_ns=exclusive,
        devices=len(ordinals),
        span_ns=span,
        gpu_time_ns=int(dur.sum()),
        gpu_busy_ns=int(exclusive.sum()),
        per_step=None if steps is None else replace(steps, apart=apart),
        step_of=step_of,
        extents=extents_of(found, step_of, start + dur, every if first_unseen(every, apart) else None),
        counted=found,
    )


# Kernels with nothing between them, as a graph replays them, take up to a tenth less than where the device idles in
# between and its clock and caches follow (pairs `graph_*` of benchmarks/predictions/step_pairs_report.py).
_CLOSELY_PACKED = Fraction(9, 10)
_ALL_IN_STEPS = Fraction(5, 4)  # a span of as many times its steps has nothing but them


class Room(Struct, frozen=True):
    """An unprofiled step, or all of them, and for how long a device works in it: what there is to save. Nanoseconds."""

    unprofiled: Range
    busy_ns: int
    devices: int = 1  # whose savings are added up

    @property
    def idle(self) -> Range:
        """Return for how long a device idles.

        >>> Room(Range(8, 10, 15), 9).idle
        Range(low=0, mid=1, high=6)
        """
        return Range(*(max(each - self.busy_ns, 0) for each in _ends(self.unprofiled)))

    def most_saved(self, gpu: Range) -> Range:
        """Return the most that can be saved where so much GPU time is: all but the GPU time that is left.

        >>> Room(Range(10, 10, 10), 8).most_saved(Range(1, 3, 4))
        Range(low=3, mid=5, high=7)
        >>> Room(Range(10, 10, 10), 8, devices=2).most_saved(Range(2, 6, 8)).mid
        5
        """
        packed = (Fraction(1), Fraction(1), _CLOSELY_PACKED)
        low, mid, high = (
            whole - max(int(min(self.busy_ns, whole) * share) - saved, 0)
            for whole, saved, share in zip(
                _ends(self.unprofiled), _ends(gpu // max(self.devices, 1)), packed, strict=True
            )
        )
        return Range(min(low, mid), mid, max(mid, high))


def _ends(of: Range) -> tuple[int, int, int]:
    return of.low, of.mid, of.high


def most_saved(accounts: Accounts, unprofiled: Unprofiled, gpu: Range) -> Range:
    """Return the most by which all findings together can shorten the steps: all but the GPU time that is left.

    gpu: what they save of it. Steps take no less than the devices work, so unprofiled time − savings ≥ GPU time left;
    at the high end that is what it is without gaps between. Nanoseconds.
    """
    # Alone a device can take longer than it did in the recording, of whose span savings are parts.
    return _room(accounts, unprofiled).most_saved(gpu).at_most(accounts.span_ns)


def idle_of(accounts: Accounts, unprofiled: Unprofiled) -> Range:
    """Return for how long the devices of all steps idle unprofiled: the most that closing gaps gives back."""
    return _room(accounts, unprofiled).idle.at_most(accounts.span_ns)


def _room(accounts: Accounts, unprofiled: Unprofiled) -> Room:
    scale, step = Fraction(accounts.judged_ns, max(unprofiled.recorded_ns, 1)), accounts.per_step
    if step is not None and step.count < scale <= _ALL_IN_STEPS * step.count:
        scale = Fraction(step.count)  # what lies between steps, and behind the last, is no step more
    outside_ns = accounts.span_ns - accounts.judged_ns  # what lies in no step
    devices = max(accounts.devices, 1)
    busy_ns = accounts.gpu_busy_ns // devices
    a_step = with_slow_steps(unprofiled.range_ns, unprofiled.p90_ns, int(busy_ns / max(scale, Fraction(1))))
    return Room(Range(*(int(each * scale) + outside_ns for each in _ends(a_step))), busy_ns, devices)


def summarise(accounts: Accounts, findings: Sequence[Finding], unprofiled: Unprofiled | None = None) -> Summary:
    """Return the summary of a scan, checked: a sum that exceeds what was measured is a bug and raises RuntimeError."""
    per_step, alone = accounts.per_step, None if unprofiled is None else _time(unprofiled)
    if per_step is not None:
        per_step, alone = replace(per_step, unprofiled_ns=alone), None
    summary = Summary(
        span_ns=accounts.span_ns,
        gpu_time_ns=accounts.gpu_time_ns,
        gpu_busy_ns=accounts.gpu_busy_ns,
        gpu_idle_ns=accounts.gpu_idle_ns,
        per_step=per_step,
        gpu_saving_ns=NOTHING,
        step_saving_ns=NOTHING,
        unprofiled_ns=alone,
    )
    summary = joined(summary, findings)
    check(accounts, findings, summary.step_saving_ns)
    return summary


def joined(summary: Summary, findings: Sequence[Finding]) -> Summary:
    """Return a summary with what these findings save together.

    Middles add up. High ends do not: each finding may save all that is there, and all together no more than that.
    """
    gpu, step = (sum((getattr(f, name) for f in findings), NOTHING) for name in ("gpu_saving_ns", "step_saving_ns"))
    whole = summary.unprofiled_ns
    recorded = Range(*[summary.span_ns] * 3)
    devices = _devices(summary)
    room = Room(recorded if whole is None else whole.range_ns, summary.gpu_busy_ns // devices, devices)
    return replace(
        summary,
        gpu_saving_ns=gpu,
        step_saving_ns=_together(step, min(room.most_saved(gpu).high, summary.span_ns)),
        per_step=None if summary.per_step is None else _joined_step(summary, findings),
    )


def _joined_step(summary: Summary, findings: Sequence[Finding]) -> StepSummary | None:
    room, per_step = room_of_step(summary), summary.per_step
    each = [f.per_step for f in findings if f.per_step is not None]
    if room is None or per_step is None or len(each) < len(findings):
        return per_step
    gpu = sum((one.gpu_saving_ns for one in each), NOTHING)
    step = sum((one.step_saving_ns for one in each), NOTHING)
    return replace(per_step, step_saving_ns=_together(step, room.most_saved(gpu).high))


def _together(sum_of: Range, most_ns: int) -> Range:
    return Range(sum_of.low, sum_of.mid, max(sum_of.mid, min(sum_of.high, most_ns)))


def room_of_step(summary: Summary) -> Room | None:
    """Return an unprofiled step as room for savings; None where no steps are known, or not how long one takes."""
    step = summary.per_step
    if step is None or step.unprofiled_ns is None:
        return None
    busy_ns, alone = step.gpu_busy_ns // _devices(summary), step.unprofiled_ns
    return Room(with_slow_steps(alone.range_ns, alone.p90, busy_ns), busy_ns, _devices(summary))


def with_slow_steps(unprofiled: Range, p90_ns: int | None, busy_ns: int) -> Range:
    """Return how long a step takes up to a slow one of those that were timed: that has more idle time to save.

    Idle time counts up to a usual step's length: no fix saves more than that.

    >>> with_slow_steps(Range(10, 10, 10), 12, 3), with_slow_steps(Range(10, 10, 10), 15, 3)
    (Range(low=10, mid=10, high=12), Range(low=10, mid=10, high=13))
    """
    if p90_ns is None:
        return unprofiled
    return replace(unprofiled, high=max(unprofiled.high, min(p90_ns, unprofiled.mid + busy_ns)))


def _devices(summary: Summary) -> int:
    return max((summary.gpu_busy_ns + summary.gpu_idle_ns) // max(summary.span_ns, 1), 1)


def _time(of: Unprofiled) -> UnprofiledTime:
    return UnprofiledTime(
        low=of.low_ns, mid=of.mid_ns, high=of.high_ns, source=of.source, note=of.note, p10=of.p10_ns, p90=of.p90_ns
    )


def check(accounts: Accounts, findings: Sequence[Finding], step: Range) -> None:
    """Raise RuntimeError if findings claim anything twice, or more than there is."""
    on_gpu = [f for f in findings if f.on_gpu]
    claimed = activity_rows(on_gpu)
    in_gaps = sum(f.measured_ns for f in findings if not f.on_gpu)
    for holds, rule in (
        (len(claimed) == len(sorted_unique(claimed)), "an activity is claimed twice"),
        (sum(f.measured_ns for f in on_gpu) <= accounts.gpu_time_ns, "findings measure more than the GPU's time"),
        (all(_ordered(f.gpu_saving_ns, f.measured_ns) for f in findings), "a GPU saving exceeds what was measured"),
        (
            all(_ordered(f.step_saving_ns, most_saved_by(f, accounts)) for f in findings),
            "a step saving exceeds what was measured",
        ),
        (in_gaps <= accounts.gpu_idle_ns, "gaps claim more than the idle time"),
        (step.high <= accounts.span_ns, "the steps' savings exceed the span"),
        (all(_within_step(f) for f in findings), "a step saves more of a finding than lies in it"),
    ):
        if not holds:
            raise RuntimeError(f"accounting: {rule}")


def most_saved_by(finding: Finding, accounts: Accounts) -> int:
    """Return the most that a finding can save: all of its gaps, and with launches idle time as well."""
    return min(finding.measured_ns + (accounts.gpu_idle_ns if finding.on_gpu else 0), accounts.span_ns)


def _within_step(finding: Finding) -> bool:
    """Return whether a step saves no more than it has of a finding; with launches idle time goes as well."""
    each = finding.per_step
    if each is None:
        return True
    gain = NOTHING if finding.on_gpu else each.step_saving_ns
    return _ordered(each.gpu_saving_ns, each.measured_ns) and _ordered(gain, each.measured_ns)


def _ordered(saving: Range, measured_ns: int) -> bool:
    return 0 <= saving.low <= saving.mid <= saving.high <= measured_ns
