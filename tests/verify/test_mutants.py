"""A wrong kernel is called the same only where nothing could tell: what is done with the value says so."""

from __future__ import annotations

from tests.verify.catalogue import CATALOGUE
from tracemine.verify import Builder, generate
from tracemine.verify.proof.mutants import SAME, spoiled


def reasons(name: str, kind: str, longest_row: int = 16_384) -> list[str | None]:
    """Of each wrong kernel of a kind, what it needs to differ, or why it does not."""
    chain = CATALOGUE[name]()
    return [w.needs for w in spoiled(chain, generate(chain, longest_row=longest_row).text) if w.name == kind]


def test_operands_swapped_below_a_square_change_nothing() -> None:
    assert reasons("full_mean", "operands swapped") == [f"{SAME}only its square is used"]


def test_operands_swapped_elsewhere_are_a_mistake() -> None:
    b = Builder("gap")
    x, y = b.input("x", (4, 9), "float32"), b.input("y", (4, 9), "float32")
    chain = b.done(b.call("aten::sub.Tensor", x, y))
    found = [w.needs for w in spoiled(chain, generate(chain).text) if w.name == "operands swapped"]
    assert found
    assert not any((needs or "").startswith(SAME) for needs in found)


def test_the_mask_of_a_sum_of_zeros_changes_nothing() -> None:
    found = reasons("embedding_scale_norm", "mask of a reduction dropped")
    assert found == [f"{SAME}it is 0 beyond the columns for every finite number"]


def test_the_mask_of_exponentials_does() -> None:
    found = reasons("scale_mask_softmax", "mask of a reduction dropped")
    assert found
    assert not any((needs or "").startswith(SAME) for needs in found)


def test_a_mean_that_is_estimated_twice_may_be_estimated_wrong_once() -> None:
    found = reasons("column_variance", "second operand dropped", 64)
    assert any((needs or "").startswith(f"{SAME}a second estimate") for needs in found)
    assert not all((needs or "").startswith(SAME) for needs in found)


def test_spare_lanes_are_those_of_the_line_s_own_kernel() -> None:
    found = reasons("long_softmax", "rows end one late", 64)
    assert found[0] == "row of long_softmax_kernel_0"
    assert len(set(found)) == len(found)
