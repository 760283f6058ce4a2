"""Steps are told by the middle one; those that tell nothing of a step are listed apart and spread over no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.findings.build import H200
from tests.timelines import Trace
from tracemine.documents.step_words import step_texts
from tracemine.findings.accounting import measure
from tracemine.findings.record import Scan, StepSummary
from tracemine.pipeline import analysed, mined
from tracemine.timeline import Timeline

LENGTH = 2_000_000
KERNELS = 20


def program(lengths: Sequence[float], kinds: Sequence[str] | None = None) -> Timeline:
    """Steps of so many times 2 ms: 20 small kernels of 20 µs, evenly, each launched when the one before is done."""
    trace = Trace(resolution=1, devices=(H200,))
    begin = 0
    for at, length in enumerate(lengths):
        dur = int(LENGTH * length)
        step = trace.step(begin, dur)
        for number in range(KERNELS):
            start = begin + dur * number // KERNELS + 20_000
            shape = [4096 if kinds is None else len(kinds[at])]
            rows: dict[str, Any] = {
                "op": "aten::add",
                "shapes": [shape, shape],
                "dtypes": ["float", "float"],
                "step_row": step,
            }
            trace.kernel("add" if kinds is None else kinds[at], start, 20_000, launch=(start - 9_000, 5_000), **rows)
        begin += dur
    return trace.timeline()


def summary_of(timeline: Timeline) -> StepSummary:
    found = measure(timeline).per_step
    assert found is not None
    return found


def summary(lengths: Sequence[float], kinds: Sequence[str] | None = None) -> StepSummary:
    return summary_of(program(lengths, kinds))


def scanned(lengths: Sequence[float]) -> Scan:
    return mined(analysed(program(lengths)))


@pytest.mark.parametrize("at", range(10))
def test_one_step_five_times_as_long_moves_no_figure_a_step(at: int) -> None:
    even, uneven = scanned([1.0] * 10), scanned([5.0 if each == at else 1.0 for each in range(10)])
    before, after = even.summary.per_step, uneven.summary.per_step
    assert before is not None and after is not None and before.unprofiled_ns and after.unprofiled_ns
    assert [one.number for one in after.apart] == [at] and not before.apart and after.count == 9
    pairs = [
        (before.span_ns, after.span_ns),
        (before.gpu_busy_ns, after.gpu_busy_ns),
        (before.unprofiled_ns.mid, after.unprofiled_ns.mid),
    ]
    (gap,), (same,) = ([one for one in found.findings if not one.on_gpu] for found in (even, uneven))
    assert gap.per_step is not None and same.per_step is not None and gap.per_step.step_saving_ns.mid
    pairs += [
        (gap.per_step.measured_ns, same.per_step.measured_ns),
        (gap.per_step.step_saving_ns.mid, same.per_step.step_saving_ns.mid),
    ]
    for one, other in pairs:
        assert abs(other - one) <= 0.01 * before.span_ns


@pytest.mark.parametrize(
    ("lengths", "apart"),
    [
        ([1, 1, 1, 1, 1.3], [(4, "last")]),
        ([1.3, 1, 1, 1, 1], [(0, "first")]),
        ([1, 1, 3, 1, 1], [(2, "slow")]),
        ([1, 1, 1, 1, 1.15], []),  # an end that is hardly longer
        ([1, 1, 1.9, 1, 1], []),  # not twice as long
        ([1, 1, 0.4, 1, 1], []),  # a fast one is one
        ([1, 1, 1.3], []),  # too few to tell an end by
        ([1, 5], []),  # and to tell anything
    ],
)
def test_which_steps_are_told_apart(lengths: list[float], apart: list[tuple[int, str]]) -> None:
    assert [(one.number, one.why) for one in summary(lengths).apart] == apart


def test_steps_of_a_kind_that_comes_again_are_slow_among_their_like_alone() -> None:
    found = summary([5, 1, 1, 1, 5, 1, 1, 1], ["prefill", *["decode"] * 3] * 2)
    assert not found.apart and found.count == 8
    assert found.span_ns == 2 * LENGTH  # two of eight times as long as prefill, six as decode


def test_where_steps_lie_apart_they_are_counted_and_named() -> None:
    texts = list(step_texts(summary([1, 1, 1, 1, 1, 2.5])))
    assert "apart, in no figure: 1 step, number 5 (last) of 5.00 ms" in texts


def test_no_step_takes_longer_unprofiled_than_the_fastest_that_was_recorded() -> None:
    lengths = [1.0, 0.3, 1.0, 1.0, 1.0]
    found = scanned(lengths).summary.per_step
    assert found is not None and found.unprofiled_ns is not None and found.fastest_ns == int(0.3 * LENGTH)
    assert found.unprofiled_ns.high <= found.fastest_ns
    even = scanned([1.0] * 5).summary.per_step
    assert even is not None and even.unprofiled_ns is not None
    assert even.unprofiled_ns.mid > found.unprofiled_ns.mid


def stalled(stall_ns: int, steps: int, *, seen: bool = False, behind_ns: int = 0, apart_ns: int = 0) -> Timeline:
    """Steps that wait for so long before they launch 20 kernels, and so long behind them, and lie so far apart; seen: a
    copy runs before the first step's begin.
    """
    trace = Trace(resolution=1, devices=(H200,))
    begin = 1_000_000
    if seen:
        trace.kernel("copy", begin - 100_000, 20_000, launch=(begin - 120_000, 5_000), op="aten::copy_")
    for _ in range(steps):
        dur = stall_ns + KERNELS * 100_000 + behind_ns
        step = trace.step(begin, dur)
        for number in range(KERNELS):
            start = begin + stall_ns + number * 100_000 + 20_000
            launch = (start - 9_000, 5_000)
            rows: dict[str, Any] = {
                "op": "aten::add",
                "shapes": [[4096], [4096]],
                "dtypes": ["float", "float"],
                "step_row": step,
            }
            trace.kernel("add", start, 20_000, launch=launch, **rows)
        begin += dur + apart_ns
    return trace.timeline()


@pytest.mark.parametrize("steps", [2, 3])
def test_a_stall_that_begins_each_step_costs_a_step_all_of_it(steps: int) -> None:
    found = mined(analysed(stalled(8_000_000, steps)))
    assert found.summary.per_step is not None
    assert [(one.number, one.why) for one in found.summary.per_step.apart] == [(0, "begin not seen")]
    (stall,) = [one for one in found.findings if one.rule == "first_launch_late"]
    assert stall.per_step is not None and stall.per_step.measured_ns == pytest.approx(8_000_000, rel=0.02)


@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize(("before_ms", "behind_ms"), [(3, 5), (8, 0), (0, 8)])
def test_what_the_host_does_behind_the_last_launch_counts_for_each_step(
    steps: int, before_ms: int, behind_ms: int
) -> None:
    found = mined(analysed(stalled(before_ms * 1_000_000, steps, behind_ns=behind_ms * 1_000_000)))
    assert found.summary.per_step is not None and found.summary.per_step.count == steps - 1
    (stall,) = [one for one in found.findings if one.rule == "first_launch_late"]
    assert stall.per_step is not None and stall.per_step.measured_ns == pytest.approx(8_000_000, rel=0.02)


def test_ordinary_dispatch_at_a_step_s_end_and_at_the_next_one_s_start_is_none() -> None:
    found = mined(analysed(stalled(700_000, 3, behind_ns=700_000))).findings
    assert "first_launch_late" not in {one.rule for one in found}


def test_what_lies_between_two_steps_is_taken_off_once() -> None:
    saved = []
    for apart_ns in (0, 3_000_000):
        (stall,) = [
            one
            for one in mined(analysed(stalled(8_000_000, 3, apart_ns=apart_ns))).findings
            if one.rule == "first_launch_late"
        ]
        assert stall.per_step is not None
        saved.append(stall.per_step.step_saving_ns.mid)
    assert saved[1] == pytest.approx(saved[0], rel=0.1)


def test_so_does_a_shorter_one_that_is_much_of_the_step() -> None:
    assert [one.number for one in summary_of(stalled(900_000, 3)).apart] == [0]


@pytest.mark.parametrize(
    ("stall_ns", "seen"), [(150_000, False), (280_000, False), (8_000_000, True)], ids=["short", "near", "seen"]
)
def test_a_first_step_counts_where_its_begin_hides_nothing(stall_ns: int, seen: bool) -> None:
    found = summary_of(stalled(stall_ns, 3, seen=seen))
    assert found.count == 3 and not found.apart


def test_of_many_steps_all_count() -> None:
    found = summary_of(stalled(8_000_000, 4))
    assert found.count == 4 and not found.apart
