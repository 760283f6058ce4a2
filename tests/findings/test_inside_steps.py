"""What a step costs and saves is what lies in steps, however long something else took before."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from tests.report.scans import NORM
from tests.timelines import Trace
from tracemine.findings.accounting import Room, measure
from tracemine.findings.inside import Inside, gaps_inside
from tracemine.findings.ranking import RankScale, ranked
from tracemine.findings.record import Scan
from tracemine.perfmodel import COMPILED_CALL_NS, NOTHING, Range
from tracemine.pipeline import scan
from tracemine.rows import row_sets
from tracemine.rows.spans import Spans

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "kineto"
TRACES = [each for each in sorted(FIXTURES.glob("*.json.gz")) if b"ProfilerStep#" in gzip.decompress(each.read_bytes())]
LONGEST_GAP_US = 1_000


def warm_up(events: list[dict[str, Any]], stall_us: int) -> list[dict[str, Any]]:
    """Two kernels that are done when the first step begins, the host inside an operator for so long between them."""
    begin = min(each["ts"] for each in events if each["name"].startswith("ProfilerStep#"))
    like = next(each for each in events if each.get("cat") == "kernel")
    launch = next(each for each in events if "Launch" in each["name"] and each.get("cat", "").startswith("cuda_"))
    made = []
    for at, ts in enumerate((begin - stall_us - 60, begin - 30)):
        correlation = {"correlation": 10_000_000 + at, "External id": 10_000_000 + at}
        op = {"cat": "cpu_op", "name": "aten::warm", "ts": ts - 20 - (stall_us if at else 0), "args": {**correlation}}
        made += [
            launch | {"ts": ts - 5, "dur": 2, "args": launch["args"] | correlation},
            like | {"ts": ts, "dur": 5, "name": "warm", "args": like["args"] | correlation},
            launch | op | {"dur": ts - op["ts"], "ph": "X"},
        ]
    return made


def behind(trace: Path, stall_us: int | None, folder: Path) -> Scan:
    """The scan of a fixture behind such a warm-up; None: of it alone."""
    content = json.loads(gzip.decompress(trace.read_bytes()))
    if stall_us is not None:
        content["traceEvents"] += warm_up(content["traceEvents"], stall_us)
    file = folder / f"{stall_us}.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return scan(file)


def figures(found: Scan) -> dict[str, Any]:
    """All that is said of a step."""
    assert found.summary.per_step is not None and found.summary.bound is not None
    return {
        "step": found.summary.per_step,
        "parts": found.summary.parts,
        "bound": (found.summary.bound.by, found.summary.bound.cause, found.summary.bound.unprofiled_idle_share),
        "findings": {
            one.fingerprint: one.per_step for one in found.findings if one.per_step and one.per_step.measured_ns
        },
    }


def nearly(value: Any) -> Any:
    """The same but for a nanosecond or two: ends are rounded from times that are added in another order."""
    if isinstance(value, Mapping):
        return {key: nearly(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(nearly(each) for each in value)
    return pytest.approx(value, abs=2) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_a_warm_up_in_front_changes_no_figure_a_step(trace: Path, tmp_path: Path) -> None:
    alone, short, long = (behind(trace, each, tmp_path) for each in (None, 10 * LONGEST_GAP_US, 1_000 * LONGEST_GAP_US))
    assert to_builtins(figures(short)) == nearly(to_builtins(figures(long)))
    step = alone.summary.per_step
    assert step is not None and short.summary.per_step is not None and step.unprofiled_ns is not None
    assert replace(short.summary.per_step, step_saving_ns=step.step_saving_ns) == step
    # In front of the first step the device was idle without anybody seeing it: a call is made there that was hidden.
    most_ns = step.unprofiled_ns.mid // 100 + COMPILED_CALL_NS.mid // step.count
    savings = [{one.fingerprint: one.per_step for one in found.findings} for found in (alone, short)]
    assert savings[0].keys() <= savings[1].keys()
    for mark, before in savings[0].items():
        after = savings[1][mark]
        assert before is not None and after is not None
        assert abs(after.measured_ns - before.measured_ns) <= most_ns
        assert abs(after.gpu_saving_ns.mid - before.gpu_saving_ns.mid) <= most_ns
        assert abs(after.step_saving_ns.mid - before.step_saving_ns.mid) <= most_ns


def stalls(*stalls_ns: int, warm_up_ns: int) -> Trace:
    """Steps of 1 ms, in each the host inside one convolution for so long before its kernel; and so long before all."""
    trace = Trace(resolution=1)
    trace.kernel("conv", 0, 100_000, launch=(-10_000, 5_000), op="aten::cudnn_convolution")
    begin = 100_000 + warm_up_ns
    for stall_ns in stalls_ns:
        step = trace.step(begin, 1_000_000)
        end = begin + 1_000_000
        rows: dict[str, Any] = {"step_row": step, "op": "aten::cudnn_convolution"}
        trace.kernel("conv", begin, 800_000 - stall_ns, launch=(begin - 9_000, 5_000), **rows)
        trace.kernel("conv", end - 200_000, 200_000, launch=(end - 206_000, 5_000), **rows)
        begin = end
    return trace


def test_idle_time_counts_by_the_nanoseconds_in_steps_and_not_by_who_waited() -> None:
    timeline = stalls(300_000, 0, 0, 300_000, warm_up_ns=50_000_000).timeline()
    accounts, gaps = measure(timeline), row_sets(timeline)["gaps"]
    assert accounts.extents is not None
    assert gaps_inside(gaps, accounts.step_of, accounts.extents).tolist() == [0, 300_000, 300_000]


def test_a_gap_across_the_edge_of_a_step_counts_in_part() -> None:
    trace = Trace(resolution=1)
    step = trace.step(1_000, 1_000)
    trace.kernel("k", 0, 100)
    trace.kernel("k", 1_400, 100, step_row=step)  # 400 ns of this gap lie in the step
    trace.kernel("k", 2_900, 100)  # and 500 of this one
    timeline = trace.timeline()
    accounts = measure(timeline)
    assert gaps_inside(row_sets(timeline)["gaps"], accounts.step_of, accounts.extents).tolist() == [400, 500]


def test_a_step_lasts_until_its_work_is_done() -> None:
    trace = Trace(resolution=1)
    step = trace.step(0, 100)  # the host is far ahead
    trace.kernel("k", 50, 100, step_row=step)
    trace.kernel("k", 500, 100, step_row=step)
    timeline = trace.timeline()
    accounts = measure(timeline)
    assert gaps_inside(row_sets(timeline)["gaps"], accounts.step_of, accounts.extents).tolist() == [350]
    assert accounts.judged_ns == 550


def test_without_steps_all_counts() -> None:
    trace = Trace(resolution=1)
    trace.kernel("k", 0, 100)
    trace.kernel("k", 500, 100)
    timeline = trace.timeline()
    assert gaps_inside(row_sets(timeline)["gaps"], measure(timeline).step_of, None).tolist() == [400]


spans = st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 100)), max_size=8)


@given(spans, spans)
def test_what_is_covered_is_what_counting_says(steps: list[tuple[int, int]], gaps: list[tuple[int, int]]) -> None:
    inside = {at for begin, length in steps for at in range(begin, begin + length)}
    begins = np.array(sorted({at for at in inside if at - 1 not in inside}), np.int64)
    ends = np.array(sorted({at + 1 for at in inside if at + 1 not in inside}), np.int64)
    begin, length = np.array(gaps, np.int64).reshape(-1, 2).T
    expected = [sum(at in inside for at in range(each, each + more)) for each, more in gaps]
    assert Spans.of(begins, ends).within(begin, begin + length).tolist() == expected


ns = st.integers(0, 10**9)
ranges = st.tuples(ns, ns, ns).map(lambda each: Range(*sorted(each)))
shares = st.fractions(0, 1)


@given(
    st.lists(st.tuples(st.booleans(), ns, ranges, ranges, shares, shares), max_size=6), ns, ranges, st.integers(1, 9)
)
def test_no_step_saves_more_than_it_has_room_for(
    claims: list[tuple[bool, int, Range, Range, Fraction, Fraction]], busy: int, alone: Range, steps: int
) -> None:
    findings, inside = [], {}
    for at, (on_gpu, measured_ns, gpu, step, measured, saved) in enumerate(claims):
        gpu = gpu.at_most(measured_ns) if on_gpu else NOTHING
        findings.append(
            replace(
                NORM,
                fingerprint=str(at),
                measured_ns=measured_ns,
                fused_ns=NORM.fused_ns if on_gpu else None,
                gpu_saving_ns=gpu,
                step_saving_ns=step,
            )
        )
        inside[str(at)] = Inside(measured, (saved, saved, saved))
    room = Room(alone, busy)
    scale = RankScale(steps=steps, unprofiled_ns=alone.mid, gpu_time_ns=1, room=room)
    found = [one.per_step for one in ranked(findings, scale, inside)]
    gpu = sum((one.gpu_saving_ns for one in found if one), NOTHING)
    step = sum((one.step_saving_ns for one in found if one), NOTHING)
    left = room.most_saved(gpu)
    assert step.low <= left.low and step.mid <= left.mid  # high ends do not add up: each may be all that is there
    assert all(one is not None and one.step_saving_ns.high <= left.high for one in found)
    for one in found:
        assert one is not None and one.gpu_saving_ns.high <= one.measured_ns
        assert one.share_of_unprofiled <= 1
