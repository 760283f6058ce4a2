"""What became of each finding: every status with a near miss, and what holds whatever is compared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.comparison.build import BUSY_NS, RECORDED, STEP_NS, US, gap, item, side, sides
from tracemine.comparison import STATUSES, Difference, compared, diff
from tracemine.comparison.record import ComparedSide
from tracemine.findings.record import Range, Scan
from tracemine.pipeline import scan

A, B, C, U = (digit * 16 for digit in "abce")
FIXTURES = Path(__file__).parents[2] / "fixtures"
MIRRORED = {"fixed": "new", "new": "fixed", "improved": "worse", "worse": "improved"}


def statuses(found: Difference) -> dict[str, str]:
    """Status by fingerprint, of either side."""
    return {part.fingerprint: change.status for change in found.changes for part in (*change.before, *change.after)}


def changes(found: Difference) -> set[tuple[tuple[str, ...], tuple[str, ...], str]]:
    """Fingerprints on both sides, and the status. Those of a side are unique."""
    return {
        (
            tuple(sorted(part.fingerprint for part in one.before)),
            tuple(sorted(part.fingerprint for part in one.after)),
            one.status,
        )
        for one in found.changes
    }


def reason(found: Difference, mark: str) -> str:
    """Why the change of a finding has its status."""
    parts = {part.fingerprint: change for change in found.changes for part in (*change.before, *change.after)}
    return parts[mark].reason or ""


# --- each status -----------------------------------------------------------------------------------------------------


def test_a_finding_that_is_gone_with_what_its_operators_took_is_fixed() -> None:
    found = compared(side(item(A, 100)), side(gpu={"aten::mul": 10}))
    assert statuses(found) == {A: "fixed"}


def test_a_finding_that_is_gone_while_its_operators_take_as_long_is_unknown_and_says_who_has_them() -> None:
    after = side(item(B, 100, rule="norm", module="M_*"), gpu={"aten::mul": 100})
    found = compared(side(item(A, 100, module="M_*")), after)
    assert statuses(found) == {A: "unknown", B: "unknown"}
    assert "account for, its operators take as long as before; “Finding bbb" in reason(found, A)


def _divided(after_us: int, *, traced: bool, spent_us: int = 150) -> Difference:
    """A norm and a chain of its operators on one side, on the other the norm alone."""
    norm, chain = item(A, 100, ("aten::mul", "aten::add"), rule="norm"), item(B, 50, ("aten::mul",))
    after = item(A, after_us, ("aten::mul", "aten::add"), rule="norm")
    recorded = replace(RECORDED, traced=traced)
    return compared(side(norm, chain), side(after, gpu={"aten::mul": spent_us}, recorded=recorded))


def test_what_is_one_finding_where_more_was_recorded_is_the_same() -> None:
    found = _divided(150, traced=True)
    assert statuses(found) == {A: "same", B: "same"}
    assert [(len(one.before), len(one.after), one.before_ns) for one in found.changes] == [(2, 1, 150 * US)]
    assert found.counts == {"same": 1}


@pytest.mark.parametrize(
    ("after_us", "spent_us", "traced"),
    [
        (150, 150, False),  # recorded alike: nothing explains that they are one
        (120, 150, True),  # together they cost more than it does
        (150, 100, True),  # the operators take less: it is gone
    ],
)
def test_what_is_gone_is_not_called_the_same_without_all_the_evidence(
    after_us: int, spent_us: int, traced: bool
) -> None:
    found = _divided(after_us, traced=traced, spent_us=spent_us)
    assert statuses(found)[B] in ("unknown", "fixed")
    assert len(found.changes) == 2


def test_half_of_what_it_cost_is_enough_and_less_is_not() -> None:
    for left, status in ((150, "fixed"), (151, "unknown")):
        found = compared(side(item(A, 100), gpu={"aten::mul": 200}), side(gpu={"aten::mul": left}))
        assert statuses(found) == {A: status}


def test_two_findings_are_not_fixed_by_one_nanosecond_twice() -> None:
    before = side(item(A, 100), item(B, 90, rule="norm"), gpu={"aten::mul": 190})
    found = compared(before, side(gpu={"aten::mul": 120}))  # 70 less: half of the first, then 20 of the 45 needed
    assert statuses(found) == {A: "fixed", B: "unknown"}


def test_what_runs_in_place_of_a_fixed_finding_leaves_the_rest_to_others() -> None:
    saving: dict[str, Any] = {"gpu_saving_ns": Range(50_000, 55_000, 60_000)}
    before = side(item(A, 100, **saving), item(B, 90, rule="norm", **saving), gpu={"aten::mul": 190})
    for left, status in ((90, "fixed"), (91, "unknown")):  # the first needs 55 less, half of the second 45
        assert statuses(compared(before, side(gpu={"aten::mul": left}))) == {A: "fixed", B: status}


def test_a_finding_that_only_the_second_recording_has_is_new_where_its_operators_take_more() -> None:
    assert statuses(compared(side(), side(item(A, 100)))) == {A: "new"}
    found = compared(side(gpu={"aten::mul": 100}), side(item(A, 100)))
    assert statuses(found) == {A: "unknown"}
    assert "took as long before" in reason(found, A)


def test_a_change_of_cost_beyond_noise_is_better_or_worse_and_within_it_neither() -> None:
    for us, status in ((103, "same"), (104, "worse"), (97, "same"), (96, "improved")):
        assert statuses(compared(side(item(A, 100)), side(item(A, us)))) == {A: status}, us


def test_noise_is_what_is_given_else_what_the_steps_spread_by_else_what_others_do() -> None:
    before, after = side(item(A, 100)), side(item(A, 110))
    assert statuses(compared(before, after)) == {A: "worse"}
    assert statuses(compared(before, after, noise=0.2)) == {A: "same"}
    spread: dict[str, Any] = {"steps": 9, "span_spread_ns": STEP_NS // 20, "gpu_busy_spread_ns": BUSY_NS // 10}
    found = compared(before, side(item(A, 110), **spread))
    assert found.noise.source == "assumed"  # of one side it is not known
    found = compared(side(item(A, 100), **spread), side(item(A, 110), **spread))
    assert found.noise.source == "measured"
    assert found.noise.gpu == pytest.approx(0.1483, abs=0.001)
    assert statuses(found) == {A: "same"}
    still: dict[str, Any] = {"steps": 9, "span_spread_ns": 0, "gpu_busy_spread_ns": 0}
    assert compared(side(**still), side(**still)).noise.gpu == 0.01  # recordings differ more than their steps


def test_other_shapes_are_moved_and_what_comes_and_goes_with_them_is_unknown() -> None:
    before = side(item(A, 100, shapes=("[1, 8]",)), item(C, 50, ("aten::cat",), rule="norm"))
    found = compared(before, side(item(A, 400, shapes=("[4, 8]",))))
    assert statuses(found) == {A: "moved", C: "unknown"}
    assert reason(found, A) == "other shapes: [1, 8] → [4, 8]"
    assert "explained by inputs" in reason(found, C)
    # One variant in common: the program runs what it ran.
    shared = compared(side(item(A, 100, shapes=("[1, 8]", "[2]"))), side(item(A, 400, shapes=("[4, 8]", "[2]"))))
    assert statuses(shared) == {A: "worse"}
    # Not recorded on one side: nothing says that they are others.
    assert statuses(compared(side(item(A, 100, shapes=("[1]",))), side(item(A, 400)))) == {A: "worse"}


def test_other_shapes_of_a_small_part_do_not_make_the_inputs_others() -> None:
    """Nothing is known of the shapes that the larger part ran on."""
    small, large = item(A, 50, shapes=("[1]",)), item(B, 200, ("aten::mm",), rule="norm")
    found = compared(
        side(small, large, item(C, 60, ("aten::cat",), rule="third")), side(replace(small, shapes=("[4]",)), large)
    )
    assert statuses(found) == {A: "moved", B: "same", C: "fixed"}


def test_idle_time_of_other_inputs_does_not_compare() -> None:
    before = side(item(A, 100, shapes=("[1]",)), gap(B, 300))
    found = compared(before, side(item(A, 400, shapes=("[4]",)), gap(B, 100)))
    assert statuses(found) == {A: "moved", B: "moved"}
    assert found.predicted is None


def test_another_data_type_is_moved() -> None:
    before = side(item(A, 100, module="M_*", dtype="float32"))
    found = compared(before, side(item(B, 50, module="M_*", dtype="bfloat16")))
    assert statuses(found) == {A: "moved", B: "moved"}
    assert reason(found, A) == "other data type: float32 → bfloat16"
    # Not recorded: its cost says what became of it.
    assert statuses(compared(before, side(item(B, 50, module="M_*")))) == {A: "improved", B: "improved"}


def test_findings_of_several_modules_are_compared_with_the_one_that_they_are_without_stacks() -> None:
    without = replace(RECORDED, stacks=False)
    before = side(item(A, 100, aliases=(U,), module="A_*"), item(B, 200, aliases=(U,), module="B_*"))
    found = compared(before, side(item(U, 301), recorded=without))
    assert statuses(found) == {A: "same", B: "same", U: "same"}
    assert [(one.before_ns, one.after_ns, one.matched_by) for one in found.changes] == [(300 * US, 301 * US, "alias")]


def test_a_matched_finding_whose_operators_take_as_long_is_the_same_however_much_of_them_it_covers() -> None:
    found = compared(side(item(A, 100), gpu={"aten::mul": 200}), side(item(A, 180), gpu={"aten::mul": 200}))
    assert statuses(found) == {A: "same"}
    assert "another part of them" in reason(found, A)


# --- idle time -------------------------------------------------------------------------------------------------------


def test_idle_time_that_is_waited_for_elsewhere_is_not_gone() -> None:
    before = side(gap(A, 300, ("aten::item",)))
    gone = compared(before, side(idle={}))
    assert statuses(gone) == {A: "fixed"}
    moved_on = compared(before, side(idle={"aten::mm": 300}))
    assert statuses(moved_on) == {A: "unknown"}


def test_idle_time_of_unlike_recordings_is_compared_without_the_profiler() -> None:
    stacks = replace(RECORDED, stacks=False)
    # Recorded: 400 µs of 1,000 idle, then 2,400 of 3,000; without the profiler both idle about as long.
    before = side(gap(A, 400), recorded=stacks, alone_us=(800, 900, 1_000))
    after = side(gap(A, 2_400), span_ns=3_000 * US, alone_us=(750, 900, 1_200))
    found = compared(before, after)
    assert (found.basis, statuses(found)) == ("estimated", {A: "same"})
    assert [(one.before_ns, one.after_ns) for one in found.changes] == [(300 * US, 300 * US)]
    assert any("recorded differently" in note for note in found.notes)
    # Recorded alike it is as it was recorded, whatever is estimated.
    alike = compared(replace(before, about=replace(before.about, recorded=RECORDED)), after)
    assert (alike.basis, statuses(alike)) == ("recorded", {A: "worse"})


def test_only_what_the_ends_of_estimates_allow_is_a_change() -> None:
    """100 µs of 400 idle with the profiler: 50 to 75 without it on one side; on the other what is said."""
    before = side(gap(A, 100), recorded=replace(RECORDED, stacks=False), alone_us=(800, 850, 900))
    for us, status in ((250, "same"), (320, "same"), (330, "worse")):  # beyond 900 µs × 3 % only with its low end
        found = compared(before, side(gap(A, us), alone_us=(800, 850, 900)))
        assert statuses(found) == {A: status}, us
    assert "estimated steps leave open" in reason(compared(before, side(gap(A, 250), alone_us=(600, 850, 900))), A)


def test_steps_that_were_timed_alone_are_the_truth() -> None:
    before = side(gap(A, 400), alone_us=(900, 900, 900), source="captured")
    after = side(gap(A, 2_400), span_ns=3_000 * US, alone_us=(700, 700, 700), source="captured")
    found = compared(before, after)
    assert (found.basis, found.step.status, found.step.change_ns.mid) == ("captured", "improved", -200 * US)
    assert statuses(found) == {A: "improved"}


def test_a_short_wait_that_no_report_shows_comes_and_goes_by_itself() -> None:
    for shown, us, status in ((False, 100, "same"), (False, 101, "new"), (True, 10, "new")):
        assert statuses(compared(side(), side(gap(A, us, reported=shown)))) == {A: status}, us


# --- comparability ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"name": "H"}, "gpu"),
        ({"recorded": replace(RECORDED, world_size=8)}, "world_size"),
        ({"recorded": replace(RECORDED, devices=2)}, "devices"),
        ({"recorded": replace(RECORDED, operators=0.2)}, "operators"),
        ({"steps": 0}, "steps"),
    ],
)
def test_what_may_explain_that_a_finding_is_gone_makes_it_unknown(more: dict[str, Any], what: str) -> None:
    found = compared(side(item(A, 100)), side(**more))
    assert what in [one.what for one in found.differs]
    assert statuses(found) == {A: "unknown"}
    assert found.predicted is None


@pytest.mark.parametrize("name", ["shapes", "stacks", "traced", "tensors", "torch", "tracemine"])
def test_what_cannot_explain_that_time_is_gone_is_said_and_no_more(name: str) -> None:
    value = "other" if name in ("torch", "tracemine") else not getattr(RECORDED, name)
    found = compared(side(item(A, 100)), side(recorded=replace(RECORDED, **{name: value})))
    assert [(one.what, one.explains) for one in found.differs] == [(name, False)]
    assert statuses(found) == {A: "fixed"}


def test_operators_that_are_not_known_any_more_hide_no_idle_time() -> None:
    found = compared(side(gap(A, 300, ("aten::mul",))), side(recorded=replace(RECORDED, operators=0.0), idle={}))
    assert statuses(found) == {A: "fixed"}


def test_a_scan_that_did_not_keep_what_operators_take_proves_nothing_gone() -> None:
    found = compared(side(item(A, 100), item(B, 50, rule="norm")), replace(side(item(B, 20, rule="norm")), spent=None))
    assert statuses(found) == {A: "unknown", B: "improved"}
    assert any("not stored" in note for note in found.notes)


def test_programs_that_have_nothing_in_common_are_unknown_first_and_everywhere() -> None:
    decoder = side(item(A, 100, ("aten::mul",), module="Decoder_*.Norm_*"), gpu={"aten::mm": 400, "aten::mul": 100})
    chain = side(item(B, 100, ("aten::log",), module="Chain_*"), gpu={"aten::log": 100, "aten::mul": 10})
    found = compared(decoder, chain)
    assert statuses(found) == {A: "unknown", B: "unknown"}
    assert (found.step.status, found.gpu_work.status, found.predicted) == ("unknown", "unknown", None)
    assert found.differs[0].what == "program"
    assert [one.what for one in found.incomparable] == ["program"]


def test_programs_with_a_class_or_a_finding_or_most_operators_in_common_compare() -> None:
    gpu = {"aten::mm": 400, "aten::mul": 100}
    before = side(item(A, 100, ("aten::mul",), module="Decoder_*.Norm_*"), gpu=gpu)
    other = {"aten::log": 100}
    for after in (
        side(item(B, 90, ("aten::log",), module="OptimizedModule_*.Decoder_*"), gpu=other),
        side(item(A, 90, ("aten::log",), module="Mine_*"), gpu=other),
        side(gpu={"aten::mm": 300}),
        side(gpu={"triton_tem_fused_mm_mul_0": 300}),
        side(gpu={"my_kernel": 300}),  # it may do what any operators did
    ):
        assert not compared(before, after).incomparable, after
    wrapped = side(item(A, 100, ("aten::mul",), module="OptimizedModule_*.Chain_*"), gpu=gpu)
    after = side(item(B, 90, ("aten::log",), module="OptimizedModule_*.Decoder_*"), gpu=other)
    assert [one.what for one in compared(wrapped, after).incomparable] == ["program"]


@pytest.mark.parametrize(
    ("broken", "what"),
    [({"recorded": replace(RECORDED, cut_off=True)}, "cut_off"), ({"gpu": {}, "gpu_busy_ns": 0}, "gpu_activity")],
)
def test_a_recording_that_is_cut_off_or_empty_says_nothing_of_any_finding(broken: dict[str, Any], what: str) -> None:
    before, after = side(item(A, 100), item(B, 50)), side(item(A, 40), **broken)
    for one, other in ((before, after), (after, before), (after, after)):
        found = compared(one, other)
        assert set(found.counts) <= {"unknown"}
        assert {found.step.status, found.gpu_work.status} == {"unknown"}
        assert found.differs[0].what == what
    assert not compared(before, side(item(A, 40))).incomparable


def test_without_steps_times_are_over_the_trace_and_it_is_said() -> None:
    found = compared(side(item(A, 100), steps=0), side(item(A, 50), steps=0))
    assert (found.per, statuses(found)) == ("trace", {A: "improved"})
    assert any("over the trace" in note for note in found.notes)


def test_steps_on_one_side_alone_do_not_compare() -> None:
    found = compared(side(item(A, 100)), side(item(A, 50), steps=0))
    assert (found.per, found.step.status, statuses(found)) == ("unknown", "unknown", {A: "unknown"})


def test_nothing_on_either_side_is_no_change() -> None:
    found = compared(side(), side())
    assert (found.counts, found.changes, found.predicted) == ({}, (), None)


# --- predicted beside measured ---------------------------------------------------------------------------------------


def test_what_fixed_findings_predicted_stands_beside_what_the_step_got_shorter_by() -> None:
    before = side(item(A, 100), item(B, 200, ("aten::mm",), rule="norm"))
    found = compared(before, side(item(B, 200, ("aten::mm",), rule="norm"), span_ns=STEP_NS - 80 * US))
    assert found.predicted is not None
    assert (found.predicted.fixed, found.predicted.improved) == (1, 0)
    assert found.predicted.step_saving_ns == before.items[0].step_saving_ns
    assert found.predicted.measured_step_ns.mid == 80 * US


def test_of_an_improved_finding_the_share_of_its_cost_that_is_gone_was_predicted() -> None:
    found = compared(side(item(A, 100), span_ns=STEP_NS), side(item(A, 25), span_ns=STEP_NS - 75 * US))
    assert statuses(found) == {A: "improved"}
    assert found.predicted is not None
    saving = item(A, 100).step_saving_ns
    assert found.predicted.step_saving_ns.mid == saving.mid * 3 // 4
    assert found.predicted.gpu_saving_ns.high == saving.high * 3 // 4


# --- whatever is compared --------------------------------------------------------------------------------------------


@given(sides(), sides())
def test_what_holds_whatever_is_compared(before: ComparedSide, after: ComparedSide) -> None:
    there, back = compared(before, after), compared(after, before)
    nothing_is_counted_twice_and_nothing_is_lost(there, before, after)
    backwards_what_was_fixed_is_new_and_what_improved_is_worse(there, back)
    what_is_fixed_took_at_least_half_of_its_cost_less(there, before, after)
    it_is_json_that_reads_back_with_no_value_that_json_has_not(there)
    a_side_is_the_same_as_itself(before)


def nothing_is_counted_twice_and_nothing_is_lost(found: Difference, before: ComparedSide, after: ComparedSide) -> None:
    for items, parts, totals, costs in (
        (
            before.items,
            [part for one in found.changes for part in one.before],
            found.totals_before,
            [(one.on_gpu, one.before_ns) for one in found.changes],
        ),
        (
            after.items,
            [part for one in found.changes for part in one.after],
            found.totals_after,
            [(one.on_gpu, one.after_ns) for one in found.changes],
        ),
    ):
        assert sorted(part.fingerprint for part in parts) == sorted(one.fingerprint for one in items)
        assert (
            sum(ns for on_gpu, ns in costs if on_gpu)
            == totals.gpu_ns
            == sum(one.measured_ns for one in items if one.on_gpu)
        )
        assert sum(ns for on_gpu, ns in costs if not on_gpu) == totals.idle_ns
    assert sum(found.counts.values()) == len(found.changes)
    for change in found.changes:
        assert change.before_ns == sum(part.cost_ns for part in change.before)
        assert change.after_ns == sum(part.cost_ns for part in change.after)


def backwards_what_was_fixed_is_new_and_what_improved_is_worse(there: Difference, back: Difference) -> None:
    assert changes(back) == {(after, before, MIRRORED.get(is_, is_)) for before, after, is_ in changes(there)}
    assert MIRRORED.get(back.step.status, back.step.status) == there.step.status


def a_side_is_the_same_as_itself(one: ComparedSide) -> None:
    found = compared(one, one)
    assert set(found.counts) <= {"same"}
    assert (found.step.status, found.step.change_ns.mid) == ("same", 0)
    assert found.differs == ()


def what_is_fixed_took_at_least_half_of_its_cost_less(
    found: Difference, before: ComparedSide, after: ComparedSide
) -> None:
    fixed = [change for change in found.changes if change.status == "fixed" and change.on_gpu]
    marks = {part.fingerprint for change in fixed for part in change.before}
    gone = [one for one in before.items if one.fingerprint in marks]
    if not gone:
        return
    assert before.spent is not None
    assert after.spent is not None
    ops = {op for one in gone for op in one.ops}
    less = sum(max(before.spent.gpu_ns.get(op, 0) - after.spent.gpu_ns.get(op, 0), 0) for op in ops)
    # A finding cannot have cost more than its operators took; the random ones here may claim so.
    had = sum(min(one.measured_ns, sum(before.spent.gpu_ns.get(op, 0) for op in set(one.ops))) for one in gone)
    assert 2 * less >= had


def it_is_json_that_reads_back_with_no_value_that_json_has_not(found: Difference) -> None:
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Difference) == found
    assert b"NaN" not in text
    assert math.isfinite(found.noise.span)
    assert set(found.counts) <= set(STATUSES)


def test_its_json_schema_can_be_made() -> None:
    schema = msgspec.json.schema(Difference)
    assert set(schema["$defs"]["Difference"]["properties"]) == set(Difference.__struct_fields__)


# --- scans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["decoder_prefill", "convnet_train", "compiled_breaks", "decoder_decode_graph"])
def test_a_recording_is_the_same_as_itself(name: str) -> None:
    one = scan(FIXTURES / f"kineto/{name}.json.gz")
    found = diff(one, one)
    assert set(found.counts) == {"same"}
    assert sum(found.counts.values()) == len(one.findings)


def test_one_program_with_and_without_stacks_is_the_same() -> None:
    """The capture has stacks and an execution trace, the recording beside it neither."""
    before, after = scan(FIXTURES / "kineto/decoder_prefill.json.gz"), scan(FIXTURES / "captures/decoder_prefill")
    for found in (diff(before, after), diff(after, before)):
        assert {"fixed", "new", "improved", "worse", "moved"}.isdisjoint(found.counts), found.counts


@pytest.mark.parametrize("name", ["chain", "clean_gemms", "convnet_train", "compiled_loop"])
def test_a_decoder_and_another_program_do_not_compare(name: str) -> None:
    sides = [scan(FIXTURES / f"kineto/{one}.json.gz") for one in ("decoder_prefill", name)]
    for before, after in (sides, sides[::-1]):
        assert set(diff(before, after).counts) == {"unknown"}


def test_prefill_and_decode_of_one_model_compare() -> None:
    before, after = (scan(FIXTURES / f"kineto/decoder_{name}.json.gz") for name in ("prefill", "decode"))
    assert not diff(before, after).incomparable


def test_a_program_that_is_compiled_then_has_its_fusions_fixed() -> None:
    before = scan(FIXTURES / "kineto/decoder_prefill.json.gz")
    found = diff(before, scan(FIXTURES / "kineto/decoder_prefill_compiled.json.gz"))
    fixed = {change.rule for change in found.changes if change.status == "fixed"}
    assert {"rmsnorm_unfused", "rotary_unfused"} <= fixed
    assert found.predicted is not None


def as_version_1(found: Scan) -> Scan:
    """What reading a file of schema version 1 gives: findings without variants, steps, or what operators take."""
    findings = tuple(
        replace(one, variants=(), per_step=None, identity=msgspec.structs.replace(one.identity, aliases=()))
        for one in found.findings
    )
    return replace(found, findings=findings, recorded=None, spent=None)


def test_findings_of_schema_version_1_compare_by_cost_and_prove_nothing_gone() -> None:
    new = scan(FIXTURES / "kineto/decoder_prefill.json.gz")
    found = diff(as_version_1(new), new)
    assert set(found.counts) == {"same"}
    gone = diff(as_version_1(new), scan(FIXTURES / "kineto/chain.json.gz"))
    assert "fixed" not in gone.counts
