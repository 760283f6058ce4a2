"""Random programs, whole or damaged, from recorded operators to a scan: the books hold, and nothing raises."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.findings.test_step_savings import adds_up
from tests.fusion.test_legality import made
from tests.timelines import Trace
from tracemine.causes import load_rules
from tracemine.findings import Scan
from tracemine.findings.accounting import measure
from tracemine.perfmodel import NOTHING, Range
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.timeline import RecordedDevice, Timeline
from tracemine.units import Threshold

H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
SIZES = ((4096, 4096), (64, 2048), (2048,), (1,), (), (0, 7), (64, 1))
SHARED = {"weight": (2048,)}
# Name, how many tensors it takes, and what is recorded beside them: texts by position.
CALLS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("aten::relu", 1, ()),
    ("aten::exp", 1, ()),
    ("aten::mul", 2, ()),
    ("aten::add", 2, ("1",)),
    ("aten::add_", 2, ("1",)),
    ("aten::copy_", 2, ("False",)),
    ("aten::_softmax", 1, ("-1", "False")),
    ("aten::mean", 1, ("[-1]", "True", "")),
    ("aten::sum", 1, ("[0]", "False", "")),
    ("aten::t", 1, ()),
    ("aten::select", 1, ("0", "1")),
    ("aten::cat", 1, ("0",)),
    ("aten::_foreach_add_", 2, ("1",)),
    ("aten::mm", 2, ()),
    ("aten::cumsum", 1, ("0", "")),
    ("aten::embedding", 2, ("-1", "False", "False")),
    ("aten::native_layer_norm", 3, ("1e-05",)),
    ("my::operator", 2, ()),
    ("AccumulateGrad", 1, ()),
)
HUGE = (1 << 47, 1 << 48, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70)


def program(seed: int) -> Timeline:
    """A timeline of one to forty operators on threads, streams and steps, of which some facts are missing or wrong."""
    pick = random.Random(seed)
    trace = Trace(resolution=1, devices=(H200, RecordedDevice(ordinal=1, name="NVIDIA H200")))
    steps = [trace.step(at * 4_000_000, 4_000_000) for at in range(pick.choice((0, 1, 3)))]
    harm = pick.choice((0.0, 0.05, 0.5))
    around: dict[str, Any] | None = None
    at, busy = 0, [0, 0]
    for _ in range(pick.randint(1, 40)):
        at += pick.choice((0, 100, 1_000, 200_000))
        name, takes, more = pick.choice(CALLS)
        shape = pick.choice(SIZES)
        facts = damaged(pick, recorded(pick, name, takes, shape, more), harm)
        tid = pick.choice((1, 1, 1, 2))
        op = trace.add("ops", kind="op", name=name, start_ns=at, dur_ns=90, pid=1, tid=tid, parent_row=around, **facts)
        around = op if tid == 1 and not pick.randrange(5) else around if pick.randrange(3) else None
        stream = pick.choice((0, 0, 0, 1))
        for _ in range(pick.choice((0, 1, 1, 1, 2))):
            begin = max(at + pick.choice((10, 5_000)), busy[stream])
            busy[stream] = begin + pick.choice((0, 1, 2_000, 40_000, 300_000))
            trace.kernel(
                pick.choice(("void at::native::vectorized_elementwise_kernel<4>(int)", "triton_poi_fused_add_0")),
                begin,
                busy[stream] - begin,
                launch=(at + 5, 5),
                op=pick.choice((op, op, op, None)) if harm else op,
                tid=tid,
                stream=7 + stream,
                device=pick.choice((0, 0, 0, 1)) if harm > 0.1 else 0,
                step_row=next((step for step in steps[::-1] if step["start_ns"] <= begin), None),
            )
    return trace.timeline()


def recorded(pick: random.Random, name: str, takes: int, shape: Any, more: tuple[str, ...]) -> dict[str, Any]:
    if name == "aten::native_layer_norm":
        shapes: list[Any] = [list(shape), [], [2048], [2048]]
        dtypes = ["float", "ScalarList", "float", "float"]
        return {"shapes": [*shapes, []], "dtypes": [*dtypes, "Scalar"], "concrete": ["", "[2048]", "", "", *more]}
    in_list = name in ("aten::cat", "aten::_foreach_add_")
    one = [list(shape)] * pick.choice((1, 3, 40)) if in_list else list(shape)
    kind = "TensorList" if in_list else pick.choice(("float", "c10::BFloat16"))
    return {
        "shapes": [one] * takes + [[]] * len(more),
        "dtypes": [kind] * takes + ["Scalar"] * len(more),
        "concrete": [""] * takes + list(more),
        "strides": None if in_list else [_strides(shape)] * takes + [[]] * len(more),
    }


def _strides(shape: tuple[int, ...]) -> list[int]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * max(size, 1))
    return steps if shape else []


def damaged(pick: random.Random, facts: dict[str, Any], harm: float) -> dict[str, Any]:
    """The columns of an operator, with what `harm` makes of each."""

    columns = {}
    for fact, column in (
        ("shapes", "input_shapes"),
        ("dtypes", "input_dtypes"),
        ("strides", "input_strides"),
        ("concrete", "concrete_inputs"),
    ):
        value = facts.get(fact)
        text = None if value is None else json.dumps(value)
        if pick.random() < harm:
            text = pick.choice(
                (None, text and text[:-2], "", "[]", "{}", "null", "[[[[]]]]", '["a", 3]', "[[-1, 2.5]]")
            )
        elif text is not None and fact in ("shapes", "strides", "concrete") and pick.random() < harm / 2:
            wrong = pick.choice((*HUGE, -1, -4096, 0))
            text = json.dumps(_with(value, wrong))
        columns[column] = text
    return columns


def _with(value: Any, wrong: int) -> Any:
    """A list with each number, or text of one, replaced."""
    if isinstance(value, list):
        return [_with(each, wrong) for each in value]
    return (
        str(wrong)
        if isinstance(value, str) and value.lstrip("-").isdigit()
        else wrong
        if isinstance(value, int)
        else value
    )


def with_recorded_tensors(seed: int) -> Timeline:
    """A program whose execution trace was recorded, with kernels that take some time."""
    return made(seed, 20)[0].timeline()


def scanned(timeline: Timeline, least_ns: int = 0) -> Scan:
    return mined(analysed(timeline), ScanOptions(rules=RULES, threshold=Threshold(ns=least_ns), why_not=True))


RULES = load_rules()


def ordered(saving: Range) -> bool:
    return 0 <= saving.low <= saving.mid <= saving.high


def check_books(timeline: Timeline, scan: Scan) -> None:
    accounts = measure(timeline)
    on_gpu = [f for f in scan.findings if f.gpu_saving_ns != NOTHING]
    claimed = [row for f in on_gpu for once in f.activities for row in once]
    durations = timeline.activities["dur_ns"].to_pylist()
    assert len(claimed) == len(set(claimed))
    assert sum(f.measured_ns for f in on_gpu) == sum(durations[row] for row in claimed) <= scan.summary.gpu_time_ns
    assert scan.summary.gpu_saving_ns == sum((f.gpu_saving_ns for f in scan.findings), NOTHING)
    assert adds_up(scan)
    assert scan.summary.step_saving_ns.high <= accounts.span_ns
    assert len({f.fingerprint for f in scan.findings}) == len(scan.findings)
    for f in scan.findings:
        assert ordered(f.gpu_saving_ns) and f.gpu_saving_ns.high <= f.measured_ns
        assert ordered(f.step_saving_ns)
        assert f.gpu_saving_ns.mid or f.step_saving_ns.mid, "nothing is won"
        assert f.fused_ns is None or 0 <= f.fused_ns.low <= f.fused_ns.mid <= f.fused_ns.high
        assert f.traffic_bytes is None or 0 <= f.traffic_bytes.after <= f.traffic_bytes.before
        assert f.intermediate_bytes is None or f.intermediate_bytes >= 0
        assert f.flops is None or f.flops >= 0


@pytest.mark.parametrize("seed", (*range(40), 78))
def test_the_books_hold_over_random_programs(seed: int) -> None:
    timeline = program(seed)
    check_books(timeline, scanned(timeline))


@pytest.mark.parametrize("seed", range(60))
def test_the_books_hold_over_programs_with_recorded_tensors(seed: int) -> None:
    timeline = with_recorded_tensors(seed)
    check_books(timeline, scanned(timeline))
