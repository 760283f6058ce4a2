"""No share of a whole lies above it, in any format; and no cost a step above the step, unless it says of what it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.findings.build import H200
from tests.timelines import Trace
from tracemine.documents.words import cost_text
from tracemine.findings.record import Scan
from tracemine.pipeline import analysed, mined, scan
from tracemine.report import Drawing, render
from tracemine.timeline import Timeline

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TRACES = sorted([*FIXTURES.glob("kineto/*.json.gz"), *FIXTURES.glob("nsys/*.sqlite")])
_PERCENT = re.compile("(?<![\\d.,+−-])(\\d[\\d,]*\\.?\\d*)[ \u00a0]?%")
_TOO_MUCH = "saves 209.1% of the step's GPU time"

scanned = cache(scan)


def shares(text: str) -> list[float]:
    """All that is written as a share; what has a sign is a change."""
    return [float(found.replace(",", "")) for found in _PERCENT.findall(text)]


def of_json(value: Any, name: str = "") -> Iterator[float]:
    """All numbers of fields that are called shares."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from of_json(each, name if name and key in ("low", "mid", "high") else key)
    elif isinstance(value, list):
        for each in value:
            yield from of_json(each, name)
    elif "share" in name and isinstance(value, int | float):
        yield 100 * value


def printed(found: Scan, kind: str) -> str:
    out = StringIO()
    render(kind, found, out, Drawing(width=120))
    return out.getvalue()


def side_by_side(streams: int) -> Timeline:
    """Ten steps of 1 ms in which equal chains of three small kernels run on so many streams at once."""
    trace = Trace(resolution=1, devices=(H200,))
    for number in range(10):
        begin = 1_000_000 * number
        step = trace.step(begin, 1_000_000)
        for at in range(streams * 15):  # one stream's launches after the other's, and all before the first kernel
            stream, turn = divmod(at, 15)
            start, launch = begin + 40_000 + 60_000 * turn, (begin + 500 * at + 100, 200)
            op = ("mul", "sigmoid", "div")[turn % 3]  # of one operator alone it would be a benchmark's loop
            inputs = 1 if op == "sigmoid" else 2
            rows: dict[str, Any] = {
                "op": f"aten::{op}",
                "shapes": [[1 << 16]] * inputs,
                "dtypes": ["float"] * inputs,
                "step_row": step,
            }
            trace.kernel(op, start, 55_000, launch=launch, stream=7 + stream, **rows)
    return trace.timeline()


@pytest.mark.parametrize("kind", ["text", "markdown", "html", "json"])
@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_no_share_is_above_its_whole(trace: Path, kind: str) -> None:
    text = printed(scanned(trace), kind)
    found = [*of_json(json.loads(text))] if kind == "json" else shares(text)
    assert found and max(found) <= 100 and min(found) >= 0


def test_a_planted_share_is_seen() -> None:
    assert shares(_TOO_MUCH) == [209.1]
    assert list(of_json({"a": [{"share_of_unprofiled": 2.0, "x_share": {"low": 0.5}}], "b": 7})) == [200.0, 50.0]
    assert shares("GPU work −511 µs (−43.0%), 1,250% more") == [1250.0]


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_kernels_side_by_side_cost_a_step_no_more_than_it_has(streams: int) -> None:
    found = mined(analysed(side_by_side(streams)))
    step = found.summary.per_step
    assert step is not None and 800_000 < step.gpu_busy_ns <= 1_000_000
    each = [one.per_step for one in found.findings if one.on_gpu and one.per_step is not None]
    assert each and sum(one.measured_ns for one in each) <= step.gpu_busy_ns
    assert 0 < sum(one.gpu_saving_ns.high for one in each) <= step.gpu_busy_ns
    for kind in ("text", "markdown", "html"):
        assert max(shares(printed(found, kind))) <= 100


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.name)
def test_no_cost_is_above_the_step_unless_it_says_of_what_it_is(trace: Path) -> None:
    found = scanned(trace)
    step = found.summary.per_step
    if step is None or step.unprofiled_ns is None:
        pytest.skip("no steps are known")
    for one in found.findings:
        assert one.per_step is not None
        text = cost_text(one, found)
        assert one.per_step.measured_ns <= step.unprofiled_ns.mid or "as recorded" in text or "outside" in text
        assert one.on_gpu or "a step" not in text or "as recorded" in text or step.unprofiled_ns.source == "recorded"
