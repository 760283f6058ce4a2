"""What fixes of a rule saved elsewhere corrects what a finding of that rule is said to save, and no other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.causes import load_rules
from tracemine.findings.alone import MEASURED, MeasuredBySaid, corrected
from tracemine.perfmodel import Range
from tracemine.pipeline import analyse, mined

TRACE = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "programs" / "q_learning"
RULE = "optimizer_unfused"


def savings(table: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for rule in [*MEASURED]:
        monkeypatch.delitem(MEASURED, rule)
    for rule, measured in table.items():
        monkeypatch.setitem(MEASURED, rule, measured)
    found = mined(analyse(TRACE)).findings
    return {one.fingerprint: (one.rule, one.per_step.step_saving_alone_ns) for one in found if one.per_step}


def test_a_rule_that_was_measured_is_corrected_and_one_that_was_left_out_is_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = savings({}, monkeypatch)
    after = savings({RULE: MeasuredBySaid(programs=9, least=0.5, middle=0.5, most=0.6)}, monkeypatch)
    assert {rule for rule, _ in before.values()} > {RULE}
    assert after.keys() == before.keys()
    for mark, (rule, said) in before.items():
        now = after[mark][1]
        assert (now == said) is (rule != RULE)
        if rule == RULE:
            assert now.mid == pytest.approx(said.mid / 2, abs=2)
            assert (now.low, now.high) == (said.low, said.high)  # an interval gets no narrower


ranges = st.lists(st.integers(0, 10**9), min_size=3, max_size=3).map(lambda three: Range(*sorted(three)))


@given(ranges, st.lists(st.floats(0, 4), min_size=3, max_size=3).map(sorted))
def test_an_interval_is_in_order_and_holds_what_it_held(said: Range, times: list[float]) -> None:
    found = corrected(said, MeasuredBySaid(programs=4, least=times[0], middle=times[1], most=times[2]))
    assert found.low <= min(said.low, found.mid)
    assert found.high >= max(said.high, found.mid)
    assert corrected(said, None) is said


def test_the_table_names_rules_and_enough_programs() -> None:
    assert {*MEASURED} <= {rule.id for rule in load_rules()}
    for one in MEASURED.values():
        assert one.programs >= 4
        assert 0 <= one.least <= one.middle <= one.most
