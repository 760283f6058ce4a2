"""What recording stretches: dispatch and launches, and not what an operator does without anything recorded inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.findings.build import H200
from tests.timelines import Trace
from tracemine.findings.host_spans import loading, within_operators
from tracemine.findings.record import Scan
from tracemine.pipeline import analysed, mined
from tracemine.rows.arrow import rows_of
from tracemine.rows.host import HostCalls, threads

MS = 1_000_000
LONG = 20 * MS

Step = Callable[[Trace, int], object]


def planned(trace: Trace, begin: int, name: str = "aten::_cudnn_attention_forward") -> dict[str, object]:
    """An operator that is in its library for `LONG` before it launches."""
    return trace.op(name, begin, LONG)


def in_small_operators(trace: Trace, begin: int) -> dict[str, object]:
    """The same time in operators that call others all along."""
    outer = trace.op("aten::linalg_solve", begin, LONG)
    for at in range(begin, begin + LONG, MS // 2):
        trace.op("aten::select", at, MS // 4, parent_row=outer)
    return outer


def under_a_mark(trace: Trace, begin: int) -> dict[str, object]:
    """The same time in code of a model, which an annotation encloses."""
    mark = planned(trace, begin, "my_model.plan")
    mark["kind"] = "annotation"
    return mark


def waiting_for_the_queue(trace: Trace, begin: int) -> dict[str, object]:
    """The same time in a launch call."""
    outer = planned(trace, begin)
    trace.call("cuLaunchKernel", begin, LONG - 1000, op_row=outer)
    return outer


def in_a_loader(trace: Trace, begin: int) -> dict[str, object]:
    trace.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin - 1000, LONG + 2000)
    return planned(trace, begin, "aten::stack")


def ending_with_what_it_calls(trace: Trace, begin: int) -> dict[str, object]:
    """An operator whose inner operator and launch call end in the same nanosecond as it does."""
    outer = trace.op("aten::scaled_dot_product_attention", begin, LONG)
    inner = trace.op("aten::_cudnn_attention_forward", begin, LONG, parent_row=outer)
    trace.call("cuLaunchKernel", begin + LONG - 1000, 1000, op_row=inner)
    return outer


def behind_another(trace: Trace, begin: int) -> dict[str, object]:
    """An operator that begins in the nanosecond in which another one ends, within what calls both."""
    outer = trace.op("aten::scaled_dot_product_attention", begin - 500, LONG + 500)
    trace.op("aten::empty", begin - 500, 500, parent_row=outer)
    return trace.op("aten::_cudnn_attention_forward", begin, LONG, parent_row=outer)


def of_another_thread(trace: Trace, begin: int) -> dict[str, object]:
    """An operator of a thread that launches nothing."""
    return trace.op("aten::stack", begin, LONG, tid=2)


def launched(trace: Trace, begin: int) -> None:
    """A kernel of 1 ms."""
    op = trace.op("aten::mm", begin, 20_000)
    call = trace.call("cudaLaunchKernel", begin + 2000, 5000, op_row=op)
    trace.kernel("gemm", begin + 10_000, MS, op=op, launch_row=call)


def recorded(step: Step) -> Trace:
    """Four steps: a kernel, then for `LONG` the host does something else, then another kernel."""
    trace = Trace(devices=(H200,))
    for number in range(4):
        begin = number * (LONG + 3 * MS)
        trace.step(begin, LONG + 3 * MS, number)
        launched(trace, begin + 1000)
        step(trace, begin + 30_000)
        launched(trace, begin + LONG + 40_000)
    return trace


def scanned(step: Step) -> Scan:
    return mined(analysed(recorded(step).timeline()))


def spans_ns(step: Step) -> int:
    timeline = recorded(step).timeline()
    of_calls, of_ops = threads(timeline)
    calls = HostCalls.of(timeline, rows_of(timeline.activities["launch_row"]), of_calls)
    found = within_operators(timeline, 0, calls, of_ops, loading(timeline, 0))
    return int(found.until(np.array([1 << 60]))[0])


@pytest.mark.parametrize(
    ("step", "each_ns"),
    [
        (planned, LONG),
        (in_small_operators, 0),
        (under_a_mark, 0),
        (waiting_for_the_queue, 0),
        (in_a_loader, 0),  # that is counted as loading
        (ending_with_what_it_calls, LONG - 1000),
        (behind_another, LONG),
        (of_another_thread, 0),
    ],
)
def test_only_what_an_operator_of_torch_does_by_itself_is_found(step: Step, each_ns: int) -> None:
    assert spans_ns(step) == 4 * each_ns


def test_an_operator_that_plans_takes_as_long_unprofiled_and_what_calls_others_does_not() -> None:
    plans, calls = (scanned(step).summary.per_step for step in (planned, in_small_operators))
    assert plans is not None and calls is not None
    assert plans.unprofiled_ns is not None and calls.unprofiled_ns is not None
    assert plans.unprofiled_ns.low > 0.9 * LONG
    assert calls.unprofiled_ns.mid < 0.7 * LONG


def test_the_whole_stall_is_what_closing_it_saves() -> None:
    (stall,) = (finding for finding in scanned(planned).findings if finding.rule == "host_stall")
    assert stall.step_saving_ns is not None
    assert stall.step_saving_ns.mid > 0.9 * 4 * (LONG - MS)  # the kernel before runs meanwhile


def in_no_operator(trace: Trace, begin: int) -> None:
    """The same time in one call of Python: a file, a lock, a sleep."""


@pytest.mark.parametrize("step", [in_no_operator, under_a_mark])
def test_a_stretch_of_python_takes_as_long_unprofiled_as_it_was_recorded(step: Step) -> None:
    found = scanned(step)
    steps = found.summary.per_step
    assert steps is not None and steps.unprofiled_ns is not None
    assert steps.unprofiled_ns.low > 0.85 * (LONG + 3 * MS)
    assert found.findings[0].step_saving_ns.mid > 0.9 * 4 * (LONG - MS)


def slept(*, dispatched: bool) -> Scan:
    """Six steps of 10 ms: in three the host is elsewhere, then it launches seven of kernels, and waits for them.

    dispatched: it runs small operators meanwhile.
    """
    trace = Trace(devices=(H200,))
    for number in range(6):
        begin = 10 * MS * number
        step = trace.step(begin, 10 * MS, number)
        for at in range(begin, begin + 3 * MS - 70_000, 70_000) if dispatched else ():
            trace.op("aten::select", at, 60_000)
        for at in range(50):
            launched_ns = begin + 3 * MS + 20_000 * at
            op = trace.op("aten::mm", launched_ns, 15_000)
            call = trace.call("cudaLaunchKernel", launched_ns + 5000, 5000, op_row=op)
            start = begin + 3 * MS + 15_000 + 141_000 * at
            trace.kernel("gemm", start, 141_000, op=op, launch_row=call, step_row=step)
        trace.call("cudaEventSynchronize", begin + 4 * MS + 10_000, 6 * MS - 30_000)
    return mined(analysed(trace.timeline()))


def test_a_sleep_of_three_tenths_of_a_step_is_no_dispatch() -> None:
    sleeps, works = slept(dispatched=False), slept(dispatched=True)
    stall = sleeps.findings[0]
    assert stall.rule == "first_launch_late" and stall.per_step is not None and stall.reported
    assert stall.per_step.step_saving_ns.mid > 0.8 * 5 / 6 * 3 * MS  # what was before the first step nobody saw
    bounds = sleeps.summary.bound, works.summary.bound
    assert bounds[0] is not None and bounds[0].unprofiled_idle_share is not None
    assert bounds[1] is not None and bounds[1].unprofiled_idle_share is not None
    assert bounds[0].unprofiled_idle_share.mid > 0.25 > bounds[1].unprofiled_idle_share.mid
