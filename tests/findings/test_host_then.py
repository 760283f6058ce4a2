"""A host that needs longer for a step than the device does once kernels are fewer."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import tracemine
from tracemine.documents.screen import first_screen
from tracemine.findings.payback import AS_GRAPH
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, mined
from tracemine.timeline import Timeline

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "programs_unseen"


@pytest.fixture(scope="module")
def detector() -> Timeline:
    return open_trace(RECORDED / "detector")


def said(timeline: Timeline) -> tuple[int, str]:
    """Return how many findings say so, and what one edit does."""
    scan = mined(analysed(timeline))
    return sum(AS_GRAPH in one.fix for one in scan.findings), first_screen(scan).at_once


def test_what_compiles_a_step_makes_it_a_graph_where_the_host_would_set_the_pace(detector: Timeline) -> None:
    """Measured: 58 % less by torch.compile, 66 % by its mode."""
    count, edit = said(detector)
    assert count == 3
    assert 'step = torch.compile(step, mode="reduce-overhead")' in edit


@pytest.mark.parametrize("host_ns", [None, 400_000, 2_900_000])
def test_a_host_that_is_faster_or_not_timed_or_waits_for_the_device_needs_none(
    detector: Timeline, host_ns: int | None
) -> None:
    count, edit = said(replace(detector, meta=replace(detector.meta, host_step_ns=host_ns)))
    assert count == 0
    assert "step = torch.compile(step)  #" in edit


def test_a_step_that_no_graph_can_hold_is_left_alone() -> None:
    report = tracemine.scan(RECORDED.parent / "programs" / "attention_training")
    assert not any(AS_GRAPH in one.fix for one in report)
