"""The books hold over random timelines and random matches, and a finding is the same finding tomorrow."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.findings.build import H200, kernel, matches, rows_of_timeline, rule, timeline_of
from tests.findings.test_step_savings import adds_up
from tracemine.causes import CAUSES
from tracemine.errors import InputError
from tracemine.findings import Scan, device_of, find
from tracemine.findings.accounting import check, measure
from tracemine.matching.rule import Matches
from tracemine.perfmodel import NOTHING, Range
from tracemine.timeline import RecordedDevice, Timeline

SHAPES = (None, ((64,), (64,)), ((4096, 4096), (4096, 4096)), ((4096, 4096), (4096,)))
QUEUED_NS = 10**6  # at most
DEVICES = (H200, RecordedDevice(ordinal=1, name="NVIDIA H200"))


@st.composite
def kernels(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Kernels on two streams of two devices, overlapping or apart, known and unknown, queued and not."""
    count = draw(st.integers(0, 24))
    chosen = random.Random(draw(st.integers(0, 2**32)))
    made, at = [], 0
    for _ in range(count):
        at += chosen.choice((0, 500, 30_000, 400_000))
        made.append(
            kernel(
                at,
                chosen.choice((0, 1, 900, 40_000, 300_000)),
                chosen.choice((None, "aten::mul", "aten::sum", "aten::mm")),
                chosen.choice(SHAPES),
                module=chosen.choice((None, "A_0.B_1", "A_0.B_2")),
                queued_ns=chosen.choice((None, -100, 10, QUEUED_NS)),
                device=chosen.choice((0, 0, 0, 1)),
                stream=chosen.choice((7, 7, 20)),
            )
        )
    return made


def random_matches(timeline: Timeline, gaps: int, seed: int) -> list[Matches]:
    """Overlapping matches of several rules, cut from one another and from themselves."""
    chosen = random.Random(seed)
    found = []
    for number, saving in enumerate(("fuse", "fuse", "pin_memory", "close_gap", "close_gap")):
        rows = gaps if saving == "close_gap" else timeline.activities.num_rows
        starting = [start for start in range(rows) if chosen.random() < 0.5]
        members = [range(start, min(rows, start + chosen.randint(1, 6))) for start in starting]
        group_by = chosen.choice((("ops",), ("ops", "shapes", "dtype", "module"), ("module", "source")))
        of = rule(f"r{number}", saving, priority=chosen.randint(0, 2), group_by=group_by)
        found.append(matches(of, *members))
    return found


def scan_of(timeline: Timeline, seed: int, least: int = 0) -> Scan:
    rows = rows_of_timeline(timeline, ("host_bound", "synchronisation", "unknown"))
    found = random_matches(timeline, rows["gaps"].count, seed)
    return find(timeline, rows, found, device_of(timeline), min_saving_ns=least, causes=CAUSES)


@settings(max_examples=50)
@given(made=kernels(), seed=st.integers(0, 2**32))
def test_no_scan_claims_anything_twice_or_more_than_there_is(made: list[dict[str, Any]], seed: int) -> None:
    timeline = timeline_of(made, devices=DEVICES)
    scan = scan_of(timeline, seed)
    on_gpu = [f for f in scan.findings if f.gpu_saving_ns != NOTHING]
    claimed = [row for f in on_gpu for once in f.activities for row in once]
    assert len(claimed) == len(set(claimed))
    durations = timeline.activities["dur_ns"].to_pylist()
    assert sum(f.measured_ns for f in on_gpu) == sum(durations[row] for row in claimed)
    assert sum(f.measured_ns for f in on_gpu) <= scan.summary.gpu_time_ns
    assert sum(f.measured_ns for f in scan.findings if f not in on_gpu) <= scan.summary.gpu_idle_ns
    assert scan.summary.step_saving_ns.high <= scan.summary.span_ns
    assert scan.summary.gpu_saving_ns == sum((f.gpu_saving_ns for f in scan.findings), NOTHING)
    assert adds_up(scan)
    assert all(f.occurrences == len(f.activities) for f in scan.findings)


@settings(max_examples=25)
@given(made=kernels(), seed=st.integers(0, 2**32), shift=st.integers(1, 10**15))
def test_a_scan_does_not_depend_on_when_the_trace_was_taken(made: list[dict[str, Any]], seed: int, shift: int) -> None:
    made = [k | {"start_ns": k["start_ns"] + QUEUED_NS} for k in made]  # nothing is launched before the clock's zero
    later = [k | {"start_ns": k["start_ns"] + shift} for k in made]
    assert scan_of(timeline_of(made, devices=DEVICES), seed) == scan_of(timeline_of(later, devices=DEVICES), seed)


@settings(max_examples=25)
@given(made=kernels(), times=st.integers(2, 3))
def test_the_same_work_done_again_gives_the_same_findings_with_more_occurrences(
    made: list[dict[str, Any]], times: int
) -> None:
    made = [k | {"device": 0, "stream": 7} for k in made]
    apart = max((k["start_ns"] + k["dur_ns"] for k in made), default=0) + 10**6
    again = [k | {"start_ns": k["start_ns"] + i * apart} for i in range(times) for k in made]
    once, more = (
        find(t, rows_of_timeline(t), [matches(rule(), *threes)], device_of(t), min_saving_ns=0)
        for t in (timeline_of(made), timeline_of(again))
        for threes in [[range(i, i + 3) for i in starts(t, len(made))]]
    )
    assume("spread_out" not in once.dropped)  # one alone is left out, and not several like it
    # Rounding per class may turn one nanosecond to save into none, or the other way round: look beyond that.
    marks = {f.fingerprint: f.occurrences for f in once.findings if f.gpu_saving_ns.mid > 10}
    assert {f.fingerprint: f.occurrences for f in more.findings if f.fingerprint in marks} == {
        mark: count * times for mark, count in marks.items()
    }


def starts(timeline: Timeline, period: int) -> list[int]:
    """Where a match of three begins: at every third activity of each repetition."""
    rows = timeline.activities.num_rows
    return [base + i for base in range(0, rows, period or 1) for i in range(0, period - 2, 3)]


def test_the_order_of_rules_and_matches_changes_nothing() -> None:
    timeline = timeline_of([kernel(i * 60_000, 60_000) for i in range(12)])
    rows = rows_of_timeline(timeline)
    two = [matches(rule("a", priority=1), [0, 1, 2], [6, 7]), matches(rule("b"), range(12))]
    device = device_of(timeline)
    assert find(timeline, rows, two, device) == find(timeline, rows, two[::-1], device)


def test_a_fingerprint_is_the_same_on_every_machine() -> None:
    timeline = timeline_of([kernel(i * 60_000, 60_000) for i in range(3)])
    (finding,) = find(timeline, rows_of_timeline(timeline), [matches(rule(), [0, 1, 2])], device_of(timeline)).findings
    assert finding.fingerprint == finding.identity.finding == "5c0cfa562ec22653"
    assert finding.variants[0].identity.aliases == ("25cb34a485b1c787",)  # as schema version 1 had it


def test_a_scan_is_written_as_json_with_the_keys_of_the_contract() -> None:
    timeline = timeline_of([kernel(i * 60_000, 60_000) for i in range(3)])
    scan = find(timeline, rows_of_timeline(timeline), [matches(rule(), [0, 1, 2])], device_of(timeline))
    written = msgspec.to_builtins(scan)
    assert list(written)[:5] == ["schema_version", "trace", "summary", "findings", "dropped"]
    assert {"identity", "cause", "per_step", "variants", "reported"} <= set(written["findings"][0])
    assert {"fingerprint", "rule", "activities", "measured_ns", "fused_ns", "gpu_saving_ns", "step_saving_ns"} <= set(
        written["findings"][0]
    )
    assert written["findings"][0]["flops"] is None
    assert written["findings"][0]["arithmetic_intensity"] is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu_saving_ns": Range(0, 10**9, 10**9)}, "a GPU saving exceeds"),
        ({"step_saving_ns": Range(5, 1, 9)}, "a step saving exceeds"),
        ({"measured_ns": 10**12}, "more than the GPU's time"),
        ({"activities": ((0, 1, 2), (2,))}, "claimed twice"),
    ],
)
def test_a_finding_that_breaks_the_books_is_a_bug(change: dict[str, Any], says: str) -> None:
    timeline = timeline_of([kernel(i * 60_000, 60_000) for i in range(3)])
    scan = find(timeline, rows_of_timeline(timeline), [matches(rule(), [0, 1, 2])], device_of(timeline))
    broken = msgspec.structs.replace(scan.findings[0], **change)
    with pytest.raises(RuntimeError, match=says):
        check(measure(timeline), [broken], scan.summary.step_saving_ns)


@pytest.mark.parametrize(
    "damaged",
    [
        [kernel(0, 1 << 61, stream=stream) for stream in range(4)],
        [kernel(at, 1, device=device) for device in range(9) for at in (0, 1 << 60)],
    ],
)
def test_times_that_64_bits_cannot_add_up_are_refused(damaged: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="more than a century"):
        measure(timeline_of(damaged))
