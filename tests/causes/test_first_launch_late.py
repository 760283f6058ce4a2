"""What the host is at before a step's first launch: whose it is, where, and what goes of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.findings.record import Finding, Range
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

MS = 1_000_000
H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
WORK, LAUNCH = "train.py(12): prepare", "train.py(30): step"


def started(
    at: str, *, work: int = 5 * MS, rest: int = 4 * MS, parts: int = 20, stacks: bool = True, ahead: bool = False
) -> Trace:
    """Five steps that begin with work of the host of a kind, then launch a row of kernels, back to back.

    parts: operators that the work is of. ahead: a step begins while the device is still at the one before.
    """
    trace, long = Trace(devices=(H200,)), work + rest
    loop = trace.frame("train.py(50): main") if stacks else None
    work_at, launch_at = (trace.frame(name, loop) if stacks else None for name in (WORK, LAUNCH))
    for number in range(5):
        begin = MS + number * long
        step = trace.step(begin - (2 * MS if ahead else 0), long, number)
        mark = None
        if at == "buffers":
            mark = trace.op("DistributedDataParallel.forward", begin, work + 60_000, kind="annotation")
        for part in range(parts) if at in ("operators", "buffers") else ():
            name = "aten::div" if at == "operators" else "aten::flatten_dense_tensors"
            began = begin + part * work // parts + 1_000
            trace.op(name, began, work // parts - 2_000, stack_row=work_at, parent_row=mark)
        if at == "loader":
            trace.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, work - 10_000)
        if at == "wait":
            trace.call("cudaDeviceSynchronize", begin - 500_000, work + 400_000)
        for of in range(20):
            start = begin + work + of * rest // 20
            op = trace.op("aten::mm", begin + work + 2_000 * of, 1_500, stack_row=launch_at)
            call = trace.call("cudaLaunchKernel", begin + work + 2_000 * of + 500, 500, op_row=op, stack_row=launch_at)
            trace.kernel("gemm", start + 5_000, rest // 20 - 4_000, op=op, launch_row=call, step_row=step)
    return trace


def found_in(trace: Trace) -> list[Finding]:
    return [one for one in mined(analysed(trace.timeline())).findings if one.rule == "first_launch_late"]


@pytest.mark.parametrize(
    ("at", "advice", "line"),
    [
        ("operators", "compute on the device", "prepare"),
        ("python", "num_workers=8", "step"),
        ("buffers", "broadcast_buffers=False", "prepare"),
    ],
)
def test_what_the_host_is_at_decides_the_advice(at: str, advice: str, line: str) -> None:
    (found,) = found_in(started(at))
    assert advice in found.fix
    assert found.source[0].function == line
    assert found.per_step is not None and found.per_step.measured_ns > 0.7 * 5 * MS


def saved_ns(trace: Trace) -> Range:
    (found,) = found_in(trace)
    assert found.per_step is not None
    return found.per_step.step_saving_ns


def test_a_thread_hides_no_more_than_the_rest_of_the_step_lasts() -> None:
    short, long = (saved_ns(started("operators", rest=rest, parts=600, stacks=False)) for rest in (MS // 2, 9 * MS))
    assert short.mid <= MS // 2 < MS < long.mid
    assert short.high > MS  # the device could do it


def test_the_device_does_a_few_operators_in_no_time() -> None:
    few, many = (saved_ns(started("operators", rest=MS // 2, parts=parts, stacks=False)) for parts in (20, 80))
    assert 0.4 * MS < many.mid < few.mid


def test_equal_operators_of_one_function_are_one_on_the_device() -> None:
    apart, at_once = (saved_ns(started("operators", rest=MS // 2, parts=600, stacks=each)) for each in (False, True))
    assert apart.mid < 0.5 * at_once.mid
    few = saved_ns(started("operators", rest=MS // 2))
    assert at_once.mid == few.mid
    assert at_once.low < 0.5 * few.low  # which holds where each needs the one before


def test_a_step_that_begins_while_the_device_is_busy_has_one_too() -> None:
    (found,) = found_in(started("python", ahead=True))
    assert found.occurrences == 4


@pytest.mark.parametrize(
    "given",
    [{"at": "loader"}, {"at": "wait"}, {"at": "python", "work": 700_000}],
    ids=["a loader's", "a wait's", "shorter than a millisecond"],
)
def test_what_is_another_rule_s_or_ordinary_is_none(given: dict[str, Any]) -> None:
    assert found_in(started(**given)) == []
