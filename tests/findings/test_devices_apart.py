"""Several devices: a line each, and what is unequal among them said first."""

from __future__ import annotations

from io import StringIO

import pytest

from tests.timelines import Trace
from tracemine import pipeline
from tracemine.documents.step_words import unequal_text
from tracemine.findings.record import DeviceTime, Scan
from tracemine.report import Drawing, render
from tracemine.timeline import RecordedDevice

GEMM = "sm90_xmma_gemm_bf16"


def _scanned(busy_us: tuple[int, ...], *, marked: bool = True, steps: int = 3) -> Scan:
    """Steps of a millisecond, in which each device runs ten products that take so long together."""
    trace = Trace(
        devices=tuple(RecordedDevice(ordinal=at, name="NVIDIA H200", sm_count=132) for at in range(len(busy_us)))
    )
    for number in range(steps):
        begin = 1_000_000 * (number + 1)
        step = trace.step(begin, 1_000_000) if marked else None
        for device, busy in enumerate(busy_us):
            for at in range(10):
                start = begin + 1_000 + at * 100_000
                launch = (start - 900 + device * 100, 100)
                trace.kernel(GEMM, start, busy * 100, launch=launch, device=device, step_row=step)
    return pipeline.mined(pipeline.analysed(trace.timeline()))


def _drawn(scan: Scan, name: str) -> str:
    out = StringIO()
    render(name, scan, out, Drawing(width=160))
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize(
    ("busy_us", "lines", "first"),
    [
        (
            (800, 200),
            [
                "device 0: 800 µs of GPU work a step, idle 20% as recorded",
                "device 1: 200 µs of GPU work a step, idle 80%",
            ],
            "the GPUs are not equally busy: as recorded device 0 idles 20%, device 1 80%",
        ),
        (
            (300, 300, 900),
            ["device 0: 300 µs of GPU work a step, idle 70%", "device 2: 900 µs of GPU work a step, idle 10%"],
            "the GPUs are not equally busy: as recorded device 2 idles 10%, device 0 70%",
        ),
    ],
)
def test_each_of_several_devices_has_its_line_and_the_first_line_says_what_is_unequal(
    busy_us: tuple[int, ...], lines: list[str], first: str
) -> None:
    scan = _scanned(busy_us)
    assert [one.busy_ns for one in scan.summary.devices] == [each * 1000 for each in busy_us]
    assert unequal_text(scan.summary.devices) == first
    for name in ("text", "markdown", "html"):
        for text in (*lines, first):
            assert text.lower() in _drawn(scan, name).lower()  # a sentence may begin with it


def test_devices_that_are_equally_busy_have_a_line_each_and_no_more() -> None:
    scan = _scanned((500, 600))
    assert unequal_text(scan.summary.devices) == ""
    assert "device 1: 600 µs of GPU work a step, idle 40% as recorded" in _drawn(scan, "text")


def test_one_device_has_no_line_of_its_own() -> None:
    scan = _scanned((300,))
    assert scan.summary.devices == ()
    assert "device 0" not in _drawn(scan, "text")


def test_where_no_step_is_known_it_is_the_whole_that_counts() -> None:
    scan = _scanned((800, 200), marked=False, steps=1)
    assert scan.trace.steps == 0
    assert scan.summary.devices[1] == DeviceTime(ordinal=1, busy_ns=200_000, idle_share=0.7959)
    assert "device 1: 200 µs of GPU work in all, idle 80% as recorded" in _drawn(scan, "text")
