"""The accounting contract, on traces of other projects and machines: nothing twice, nothing more than there is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.screens import Events
from tracemine.documents.headline import bound_headline
from tracemine.findings import Scan
from tracemine.perfmodel import NOTHING

_ROOT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))
_COMPAT = [
    path
    for folder in ("kineto", "h200")
    for path in sorted((_ROOT / folder).rglob("*.json*"))
    if not path.name.startswith(("meta", "et."))
]
_FIXTURES = Path(__file__).parent.parent / "fixtures"
_OURS = [*sorted((_FIXTURES / "kineto").glob("*.json.gz")), *sorted(_FIXTURES.glob("captures/*/trace.json.gz"))]


def assert_contract(events: Events, scan: Scan) -> None:
    assert scan.trace.activities == events.count
    claimed = [finding for finding in scan.findings if finding.gpu_saving_ns != NOTHING]
    rows = [row for finding in claimed for once in finding.activities for row in once]
    assert len(rows) == len(set(rows))
    assert sum(finding.measured_ns for finding in claimed) <= events.exact_ns * 1.001
    assert scan.summary.gpu_saving_ns == sum((f.gpu_saving_ns for f in scan.findings), NOTHING)
    together = sum((f.step_saving_ns for f in scan.findings), NOTHING)
    assert (scan.summary.step_saving_ns.low, scan.summary.step_saving_ns.mid) == (together.low, together.mid)
    assert together.mid <= scan.summary.step_saving_ns.high <= together.high  # high ends may exclude one another
    assert scan.summary.step_saving_ns.high <= scan.summary.span_ns
    assert scan.summary.gpu_idle_ns >= 0
    assert len({finding.fingerprint for finding in scan.findings}) == len(scan.findings)


@pytest.mark.skipif(not _COMPAT, reason="TRACEMINE_COMPAT_TRACES names no folder of traces")
@pytest.mark.parametrize("path", _COMPAT or [None], ids=lambda p: "" if p is None else f"{p.parent.name}/{p.name}")
def test_a_trace_of_somebody_else_keeps_the_contract(
    path: Path, measured: Callable[[Path], Any], gpu_events: Callable[[Path], Events]
) -> None:
    assert_contract(gpu_events(path), measured(path).scan)


@pytest.mark.parametrize("path", _OURS, ids=lambda path: path.name)
def test_a_recording_of_ours_keeps_the_contract(
    path: Path, measured: Callable[[Path], Any], gpu_events: Callable[[Path], Events]
) -> None:
    assert_contract(gpu_events(path), measured(path).scan)


def test_a_trace_in_which_nothing_is_to_be_won_has_no_findings(measured: Callable[[Path], Any]) -> None:
    (clean,) = [path for path in _OURS if path.name.startswith("clean")]
    assert measured(clean).scan.findings == ()


def test_on_a_trace_whose_device_is_mostly_idle_the_headline_says_so_and_gaps_are_found(
    measured: Callable[[Path], Any],
) -> None:
    (decode,) = [path for path in _OURS if path.name == "decoder_decode.json.gz"]
    scan = measured(decode).scan
    assert scan.summary.gpu_idle_ns > scan.summary.gpu_busy_ns
    assert bound_headline(scan).startswith("Host-bound")
    assert {"launch_gap", "rmsnorm_unfused", "rotary_unfused"} <= {finding.rule for finding in scan.reported}
