"""What workers give back of the time that a loop waits for its data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.findings import Scan
from tracemine.perfmodel import Range, hidden_by_workers
from tracemine.pipeline import scan

MS = 1_000_000


def saved(gap_ms: float, rest_ms: float) -> Range:
    gap, rest = (np.array([int(ms * MS)]) for ms in (gap_ms, rest_ms))
    return hidden_by_workers(gap, gap, rest)[0]


def test_where_the_rest_of_the_step_is_longer_all_but_handing_over_comes_back() -> None:
    found = saved(50, 100)
    assert found.high == 50 * MS
    assert found.mid > 0.8 * 50 * MS


def test_where_loading_is_nearly_all_of_the_step_the_workers_set_the_pace() -> None:
    """Four of them, slower each than the loop: a third to a half of the loading stays."""
    found = saved(200, 2)
    assert 0.5 * 200 * MS < found.mid < 0.7 * 200 * MS
    assert found.low > 0
    assert found.high < 0.9 * 200 * MS


def test_what_takes_less_than_handing_a_batch_over_gives_nothing_back() -> None:
    assert saved(0.4, 100) == Range(0, 0, 400_000)


@given(
    gaps=st.lists(st.tuples(st.integers(0, 1 << 40), st.floats(0, 1), st.integers(0, 1 << 40)), min_size=1, max_size=9)
)
def test_no_more_comes_back_than_the_gaps_last(gaps: list[tuple[int, float, int]]) -> None:
    gap, share, rest = (np.array(column) for column in zip(*gaps, strict=True))
    found, assumptions = hidden_by_workers(gap, (gap * share).astype(np.int64), rest)
    assert 0 <= found.low <= found.mid <= found.high <= gap.sum()
    assert len(assumptions) == 2


def steps_of(found: Scan) -> int:
    """All steps of a recording: those that count, and those apart."""
    assert found.summary.per_step is not None
    return found.trace.steps + len(found.summary.per_step.apart)


@pytest.mark.skipif("TRACEMINE_COMPAT_TRACES" not in os.environ, reason="TRACEMINE_COMPAT_TRACES names no traces")
def test_pytorchs_own_pair_with_no_and_with_four_workers_lies_in_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both were recorded: what they tell is what the recorded step gains.
    monkeypatch.setattr("tracemine.findings.steps.slowdown_of", lambda timeline: None)
    folder = Path(os.environ["TRACEMINE_COMPAT_TRACES"]) / "kineto"
    none, four = (scan(folder / f"kineto_resnet50_{name}.json.gz") for name in ("nw0_a", "nw4_b"))
    truth = none.summary.span_ns - four.summary.span_ns * steps_of(none) // steps_of(four)
    finding = next(one for one in none.findings if one.rule == "data_loading")
    assert finding.step_saving_ns.low <= truth <= finding.step_saving_ns.high
    assert abs(finding.step_saving_ns.mid - truth) < 0.1 * none.summary.span_ns
    assert none.findings[0] is finding
