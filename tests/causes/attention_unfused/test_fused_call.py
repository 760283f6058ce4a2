"""Attention by one call: which backend takes it, what it takes, and that it is counted as the operator table counts."""

from __future__ import annotations

from typing import Any

import pytest

from tracemine.causes.attention_unfused.fused_call import Attention, attention_ns, backend_of
from tracemine.devices import find_device
from tracemine.ops.infer import infer
from tracemine.perfmodel import Abstained, Range
from tracemine.perfmodel.library_rates import rates_of

H200, A100 = (rates_of(found) for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB") if (found := find_device(name)))
HOPPER, AMPERE, TURING = (9, 0), (8, 0), (7, 5)


def call(
    batch: int = 8, heads: int = 12, queries: int = 512, keys: int = 512, width: int = 64, **more: Any
) -> Attention:
    return Attention(batch=batch, heads=heads, queries=queries, keys=keys, width=width, **{"dtype": "float16", **more})


@pytest.mark.parametrize(
    ("made", "capability", "torch", "name"),
    [
        (call(), HOPPER, None, "cudnn"),
        (call(), HOPPER, (2, 5), "flash"),
        (call(), AMPERE, None, "flash"),
        (call(), TURING, None, "efficient"),
        (call(dtype="bfloat16"), TURING, None, "math"),
        (call(mask=True), HOPPER, None, "cudnn"),
        (call(mask=True), AMPERE, None, "efficient"),
        (call(width=256), HOPPER, None, "flash"),
        (call(width=256, mask=True), HOPPER, None, "efficient"),
        (call(width=512), HOPPER, None, "efficient"),
        (call(width=60), HOPPER, None, "flash"),
        (call(value_width=32), AMPERE, None, "efficient"),
        (call(dtype="float32"), HOPPER, None, "efficient"),
        (call(dtype="float64"), HOPPER, None, "math"),
    ],
)
def test_a_backend_is_the_first_that_refuses_nothing(
    made: Attention, capability: tuple[int, int], torch: tuple[int, int] | None, name: str
) -> None:
    assert backend_of(made, capability, torch)[0] == name


def test_what_is_passed_over_says_why() -> None:
    assert backend_of(call(dtype="float32"), HOPPER)[1] == (
        "cudnn: it takes float16 and bfloat16 alone",
        "flash: it takes float16 and bfloat16 alone",
    )
    assert backend_of(call(), HOPPER)[1] == ()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [128, 384])
def test_flops_are_those_of_the_operator_table(causal: bool, keys: int) -> None:
    shapes = [[8, 12, 128, 64], [8, 12, keys, 64], [8, 12, keys, 64]]
    strides = [[12 * s[2] * 64, s[2] * 64, 64, 1] for s in shapes]
    found = infer(
        "aten::_scaled_dot_product_flash_attention",
        [*shapes, [], [], [], []],
        ["c10::Half"] * 3 + ["Scalar", "Scalar", "Scalar", ""],
        [*strides, [], [], [], []],
        ["", "", "", "0.", str(causal), "False", ""],
    )
    assert call(queries=128, keys=keys, causal=causal).flops == found.flops


# Medians of recorded calls, all kernels of one operator together: what each model's attention took.
_RECORDED = [
    (call(causal=True), 18_973),
    (call(causal=True, dropout=True, dtype="bfloat16"), 38_700),
    (call(16, 12, 384, 384), 25_200),
    (call(8, 16, 512, 512, 128, causal=True, dtype="bfloat16"), 32_200),
    (call(16, 12, 197, 197, dtype="bfloat16"), 14_800),
    (call(16, 12, 197, 197, dtype="bfloat16", mask=True), 36_100),
    (call(8, 16, 512, 512, mask=True), 45_100),
    (call(128, 3, 49, 49, 32, mask=True), 24_000),
    (call(4, 16, 1, 257), 5_400),
    (call(8, 2, 4096, 256, 32), 16_400),
    (call(8, 12, 384, 384, dtype="float32"), 177_600),
    (call(8, 12, 512, 512, causal=True, dtype="bfloat16", backward=True, dropout=True), 69_000),
    (call(16, 12, 197, 197, dtype="bfloat16", backward=True), 43_200),
]


@pytest.mark.parametrize(("made", "measured_ns"), _RECORDED)
def test_the_interval_holds_what_was_recorded_on_an_h200(made: Attention, measured_ns: int) -> None:
    found = attention_ns(made, H200, HOPPER)
    assert isinstance(found, Range)
    assert found.low <= measured_ns <= found.high
    assert found.high < 4 * found.low or made.mask or made.dropout


def test_a_short_row_takes_as_long_as_a_whole_tile() -> None:
    short, whole = (attention_ns(call(512, 16, size, size), H200, HOPPER) for size in (70, 128))
    assert isinstance(short, Range)
    assert isinstance(whole, Range)
    assert short.mid == pytest.approx(whole.mid, rel=0.15)


def test_a_mask_with_unaligned_rows_costs_more() -> None:
    aligned, not_aligned = (attention_ns(call(keys=size, mask=True), H200, HOPPER) for size in (512, 508))
    assert isinstance(aligned, Range)
    assert isinstance(not_aligned, Range)
    assert not_aligned.mid > 1.5 * aligned.mid


def test_another_gpu_is_slower_and_less_sure() -> None:
    own, other = attention_ns(call(), H200, HOPPER), attention_ns(call(), A100, AMPERE)
    assert isinstance(own, Range)
    assert isinstance(other, Range)
    assert other.mid > own.mid
    assert other.high / other.low > own.high / own.low


def test_nothing_is_said_of_the_math_backend() -> None:
    assert attention_ns(call(dtype="float64"), H200, HOPPER) == Abstained("no_fused_attention")


def test_scores_are_what_goes_away() -> None:
    assert call().score_bytes == 8 * 12 * 512 * 512 * 2
    assert call(dtype="float32").score_bytes == 2 * call().score_bytes


def test_shared_keys_are_read_once() -> None:
    assert call(key_heads=3).nbytes < call().nbytes
    assert call(key_heads=12).nbytes == call().nbytes
