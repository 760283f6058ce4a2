"""Which types a recording computes in: float64 that comes in by a conversion, scaled gradients without float16."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.pipeline import analysed
from tracemine.rows.library import float64_comes_in
from tracemine.rows.table import Flags

SQUARE = [[64, 64], [64, 64]]


def called(*calls: tuple[str, Any, Any], graph: bool = False) -> Trace:
    """Operators one after another, each with a kernel."""
    trace = Trace()
    for at, (name, shapes, types) in enumerate(calls):
        own = trace.op(name, 100 * at, 90, shapes, types)
        trace.kernel("k", 100 * at + 5_000, 10, launch=(100 * at + 10, 5), op=own)
    if graph:
        launch = trace.call("cudaGraphLaunch", 10_000, 5)
        for at in range(2):
            trace.kernel("k", 20_000 + 100 * at, 10, launch=launch, graph_id=1)
    return trace


@pytest.mark.parametrize(
    ("why", "call", "comes_in"),
    [
        ("a cast up", ("aten::copy_", [*SQUARE, []], ["double", "float", "Scalar"]), True),
        ("a cast down", ("aten::copy_", [*SQUARE, []], ["c10::Half", "double", "Scalar"]), True),
        ("a sum of both", ("aten::add", SQUARE, ["float", "double"]), True),
        ("a network's layer", ("aten::native_layer_norm", SQUARE, ["double", "double"]), True),
        ("a copy", ("aten::copy_", SQUARE, ["double", "double"]), False),
        ("a scale", ("aten::copy_", [[], [], []], ["double", "float", "Scalar"]), False),
        ("integers", ("aten::copy_", SQUARE, ["double", "long int"]), False),
        ("sums of both kinds, apart", ("aten::add", SQUARE, ["float", "float"]), False),
        ("a number beside a tensor", ("aten::mul", [[64, 64], []], ["double", "float"]), False),
        ("damaged", ("aten::copy_", {"x": 1}, ["double", 7]), False),
    ],
)
def test_float64_comes_in_where_many_numbers_are_converted(why: str, call: Any, comes_in: bool) -> None:
    product = ("aten::mm", SQUARE, ["double", "double"])
    assert float64_comes_in(called(product, call).timeline()) is comes_in, why


SCALED: tuple[str, Any, Any] = (
    "aten::_amp_foreach_non_finite_check_and_unscale_",
    [[], [], []],
    ["TensorList", "float", "float"],
)


@pytest.mark.parametrize(
    ("why", "calls", "graph", "needless"),
    [
        ("bfloat16", [("aten::mm", SQUARE, ["c10::BFloat16"] * 2)], False, True),
        ("float32", [("aten::mm", SQUARE, ["float"] * 2)], False, True),
        ("float16", [("aten::mm", SQUARE, ["c10::Half"] * 2)], False, False),
        ("both", [("aten::mm", SQUARE, ["float"] * 2), ("aten::bmm", SQUARE, ["c10::Half"] * 2)], False, False),
        ("float8", [("aten::_scaled_mm", SQUARE, ["c10::Float8_e4m3fn"] * 2)], False, False),
        ("not recorded", [("aten::mm", SQUARE, ["float"] * 2), ("aten::mm", None, None)], False, False),
        ("no product", [("aten::add", SQUARE, ["float"] * 2)], False, False),
        ("a graph was replayed", [("aten::mm", SQUARE, ["float"] * 2)], True, False),
    ],
)
def test_a_scaler_is_needless_where_no_product_is_of_small_range(
    why: str, calls: Any, graph: bool, needless: bool
) -> None:
    trace = called(*calls, SCALED, graph=graph)
    column = analysed(trace.timeline()).rows["activities"].columns["needless_scaling"]
    assert isinstance(column, Flags)
    assert column.values.any() == needless, why
    assert column.values.sum() == needless


@pytest.mark.parametrize(
    ("why", "between", "step", "apart"),
    [
        ("the host asks, and the step is over lists", ["aten::_local_scalar_dense"], "aten::_foreach_mul_", True),
        ("nobody asks", [], "aten::_foreach_mul_", True),
        ("clipped in between", ["aten::_local_scalar_dense", "aten::_foreach_norm"], "aten::_foreach_mul_", False),
        ("a fused step", [], "aten::_fused_adamw_", False),
    ],
)
def test_what_is_unscaled_right_before_an_optimizer_over_lists_could_be_unscaled_in_its_pass(
    why: str, between: list[str], step: str, apart: bool
) -> None:
    lists: tuple[Any, Any] = ([[], []], ["TensorList"] * 2)
    calls = [("aten::mm", SQUARE, ["c10::Half"] * 2), SCALED, *((name, *lists) for name in between)]
    trace = called(*calls)
    begin = 100 * len(calls)
    update = trace.op("Optimizer.step#AdamW.step", begin, 400)
    for at in range(begin, begin + 400, 100):
        own = trace.op(step, at, 90, *lists, parent_row=update)
        trace.kernel("k", at + 5_000, 10, launch=(at + 10, 5), op=own)
    rows = analysed(trace.timeline()).rows["activities"]
    found = rows.columns["unscaled_apart"]
    assert isinstance(found, Flags)
    assert found.values.tolist() == [False, apart, *[False] * (len(between) + 4)], why
