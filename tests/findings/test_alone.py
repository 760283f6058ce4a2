"""What each finding saves alone: no more than there is, and never more than all of them together."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.findings.test_step_savings import host_bound, parted
from tracemine import pipeline
from tracemine.causes import load_rules
from tracemine.findings import Finding, Range, Scan
from tracemine.findings.accounting import room_of_step
from tracemine.findings.ranking import no_less_together
from tracemine.findings.record import NOTHING

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRACES = [
    FIXTURES / "kineto" / "decoder_prefill.json.gz",
    FIXTURES / "kineto" / "decoder_decode.json.gz",
    FIXTURES / "kineto" / "convnet_train.json.gz",
    FIXTURES / "nsys" / "block_train.sqlite",
]


analyse = cache(pipeline.analyse)


@cache
def scanned(trace: Path, only: str | None = None) -> Scan:
    rules = tuple(rule for rule in load_rules() if only is None or rule.id == only)
    return pipeline.mined(analyse(trace), pipeline.ScanOptions(rules=rules))


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: str(trace.name))
def test_alone_is_said_of_what_is_shown_and_is_no_more_than_there_is(trace: Path) -> None:
    scan = scanned(trace)
    room, step = room_of_step(scan.summary), scan.summary.per_step
    assert room is not None and step is not None and step.step_saving_ns is not None and len(scan.reported) > 2
    for finding in scan.findings:
        own = finding.per_step
        assert own is not None and (own.step_saving_alone_ns is not None) is finding.reported
        alone = own.step_saving_alone_ns
        if alone is None:
            continue
        assert 0 <= alone.low <= alone.mid <= alone.high
        assert alone.mid <= step.step_saving_ns.mid <= room.unprofiled.mid
        if not finding.on_gpu:
            assert own.step_saving_ns.mid <= alone.mid <= min(room.idle.mid, own.measured_ns)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: str(trace.name))
def test_the_finding_of_a_rule_that_is_scanned_with_alone_saves_what_it_is_said_to_save_alone(trace: Path) -> None:
    compared = 0
    for finding in scanned(trace).reported:
        others = [one for one in scanned(trace, finding.rule).findings if one.identity == finding.identity]
        # A rule that claims before others claims the same without them; one behind them may have more.
        if len(others) == 1 and others[0].activities == finding.activities:
            (one,) = others
            assert one.step_saving_alone_ns is not None and finding.step_saving_alone_ns is not None
            assert one.step_saving_alone_ns.low == finding.step_saving_alone_ns.low
            assert one.step_saving_alone_ns.mid == finding.step_saving_alone_ns.mid
            compared += 1
    assert compared > 1


def test_where_the_host_sets_the_pace_the_gpus_work_saves_little_alone_and_gaps_all_of_theirs() -> None:
    gap, pair = parted(host_bound())
    assert gap.step_saving_alone_ns is not None and pair.step_saving_alone_ns is not None
    assert pair.step_saving_alone_ns.mid < pair.step_saving_ns.mid  # the rest it has of gaps that are closed too
    assert gap.step_saving_alone_ns.mid >= gap.step_saving_ns.mid > 0


@cache
def a_gap() -> Finding:
    """The gap of such a step, scanned once for all examples."""
    return parted(host_bound())[0]


def of(share: int, alone: int | None, measured_ns: int = 1_000) -> Finding:
    gap = a_gap()
    saves = None if alone is None else Range(0, alone, alone)
    own = {"step_saving_ns": Range(0, share, share), "step_saving_alone_ns": saves, "measured_ns": measured_ns}
    (variant, *_) = gap.variants
    variants = (
        replace(variant, step_saving_ns=Range(0, share, share), measured_ns=share),
        replace(variant, step_saving_ns=NOTHING, measured_ns=measured_ns - share),
    )
    assert gap.per_step is not None
    return replace(gap, **own, per_step=replace(gap.per_step, **own), variants=variants)


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900) | st.none()), min_size=1, max_size=5))
def test_what_is_missing_together_goes_to_the_best_alone(pairs: list[tuple[int, int | None]]) -> None:
    pairs = [(share, alone if alone is None else max(alone, share)) for share, alone in pairs]
    before = [of(share, alone) for share, alone in pairs]
    after = no_less_together(before, 10_000)
    most = max((alone or 0 for _, alone in pairs), default=0)
    together = sum(share for share, _ in pairs)
    assert sum(one.step_saving_ns.mid for one in after) == max(most, together)
    assert sum(one.per_step.step_saving_ns.mid for one in after if one.per_step is not None) == max(most, together)
    for one in after:
        assert sum(variant.step_saving_ns.mid for variant in one.variants) == one.step_saving_ns.mid
        assert all(variant.step_saving_ns.mid <= variant.measured_ns for variant in one.variants)
    assert (after == before) is (most <= together)
