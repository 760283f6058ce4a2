"""Attention spelled out as the fused call that takes its place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.findings.build import kernel, timeline_of
from tracemine.causes.attention_unfused.eager import EagerAttention, eager_attention, fused_attention
from tracemine.causes.attention_unfused.fused_call import Attention
from tracemine.devices import find_device
from tracemine.findings.lists import Lists
from tracemine.perfmodel import Abstained, Estimate, rates_of

HEADS, QUERIES, KEYS, WIDTH = 96, 512, 384, 64
SCORES = (HEADS, QUERIES, KEYS)
WHOLE = (HEADS, QUERIES, WIDTH)
BMM = "aten::bmm"


def step(op: str, *shapes: tuple[int, ...], dtype: str = "c10::Half") -> dict[str, Any]:
    return {"op": op, "shapes": shapes, "dtypes": [dtype] * len(shapes)}


PRODUCT = step(BMM, (HEADS, QUERIES, WIDTH), (HEADS, WIDTH, KEYS))
SOFTMAX = step("aten::_softmax", SCORES)
VALUES = step(BMM, SCORES, (HEADS, KEYS, WIDTH))


def found(*steps: dict[str, Any]) -> EagerAttention | None:
    timeline = timeline_of([kernel(n * 20_000, 10_000, **each) for n, each in enumerate(steps)])
    return eager_attention(Lists(timeline), timeline.activities.column("op_row").to_pylist())


def test_the_products_on_both_sides_of_the_softmax_tell_the_sizes() -> None:
    told = found(PRODUCT, step("aten::mul", SCORES), SOFTMAX, VALUES)
    assert told == EagerAttention(
        call=Attention(
            batch=1, heads=HEADS, queries=QUERIES, keys=KEYS, width=WIDTH, value_width=WIDTH, dtype="float16"
        ),
        trained=False,
        other_scores=False,
        by_condition=False,
    )


def test_turned_probabilities_are_the_second_factor() -> None:
    narrow = step(BMM, (HEADS, 32, KEYS), (HEADS, KEYS, QUERIES))
    told = found(PRODUCT, SOFTMAX, step("aten::copy_", (HEADS, KEYS, QUERIES)), narrow)
    assert told is not None
    assert (told.call.keys, told.call.width, told.call.value_width) == (KEYS, WIDTH, 32)
    assert found(PRODUCT, SOFTMAX, step(BMM, (HEADS, 32, QUERIES), (HEADS, QUERIES, KEYS))) is None


def of_float32(*casts: str) -> EagerAttention | None:
    """Return attention in float32 of three operands, the last of them cast up behind the softmax."""
    copies = [step("aten::copy_", WHOLE, WHOLE) | {"dtypes": ["float", each]} for each in casts]
    wide = [each | {"dtypes": ["float"] * len(each["shapes"])} for each in (PRODUCT, SOFTMAX, VALUES)]
    return found(*copies[:-1], *wide[:2], *copies[-1:], wide[2])


def test_operands_that_were_cast_up_are_given_as_they_were() -> None:
    half = "c10::BFloat16"
    for casts, dtype in (
        ([half, half, half], "bfloat16"),
        ([half, half], "float32"),  # one was in float32 before
        ([half, "c10::Half", half], "float32"),
        (["float", "float", "float"], "float32"),
    ):
        told = of_float32(*casts)
        assert told is not None
        assert (told.call.dtype, told.cast_up) == (dtype, dtype != "float32")


@pytest.mark.parametrize(
    ("between", "mask", "by_condition", "other"),
    [
        ([step("aten::add", SCORES, SCORES)], True, False, False),
        ([step("aten::masked_fill", SCORES, SCORES)], True, True, False),
        ([step("aten::where", SCORES, SCORES)], True, True, False),
        ([step("aten::tanh", SCORES)], False, False, True),
        ([step("aten::mul", SCORES)], False, False, False),
    ],
)
def test_what_lies_between_product_and_softmax_is_a_mask_or_another_score_function(
    between: list[dict[str, Any]], mask: bool, by_condition: bool, other: bool
) -> None:
    told = found(PRODUCT, *between, SOFTMAX, VALUES)
    assert told is not None
    assert (told.call.mask, told.by_condition, told.other_scores) == (mask, by_condition, other)
    assert not told.call.dropout


def test_dropout_lies_behind_the_softmax_and_a_sum_with_a_product_adds_a_bias() -> None:
    added = step("aten::baddbmm", SCORES, (HEADS, QUERIES, WIDTH), (HEADS, WIDTH, KEYS))
    told = found(added, SOFTMAX, step("aten::native_dropout", SCORES), VALUES)
    assert told is not None
    assert (told.call.mask, told.call.dropout, told.call.keys) == (True, True, KEYS)


def test_a_product_in_front_that_is_no_attention_s_is_not_taken_for_the_scores() -> None:
    other = step(BMM, (4, 8, 16), (4, 16, 32))
    told = found(other, PRODUCT, SOFTMAX, VALUES)
    assert told is not None
    assert told.call.queries == QUERIES


@pytest.mark.parametrize(
    "steps",
    [
        [PRODUCT, VALUES],
        [PRODUCT, SOFTMAX],
        [SOFTMAX, VALUES],
        [PRODUCT, SOFTMAX, step(BMM, (HEADS, QUERIES, KEYS + 1), (HEADS, KEYS + 1, WIDTH))],
        [PRODUCT, SOFTMAX, step(BMM, (HEADS, QUERIES), (HEADS, KEYS))],
        [step(BMM), SOFTMAX, VALUES],
    ],
)
def test_where_sizes_do_not_fit_nothing_is_said(steps: list[dict[str, Any]]) -> None:
    assert found(*steps) is None


def priced(
    told: EagerAttention, capability: str | None = "9.0", *, gpu: str = "NVIDIA H200", amd: bool = False
) -> Estimate | Abstained:
    device = find_device(gpu)
    assert device is not None
    return fused_attention(told, rates_of(device), capability, None, 12, amd=amd)


def test_training_is_priced_with_its_backward_pass_and_another_score_function_with_a_wider_interval() -> None:
    told = found(PRODUCT, SOFTMAX, VALUES)
    trained = found(PRODUCT, SOFTMAX, VALUES, step("aten::_softmax_backward_data", SCORES, SCORES))
    capped = found(PRODUCT, step("aten::tanh", SCORES), SOFTMAX, VALUES)
    assert told is not None
    assert trained is not None
    assert capped is not None
    forward, both, flex = priced(told), priced(trained), priced(capped)
    assert isinstance(forward, Estimate)
    assert isinstance(both, Estimate)
    assert isinstance(flex, Estimate)
    assert both.after_ns.mid > 2 * forward.after_ns.mid
    assert (forward.after_ns.low, forward.intermediate_bytes) == (flex.after_ns.low, 12)
    assert flex.after_ns.high == pytest.approx(2 * forward.after_ns.high, abs=2)
    assert "flex_attention" in flex.assumptions[0]


def test_nothing_is_claimed_where_no_fused_kernel_takes_it_or_the_chip_is_not_known() -> None:
    wide = step(BMM, (HEADS, QUERIES, WIDTH), (HEADS, WIDTH, KEYS), dtype="double")
    told = found(wide, SOFTMAX, VALUES)
    half = found(PRODUCT, SOFTMAX, VALUES)
    assert told is not None
    assert half is not None
    assert priced(told) == Abstained("no_fused_attention")
    assert priced(half, None) == Abstained("device_unknown")
    assert priced(half, "new") == Abstained("device_unknown")


def test_of_an_amd_gpu_no_backend_is_named_and_the_price_says_that_its_kernels_are_assumed() -> None:
    told = found(PRODUCT, SOFTMAX, VALUES)
    assert told is not None
    ours, theirs = priced(told), priced(told, "9.4", gpu="AMD Instinct MI300X", amd=True)
    assert isinstance(ours, Estimate)
    assert isinstance(theirs, Estimate)
    assert ours.assumptions == ("the cudnn backend takes it",)
    assert theirs.assumptions == (
        "its kernels are taken to do as well as NVIDIA's, of which alone some were measured (assumed)",
    )
    assert theirs.after_ns.high > 4 * theirs.after_ns.low
    capped = found(PRODUCT, step("aten::tanh", SCORES), SOFTMAX, VALUES)
    assert capped is not None
    flex = priced(capped, "9.4", gpu="AMD Instinct MI300X", amd=True)
    assert isinstance(flex, Estimate)
    assert ["NVIDIA" in flex.assumptions[0], "flex_attention" in flex.assumptions[1]] == [True, True]
