"""Kernels that hold rows also sum along them where that saves reading all again; others stay apart."""

from __future__ import annotations

import pytest

from tests.codegen.catalogue import BF16, CATALOGUE, F32
from tracemine.codegen import Graph, GraphBuilder, generate
from tracemine.codegen.options import CodegenOptions
from tracemine.codegen.passes.rows_in_turn import LONGEST_IN_TURN
from tracemine.validate.mutants import SAME, mutants_of

SHORT = CodegenOptions(longest_row=64)
LOOP = "for start in range(part * XBLOCK, rows,"


def _gradient(rows: int = 131, columns: int = 60, *, other: bool = False, in_place: bool = False) -> Graph:
    """The gradient of a row's scale, and a sum over rows. other: of another tensor."""
    b = GraphBuilder("gradient")
    x, y = b.input("x", (rows, columns), BF16), b.input("y", (rows, columns), BF16)
    z = b.input("z", (rows, columns), BF16) if other else y
    total = b.call("aten::sum.dim_IntList", b.call("aten::mul.Tensor", x, y), [1], True)
    made = b.call("aten::mul_.Tensor" if in_place else "aten::mul.Tensor", x, total)
    summed = b.call("aten::sum.dim_IntList", z, [0], False, dtype=F32)
    return b.done(*([] if in_place else [made]), summed)


def _text(graph: Graph, options: CodegenOptions = SHORT) -> str:
    return generate(graph, options).text


def test_what_holds_a_row_sums_along_it() -> None:
    text = _text(CATALOGUE["norm_gradients_in_turn"]())
    first = text[: text.index("_kernel_1(")]
    assert LOOP in first
    assert [first.count(f"tl.load({name}_ptr") for name in ("grad", "x")] == [1, 1]
    assert first.index("tl.load(weight_ptr") < first.index(LOOP) < first.index("tl.load(grad_ptr")
    assert first.count("= tl.where(row_mask, acc_") == 2
    assert LOOP in _text(_gradient())


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (_gradient(other=True), SHORT),
        (_gradient(in_place=True), SHORT),
        (_gradient(rows=60), SHORT),  # so few that they are summed whole
        (_gradient(rows=4096, columns=LONGEST_IN_TURN + 8), CodegenOptions()),
    ],
    ids=["another tensor", "written in place", "few rows", "rows that registers do not hold"],
)
def test_others_stay_apart(graph: Graph, options: CodegenOptions) -> None:
    assert LOOP not in _text(graph, options)


def test_a_loss_and_its_gradient_loop_over_a_row_together() -> None:
    text = _text(CATALOGUE["cross_entropy_trained"]())
    assert text.count("online_1_max = _row_max(online_1)") == 1
    assert "tl.sum(acc_" not in text  # one element of a row is not 0: nothing is summed


def test_a_loss_of_few_elements_is_made_beside_what_its_gradient_waits_for() -> None:
    assert _text(CATALOGUE["cross_entropy_trained"](4, 150)).count("_row_max(online_1)") == 2


def test_a_wrong_loop_over_rows_shows() -> None:
    chain = CATALOGUE["norm_gradients_in_turn"]()
    needs = {m.line: m.needs for m in mutants_of(chain, _text(chain)) if m.name == "rows beyond are added up"}
    of_zero, of_exp = (next(needs[line] for line in needs if acc in line) for acc in ("acc_1 +", "acc_2 +"))
    assert of_zero == f"{SAME}it is 0 beyond the rows for every finite number"
    assert of_exp == "row of norm_gradients_in_turn_kernel_0"
