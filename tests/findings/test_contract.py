"""Figures that cannot be are seen, whichever they are; and none is there over random programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.attack.programs import Program
from tests.findings.build import kernel, rows_of_timeline, timeline_of
from tests.findings.test_accounting import DEVICES, kernels, random_matches
from tests.findings.test_step_savings import host_bound
from tracemine import pipeline
from tracemine.causes import CAUSES
from tracemine.findings import Finding, Range, Scan, device_of, find
from tracemine.findings import contract as of_reports
from tracemine.findings.contract import ContractError, breaches, kept
from tracemine.findings.record import NOTHING
from tracemine.units import Threshold

FIXTURES = Path(__file__).parents[2] / "fixtures"


def first(scan: Scan, **more: Any) -> Scan:
    """A scan whose first finding on the GPU has these fields."""
    chosen = next(one for one in scan.findings if one.on_gpu)
    return replace(scan, findings=tuple(replace(one, **more) if one is chosen else one for one in scan.findings))


def each_step(scan: Scan, on_gpu: bool, **more: Any) -> Scan:
    """A scan whose first such finding has these figures a step."""
    chosen = next(one for one in scan.findings if one.on_gpu is on_gpu)
    assert chosen.per_step is not None
    planted = replace(chosen, per_step=replace(chosen.per_step, **more))
    return replace(scan, findings=tuple(planted if one is chosen else one for one in scan.findings))


def part_grown(scan: Scan) -> Scan:
    parts = scan.summary.parts
    assert parts is not None
    one, *rest = parts.parts
    grown = replace(parts, parts=(replace(one, ns=one.ns + 1), *rest))
    return replace(scan, summary=replace(scan.summary, parts=grown))


def idle_share(scan: Scan) -> Scan:
    bound = scan.summary.bound
    assert bound is not None
    return replace(scan, summary=replace(scan.summary, bound=replace(bound, idle_share=1.2)))


def joint(scan: Scan) -> Scan:
    step = scan.summary.per_step
    assert step is not None and step.step_saving_ns is not None
    more = step.step_saving_ns + Range(0, 1, 1)
    return replace(scan, summary=replace(scan.summary, per_step=replace(step, step_saving_ns=more)))


PLANTED: dict[str, tuple[Callable[[Scan], Scan], str]] = {
    "a share of the step": (lambda scan: each_step(scan, True, share_of_unprofiled=1.01), "between 0 and 100%"),
    "a share of idle time": (idle_share, "between 0 and 100%"),
    "a part of the step": (part_grown, "parts of a step do not add up"),
    "a variant": (lambda scan: first(scan, measured_ns=scan.findings[-1].measured_ns + 1), "variants do not add up"),
    "cost of the trace": (lambda scan: first(scan, measured_ns=10**12, variants=()), "cost more than there is"),
    "cost of a step": (lambda scan: each_step(scan, True, measured_ns=10**12), "costs a step more"),
    "an interval": (lambda scan: first(scan, gpu_saving_ns=Range(3, 2, 4)), "out of order"),
    "an interval of a step": (lambda scan: each_step(scan, False, step_saving_ns=Range(1, 0, 1)), "out of order"),
    "GPU time": (lambda scan: first(scan, gpu_saving_ns=Range(0, 1, 10**12)), "more than it cost"),
    "GPU time of a step": (lambda scan: each_step(scan, True, gpu_saving_ns=Range(0, 1, 10**12)), "more than it cost"),
    "a gap's own time": (lambda scan: each_step(scan, False, step_saving_ns=Range(0, 1, 10**12)), "more than it cost"),
    "all of the step": (lambda scan: each_step(scan, True, step_saving_ns=Range(0, 10**12, 10**12)), "do not leave"),
    "idle time": (lambda scan: each_step(scan, False, step_saving_ns=Range(0, 10**12, 10**12)), "than a step is idle"),
    "the joint saving": (joint, "add up to what all save"),
    "a gap alone": (lambda scan: each_step(scan, False, step_saving_alone_ns=NOTHING), "alone saves more than there"),
    "alone, the GPU": (
        lambda scan: each_step(scan, True, step_saving_alone_ns=Range(0, 10**12, 10**12)),
        "alone saves more than there",
    ),
    "alone, of all": (lambda scan: first(scan, step_saving_alone_ns=Range(0, 10**12, 10**12)), "one of them alone"),
}


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_breach_is_seen(plant: str) -> None:
    scan = host_bound()
    assert breaches(scan) == []
    change, says = PLANTED[plant]
    planted = change(scan)
    assert any(says in text for text in breaches(planted))
    with pytest.raises(ContractError, match=says):
        kept(planted)


def test_each_rule_has_a_planted_breach() -> None:
    for text, _ in of_reports._RULES:
        assert any(says in text for _, says in PLANTED.values()), text


def test_a_user_gets_the_report_and_one_line_about_it() -> None:
    planted = each_step(host_bound(), True, share_of_unprofiled=1.01)
    token = of_reports._RAISES.set(False)
    try:
        found = kept(planted)
    finally:
        of_reports._RAISES.reset(token)
    assert found.findings == planted.findings
    assert found.warnings[:-1] == planted.warnings
    assert "cannot be" in found.warnings[-1] and "\n" not in found.warnings[-1]
    assert kept(host_bound()) == host_bound()


@pytest.mark.parametrize("trace", sorted(FIXTURES.glob("kineto/*.json.gz")), ids=lambda path: path.name)
def test_recorded_programs_keep_it(trace: Path) -> None:
    assert breaches(pipeline.scan(trace)) == []


@settings(max_examples=100)
@given(
    made=kernels(),
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 24), min_size=2, max_size=4, unique=True),
    first_waits=st.sampled_from((0, 0, 10**9)),
)
def test_random_programs_with_steps_keep_it(
    made: list[dict[str, Any]], seed: int, cuts: list[int], first_waits: int
) -> None:
    """Some activities lie before the first step or behind the last, and may have waited for a second."""
    begins = sorted({made[at]["start_ns"] for at in cuts if at < len(made)})
    spans = [(begin, max(end - begin, 1)) for begin, end in pairwise(begins)]

    def step_of(start: int) -> int | None:
        return next((row for row, (begin, dur) in enumerate(spans) if begin <= start < begin + dur), None)

    marked = [
        one | {"step_row": step_of(one["start_ns"]), "start_ns": one["start_ns"] + first_waits * (at > 0)}
        for at, one in enumerate(made)
    ]
    moved = [(begin + first_waits * (begin > made[0]["start_ns"]), dur) for begin, dur in spans]
    timeline = timeline_of(marked, steps=moved, devices=DEVICES)
    rows = rows_of_timeline(timeline, ("host_bound", "synchronisation", "unknown"))
    found = random_matches(timeline, rows["gaps"].count, seed)
    scan = find(timeline, rows, found, device_of(timeline), min_saving_ns=0, causes=CAUSES)  # raises where it does not
    assert breaches(scan) == []


@pytest.mark.parametrize("seed", [3028])
def test_a_program_that_broke_it_once_keeps_it(seed: int, tmp_path: Path) -> None:
    """Found by `contract` of benchmarks/. 3028: high ends of variants add up to more than there is."""
    (tmp_path / "t.json").write_text(json.dumps(Program(seed).trace()))
    assert breaches(pipeline.scan(tmp_path / "t.json", pipeline.ScanOptions(threshold=Threshold(ns=0)))) == []


def test_steps_in_which_nothing_takes_any_time_have_no_parts() -> None:
    made = [kernel(0, 9_000), kernel(50_000, 0, step_row=0), kernel(60_000, 0, step_row=0)]
    timeline = timeline_of(made, steps=[(40_000, 30_000)])
    scan = find(timeline, rows_of_timeline(timeline), [], device_of(timeline), causes=CAUSES)
    assert scan.summary.parts is None
    assert scan.summary.gpu_busy_ns == 9_000


def test_all_findings_of_a_breach_are_looked_at() -> None:
    scan = host_bound()
    last = scan.findings[-1]
    assert isinstance(last, Finding) and last.per_step is not None
    planted = replace(last, per_step=replace(last.per_step, share_of_unprofiled=-0.1))
    assert breaches(replace(scan, findings=(*scan.findings[:-1], planted)))
