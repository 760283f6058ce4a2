"""What libraries reach of the data sheet, where their usual rates on a GPU were not measured."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from tests.timelines import Trace
from tracemine import pipeline
from tracemine.findings.record import Scan
from tracemine.report import Drawing, render
from tracemine.timeline import RecordedDevice

GPUS = {
    "mi300x": RecordedDevice(ordinal=0, name="AMD Instinct MI300X", sm_count=304),
    "h200": RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132),
}
PRODUCT = ("aten::mm", [[8192, 8192], [8192, 8192]], ["c10::BFloat16"] * 2, ["", ""])
HEADS = [4, 32, 8192, 128]
ATTENTION = (
    "aten::_scaled_dot_product_flash_attention",
    [HEADS, HEADS, HEADS, [], [], [], []],
    [*["c10::BFloat16"] * 3, "Scalar", "Scalar", "Scalar", "Scalar"],
    ["", "", "", "0.", "False", "False", ""],
)
ADD = ("aten::add", [[64, 64], [64, 64], []], ["float", "float", "Scalar"], ["", "", "1"])
NAMES = {"aten::mm": "Cijk_Alik_Bljk_BBS", "aten::add": "vectorized_elementwise_kernel"}


def _scanned(gpu: str, *calls: tuple[Any, int]) -> Scan:
    trace = Trace(devices=(GPUS[gpu],))
    at = 1_000_000
    for number, ((op, shapes, dtypes, concrete), us) in enumerate(calls):
        launch = (1_000 + number * 9_000, 4_000)
        name = NAMES.get(op, "attn_fwd")
        trace.kernel(name, at, us * 1000, launch=launch, op=op, shapes=shapes, dtypes=dtypes, concrete=concrete)
        at += us * 1000
    return pipeline.mined(pipeline.analysed(trace.timeline()))


def _said(scan: Scan) -> list[str]:
    return [text for text in scan.warnings if "data sheet's" in text]


@pytest.mark.parametrize(
    ("us", "says"),
    [
        (
            (2_000, 18_000),
            "attention in bfloat16 (90.0% of GPU time) at 244 TFLOP/s, 18.7% of the data sheet's 1,307 TFLOP/s; "
            "products in bfloat16 (10.0% of GPU time) at 550 TFLOP/s, 42.0% of the data sheet's 1,307 TFLOP/s.",
        ),
        (
            (7_000, 9_000),
            "attention in bfloat16 (56.2% of GPU time) at 489 TFLOP/s, 37.4% of the data sheet's 1,307 TFLOP/s; "
            "products in bfloat16 (43.8% of GPU time) at 157 TFLOP/s, 12.0% of the data sheet's 1,307 TFLOP/s.",
        ),
    ],
)
def test_where_no_rate_was_measured_the_share_of_the_peak_is_said(us: tuple[int, int], says: str) -> None:
    scan = _scanned("mi300x", (PRODUCT, us[0]), (ATTENTION, us[1]))
    assert _said(scan) == [
        "Slow library calls may be missed: this GPU's usual rates were not measured (`tracemine calibrate` does). "
        f"Here: {says}"
    ]


def test_where_rates_were_measured_nothing_is_said_of_the_peak() -> None:
    assert _said(_scanned("h200", (PRODUCT, 2_000), (ATTENTION, 18_000))) == []


def test_calls_that_take_little_of_the_gpus_time_are_not_worth_a_word() -> None:
    (text,) = _said(_scanned("mi300x", (PRODUCT, 400), (ATTENTION, 19_000)))
    assert "attention" in text
    assert "products" not in text
    assert _said(_scanned("mi300x", *[(ADD, 900)] * 3)) == []


def test_what_the_limit_promises_is_named_by_its_parts() -> None:
    out = StringIO()
    render("text", _scanned("mi300x", (PRODUCT, 9_000), (ATTENTION, 18_000)), out, Drawing(width=160))
    limit = next(line for line in out.getvalue().splitlines() if line.startswith("limit"))
    assert "roofline floor of GPU time " in limit
    assert "attention by " in limit
    assert "GEMM/conv by " in limit
