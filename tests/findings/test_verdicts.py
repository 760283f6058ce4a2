"""Verdicts in a scan: what is measured takes the place of what was predicted, what is refuted is claimed by nobody."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.findings.build import kernel, matches, rows_of_timeline, rule, timeline_of
from tests.findings.test_accounting import DEVICES, kernels, random_matches
from tests.findings.test_step_savings import adds_up
from tracemine.causes import CAUSES
from tracemine.findings import Finding, Scan, device_of, find
from tracemine.findings.record import Share, Verified
from tracemine.findings.verdicts import Judge, account, with_verdicts
from tracemine.matching.rule import Matches
from tracemine.perfmodel import NOTHING, Range
from tracemine.timeline import Timeline

MEASURED = Verified(
    basis="measured", level="L4", says="slower than torch.compile", device="NVIDIA H200", state="cold", eager_ns=30_000,
    fused_ns=15_000, compiled_ns=14_000, saved_share=Share(0.25, 0.5, 0.75), predicted_ns=NOTHING, occurrences=1,
    assumptions=(), not_tested=("L6: no step",), file="v.json",
)  # fmt: skip
REFUTED = msgspec.structs.replace(MEASURED, basis="refuted", level="L3", says="this fusion loses", fused_ns=60_000)
OPEN = msgspec.structs.replace(MEASURED, basis="predicted", level="L2", saved_share=None, device=None)


def on(verified: Verified | None) -> Judge:
    """The same verdict on every finding."""
    return lambda f: None if verified is None else msgspec.structs.replace(verified, predicted_ns=f.gpu_saving_ns)


def scan_of(timeline: Timeline, found: list[Matches], judge: Judge | None = None, least: int = 0) -> Scan:
    rows = rows_of_timeline(timeline)
    return find(timeline, rows, found, device_of(timeline), judge=judge, min_saving_ns=least, causes=CAUSES)


def chains(**more: Any) -> Timeline:
    """Four chains of three large kernels, back to back."""
    return timeline_of([kernel(i * 60_000, 60_000, **more) for i in range(12)])


THREES = [range(i, i + 3) for i in range(0, 12, 3)]


def test_without_verdicts_nothing_changes() -> None:
    timeline = chains()
    plain = scan_of(timeline, [matches(rule(), *THREES)])
    assert scan_of(timeline, [matches(rule(), *THREES)], on(None)) == plain
    assert plain.findings[0].verdict is None


def test_the_measured_share_is_taken_off_what_the_trace_recorded() -> None:
    found = scan_of(chains(), [matches(rule(), *THREES)], on(MEASURED)).findings[0]
    assert found.measured_ns == 720_000
    assert found.gpu_saving_ns == Range(180_000, 360_000, 540_000)
    assert found.fused_ns == Range(180_000, 360_000, 540_000)
    assert found.verdict is not None
    assert found.verdict.predicted_ns.mid != 360_000
    assert any("one of 4 occurrences was replayed alone" in text for text in found.assumptions)


def test_the_step_gains_what_the_measured_saving_gains_it() -> None:
    """On a device that is never idle the step gets shorter by what the kernels do."""
    timeline = timeline_of([kernel(i * 60_000, 60_000, queued_ns=10**6) for i in range(12)])
    found = scan_of(timeline, [matches(rule(), *THREES)], on(MEASURED)).findings[0]
    assert found.step_saving_ns.mid == 360_000


def test_a_refuted_finding_is_listed_saves_nothing_and_is_no_gap() -> None:
    scan = scan_of(chains(), [matches(rule(), *THREES)], on(REFUTED))
    (found,) = scan.findings
    assert found.refuted
    assert found.on_gpu
    assert (found.gpu_saving_ns, found.step_saving_ns, found.severity) == (NOTHING, NOTHING, "low")
    assert found.verdict is not None
    assert found.verdict.predicted_ns.mid > 0
    assert scan.summary.gpu_saving_ns == scan.summary.step_saving_ns == NOTHING


def test_what_is_refuted_is_claimed_by_no_other_rule() -> None:
    other = rule("zz_wider", priority=200)
    found = [matches(rule(), *THREES), matches(other, range(12))]

    def judge(finding: Finding) -> Verified | None:
        return on(REFUTED)(finding) if finding.rule == "chain" else None

    assert {f.rule for f in scan_of(chains(), found, judge).findings} == {"chain"}


def test_a_measured_saving_below_the_threshold_is_still_listed_and_keeps_its_claim() -> None:
    little = msgspec.structs.replace(MEASURED, saved_share=Share(-0.01, 0.0, 0.01))
    scan = scan_of(chains(), [matches(rule(), *THREES)], on(little), least=100_000)
    assert [f.gpu_saving_ns for f in scan.findings] == [Range(0, 0, 7_200)]
    nothing = msgspec.structs.replace(MEASURED, saved_share=Share(-0.03, -0.02, -0.01))
    (found,) = scan_of(chains(), [matches(rule(), *THREES)], on(nothing)).findings
    assert found.gpu_saving_ns == NOTHING
    assert not found.refuted


def test_what_was_not_timed_stays_predicted_and_says_how_far_it_got() -> None:
    plain = scan_of(chains(), [matches(rule(), *THREES)]).findings[0]
    found = scan_of(chains(), [matches(rule(), *THREES)], on(OPEN)).findings[0]
    assert (found.gpu_saving_ns, found.step_saving_ns) == (plain.gpu_saving_ns, plain.step_saving_ns)
    assert found.verdict is not None
    assert found.verdict.level == "L2"


def test_occurrences_of_other_shapes_stay_predicted() -> None:
    small, large = ((4096, 4096),) * 2, ((4096, 8192),) * 2
    timeline = timeline_of([kernel(i * 60_000, 60_000, shapes=small if i < 3 else large) for i in range(9)])
    threes = matches(rule(group_by=("ops",)), range(3), range(3, 6), range(6, 9))
    plain = scan_of(timeline, [threes]).findings[0]
    found = scan_of(timeline, [threes], on(MEASURED)).findings[0]
    assert found.alike is not None
    assert (found.occurrences, found.alike.occurrences, found.alike.measured_ns) == (3, 1, 180_000)
    others = plain.gpu_saving_ns.mid - found.alike.gpu_saving_ns.mid
    assert found.gpu_saving_ns.mid == 90_000 + others
    assert any("2 occurrences with other strides or traffic stay predicted" in text for text in found.assumptions)


def test_a_verdict_on_idle_time_is_none() -> None:
    timeline = timeline_of([kernel(i * 400_000, 10_000, queued_ns=-100) for i in range(6)])
    gaps = matches(rule("gap", "close_gap"), *[[i] for i in range(5)])
    plain = scan_of(timeline, [gaps])
    assert plain.findings
    assert scan_of(timeline, [gaps], on(REFUTED)) == plain


# --- a stored scan, without its trace ---------------------------------------------------------------------------------


def test_a_stored_scan_saves_the_same_gpu_time_and_no_more_of_the_step() -> None:
    timeline = chains()
    plain = scan_of(timeline, [matches(rule(), *THREES)])
    stored = with_verdicts(plain, on(MEASURED))
    again = scan_of(timeline, [matches(rule(), *THREES)], on(MEASURED))
    assert [f.gpu_saving_ns for f in stored.findings] == [f.gpu_saving_ns for f in again.findings]
    assert stored.summary.gpu_saving_ns == again.summary.gpu_saving_ns
    assert stored.findings[0].step_saving_ns.mid <= plain.findings[0].step_saving_ns.mid


def test_in_a_stored_scan_the_step_gains_less_in_proportion_and_never_more() -> None:
    plain = scan_of(chains(), [matches(rule(), *THREES)])
    before = plain.findings[0]
    half = msgspec.structs.replace(
        MEASURED, saved_share=Share(*[before.gpu_saving_ns.mid / 2 / before.measured_ns] * 3)
    )
    found = with_verdicts(plain, on(half)).findings[0]
    assert found.step_saving_ns.mid == pytest.approx(before.step_saving_ns.mid / 2, abs=2)
    most = msgspec.structs.replace(MEASURED, saved_share=Share(1.0, 1.0, 1.0))
    assert with_verdicts(plain, on(most)).findings[0].step_saving_ns == before.step_saving_ns


def test_a_verdict_of_a_stored_scan_is_not_overruled() -> None:
    stored = scan_of(chains(), [matches(rule(), *THREES)], on(REFUTED))
    assert with_verdicts(stored, on(MEASURED)) == stored


def test_findings_stored_before_verdicts_could_be_carried_over_stay_predicted() -> None:
    plain = scan_of(chains(), [matches(rule(), *THREES)])
    old = msgspec.structs.replace(
        plain, findings=tuple(msgspec.structs.replace(f, alike=None, variants=()) for f in plain.findings)
    )
    found = with_verdicts(old, on(REFUTED)).findings[0]
    assert found.gpu_saving_ns == plain.findings[0].gpu_saving_ns
    assert found.verdict is not None
    assert found.verdict.basis == "predicted"


# --- nothing more than there is ---------------------------------------------------------------------------------------


def any_verdict(seed: int) -> Judge:
    """Some verdict on some findings, also such as no measurement gives."""

    def judge(finding: Finding) -> Verified | None:
        chosen = random.Random(f"{seed} {finding.fingerprint}")
        low, mid, high = sorted(chosen.choice((-5.0, -0.1, 0.0, 0.3, 0.9, 1.0, 7.0)) for _ in range(3))
        verified = chosen.choice((None, MEASURED, REFUTED, OPEN))
        if verified is MEASURED:
            verified = msgspec.structs.replace(MEASURED, saved_share=Share(low, mid, high))
        return on(verified)(finding)

    return judge


# Drawn once: two variants of a finding, of which one has a dtype and the other none.
DTYPES_APART = [
    kernel(500, 40_000, "aten::mm", ((4096, 4096), (4096,)), module=None, queued_ns=None, device=0, stream=7),
    kernel(1_000, 40_000, "aten::mm", ((64,), (64,)), module="A_0.B_1", queued_ns=-100, device=0, stream=20),
    kernel(401_000, 0, "aten::mm", ((64,), (64,)), module="A_0.B_2", queued_ns=-100, device=0, stream=7),
    kernel(401_500, 40_000, None, ((4096, 4096), (4096, 4096)), module="A_0.B_2", queued_ns=10, device=0, stream=7),
    kernel(402_000, 40_000, "aten::mul", None, module="A_0.B_2", queued_ns=None, device=0, stream=7),
    kernel(402_000, 300_000, None, ((4096, 4096), (4096, 4096)), module=None, queued_ns=10, device=0, stream=20),
    kernel(
        402_000, 0, "aten::mul", ((4096, 4096), (4096, 4096)), module="A_0.B_2", queued_ns=1000000, device=0, stream=7
    ),
    kernel(
        802_000,
        300_000,
        "aten::mul",
        ((4096, 4096), (4096, 4096)),
        module="A_0.B_2",
        queued_ns=None,
        device=0,
        stream=20,
    ),
    kernel(802_500, 900, None, ((4096, 4096), (4096,)), module=None, queued_ns=1000000, device=0, stream=20),
    kernel(
        802_500, 900, "aten::sum", ((4096, 4096), (4096, 4096)), module="A_0.B_1", queued_ns=1000000, device=1, stream=7
    ),
    kernel(1_202_500, 300_000, "aten::mul", ((64,), (64,)), module=None, queued_ns=None, device=0, stream=7),
    kernel(1_202_500, 300_000, None, ((4096, 4096), (4096,)), module="A_0.B_1", queued_ns=10, device=0, stream=20),
    kernel(1_602_500, 40_000, None, ((64,), (64,)), module="A_0.B_1", queued_ns=10, device=0, stream=20),
    kernel(1_602_500, 300_000, "aten::mul", None, module="A_0.B_2", queued_ns=None, device=1, stream=7),
    kernel(1_603_000, 40_000, "aten::mul", None, module="A_0.B_2", queued_ns=-100, device=1, stream=20),
]


@settings(max_examples=40)
@given(made=kernels(), seed=st.integers(0, 2**32))
@example(made=DTYPES_APART, seed=535)
def test_totals_never_exceed_what_was_measured_whatever_verdicts_say(made: list[dict[str, Any]], seed: int) -> None:
    timeline = timeline_of(made, devices=DEVICES)
    rows = rows_of_timeline(timeline, ("host_bound", "synchronisation", "unknown"))
    found = random_matches(timeline, rows["gaps"].count, seed)
    plain = find(timeline, rows, found, device_of(timeline), min_saving_ns=0, causes=CAUSES)
    # `find` raises where the books do not hold.
    scan = find(timeline, rows, found, device_of(timeline), judge=any_verdict(seed), min_saving_ns=0, causes=CAUSES)
    stored = with_verdicts(plain, any_verdict(seed))
    for judged in (scan, stored):
        on_gpu = [f for f in judged.findings if f.on_gpu]
        claimed = [row for f in on_gpu for once in f.activities for row in once]
        assert len(claimed) == len(set(claimed))
        assert sum(f.measured_ns for f in on_gpu) <= judged.summary.gpu_time_ns
        assert judged.summary.gpu_saving_ns == sum((f.gpu_saving_ns for f in judged.findings), NOTHING)
        assert adds_up(judged)
        assert judged.summary.gpu_saving_ns.high <= judged.summary.gpu_time_ns
        assert judged.summary.step_saving_ns.high <= judged.summary.span_ns
        for f in judged.findings:
            assert 0 <= f.gpu_saving_ns.low <= f.gpu_saving_ns.mid <= f.gpu_saving_ns.high <= f.measured_ns
            if f.refuted:
                assert f.gpu_saving_ns == f.step_saving_ns == NOTHING
    # What is claimed on the GPU is the same with verdicts and without: none frees anything for another rule.
    assert {f.fingerprint: sorted(f.activities) for f in plain.findings if f.on_gpu} == {
        f.fingerprint: sorted(f.activities) for f in scan.findings if f.on_gpu
    }
    stored_ns, scanned_ns = ({f.fingerprint: f.gpu_saving_ns for f in s.findings if f.on_gpu} for s in (stored, scan))
    assert stored_ns == scanned_ns


def test_what_became_of_verdicts_is_counted_in_one_order() -> None:
    assert list(account({"no_finding": 2, "refuted": 0, "measured": 1})) == ["measured", "no_finding"]


def of_one(verified: Verified, at: int = 0) -> Judge:
    """A verdict on the finding that begins with this activity alone."""

    def judge(finding: Finding) -> Verified | None:
        first = min(min(rows) for rows in finding.activities)
        return msgspec.structs.replace(verified, predicted_ns=finding.gpu_saving_ns) if first == at else None

    return judge


def two_modules(second_ns: int = 60_000, op: str = "aten::mul") -> Timeline:
    """Two chains of three kernels, each of a module of its own."""
    first = [kernel(i * 60_000, 60_000, op="aten::mul", module="A") for i in range(3)]
    return timeline_of([*first, *(kernel(200_000 + i * second_ns, second_ns, op=op, module="B") for i in range(3))])


TWO = [range(3), range(3, 6)]


@pytest.mark.parametrize("stored", [False, True])
def test_a_finding_like_one_that_lost_is_sure_of_nothing_and_says_why(stored: bool) -> None:
    timeline = two_modules()
    plain = scan_of(timeline, [matches(rule(), *TWO)])
    assert len(plain.findings) == 2
    judge = of_one(REFUTED)
    scan = with_verdicts(plain, judge) if stored else scan_of(timeline, [matches(rule(), *TWO)], judge)
    (like,) = [one for one in scan.findings if one.verdict is None]
    before = next(one for one in plain.findings if one.fingerprint == like.fingerprint)
    assert like.gpu_saving_ns == Range(0, before.gpu_saving_ns.low, before.gpu_saving_ns.high)
    assert any("a finding like it" in each and "lost" in each for each in like.assumptions)
    assert with_verdicts(scan, judge).findings == scan.findings


@pytest.mark.parametrize(
    ("timeline", "verified"),
    [
        (two_modules(op="aten::exp"), REFUTED),  # of other operators
        (two_modules(second_ns=200_000), REFUTED),  # of another size
        (two_modules(), MEASURED),  # it won
        (two_modules(), msgspec.structs.replace(REFUTED, eager_ns=None, fused_ns=None)),  # it was wrong: not timed
    ],
)
def test_what_is_not_like_it_or_did_not_lose_lowers_nothing(timeline: Timeline, verified: Verified) -> None:
    plain = scan_of(timeline, [matches(rule(), *TWO)])
    scan = scan_of(timeline, [matches(rule(), *TWO)], of_one(verified))
    (other,) = [one for one in scan.findings if one.verdict is None]
    assert (
        other.gpu_saving_ns == next(one for one in plain.findings if one.fingerprint == other.fingerprint).gpu_saving_ns
    )


def test_a_variant_of_another_dtype_is_not_like_one_that_lost() -> None:
    """Nor in a stored scan, of a finding whose variants have no dtype in common."""
    kinds = [("c10::BFloat16", (4096, 4096)), ("float", (4096, 8192))]
    timeline = timeline_of(
        [
            kernel(i * 60_000, 60_000, dtypes=(dtype,) * 2, shapes=(shape,) * 2, module="A")
            for i, (dtype, shape) in enumerate(kind for kind in kinds for _ in range(3))
        ]
    )
    found = [matches(rule(group_by=("ops", "shapes", "module")), *TWO)]
    plain, judge = scan_of(timeline, found), of_one(REFUTED)
    (finding,) = plain.findings
    assert (finding.dtype, sorted(str(one.dtype) for one in finding.variants)) == (None, ["bfloat16", "float32"])
    for scan in (scan_of(timeline, found, judge), with_verdicts(plain, judge)):
        assert [one.gpu_saving_ns for one in scan.findings[0].variants if one.verdict is None] == [
            one.gpu_saving_ns for one in finding.variants if one.dtype == "float32"
        ]
