"""A host whose launch calls take long is slowed by more than recording: less is claimed of its gaps."""

from __future__ import annotations

import pytest

from tests.timelines import Trace
from tracemine.findings.steps import slowdown_of
from tracemine.perfmodel import SLOWDOWNS
from tracemine.timeline import Timeline

USUAL = SLOWDOWNS["operators"]


def _launches(each_ns: int, count: int = 30, name: str = "cudaLaunchKernel") -> Timeline:
    trace = Trace()
    for at in range(count):
        begin = at * 100_000
        op = trace.op("aten::exp", begin, 50_000, shapes=[[64]], dtypes=["float"])
        trace.kernel("k", begin + 60_000, 2_000, op=op, launch=(begin + 10, each_ns), launch_name=name)
    return trace.timeline()


def test_usual_launch_calls_leave_the_usual_slowdown() -> None:
    assert slowdown_of(_launches(USUAL.launch_ns)) == USUAL
    assert slowdown_of(_launches(int(1.4 * USUAL.launch_ns))) == USUAL


@pytest.mark.parametrize("name", ["cudaLaunchKernel", "cudaLaunchKernelExC_v11060"])
def test_launch_calls_of_twice_the_time_make_the_host_twice_as_slow_and_leave_the_high_end(name: str) -> None:
    found = slowdown_of(_launches(2 * USUAL.launch_ns, name=name))
    assert found is not None
    assert (found.least, found.usual, found.most) == (USUAL.least, 2 * USUAL.usual, 2 * USUAL.most)
    assert "launch calls take 10.6 µs (usually 5.3)" in found.what


def test_few_launch_calls_and_calls_of_other_drivers_say_nothing() -> None:
    assert slowdown_of(_launches(9 * USUAL.launch_ns, count=19)) == USUAL
    assert slowdown_of(_launches(9 * USUAL.launch_ns, name="hipLaunchKernel")) == USUAL


def test_nothing_is_said_to_be_recorded_that_was_not() -> None:
    trace = Trace()
    trace.kernel("k", 100, 5, op=trace.op("aten::exp", 10, 20))  # without shapes
    found = slowdown_of(trace.timeline())
    assert found is not None
    assert found.what == "recording operators"
