"""Members of a list that share their code: one call does them all, whatever their sizes and strides are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.axes import Axes
from tracemine.codegen.graph import Graph
from tracemine.codegen.lowering.driver import lower


def listed(shapes: tuple[tuple[int, ...], ...]) -> Graph:
    b = GraphBuilder("listed")
    first = [b.input(f"p{k}", shape, "float32") for k, shape in enumerate(shapes)]
    second = [b.input(f"g{k}", shape, "float32") for k, shape in enumerate(shapes)]
    b.call("aten::_foreach_mul_.Scalar", first, 0.9)
    b.call("aten::_foreach_add_.List", first, second, alpha=-0.5)
    return b.done()


def test_code_of_many_members_stands_once_and_is_called_once() -> None:
    few, many = (generate(listed(tuple((16 * k, 32) for k in range(1, n + 1)))).text for n in (4, 12))
    for text in (few, many):
        assert text.count("_part_0(") == 2  # where it stands, and where it is called
        assert "elif block < end_" not in text
    assert many.count("\n    p11_ptr_here = ") == 12  # a line for each to choose from


def test_fewer_than_three_and_those_of_another_code_are_branches() -> None:
    text = generate(listed(((5, 7), (4, 3), (9,), (6, 2), (11, 4)))).text
    assert text.count("if block < end_") == 1
    assert generate(listed(((5, 7), (4, 3)))).text.count("_here") == 0


def test_one_member_of_odd_size_does_not_narrow_the_others_reads() -> None:
    """A program reads 16 bytes at once where all sizes that it may choose among are multiples of 16."""
    text = generate(listed(((64,), (32,), (96,), (1000,)))).text
    assert "columns_1_here = columns_3" in text
    assert "tl.where(block < end_0" not in text


@pytest.mark.parametrize("shapes", [((5, 9), (4, 7), (6, 3), (3, 8)), ((19,), (300,), (77,), (0,))])
def test_they_are_right_with_gaps_turned_round_and_at_other_sizes(shapes: tuple[tuple[int, ...], ...]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from tracemine.validate import validate_graphs

    (proof,) = validate_graphs([listed(shapes)], mutants=False)
    assert proof.refused is None
    assert proof.faults == ()
    assert proof.trials > 20


def test_twice_as_many_members_are_twice_as_much_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Axes.leaves
    looked: list[int] = []

    def leaves(axes: Axes, dim: Iterable[int]) -> tuple[int, ...]:
        looked[-1] += 1
        return stock(axes, dim)

    monkeypatch.setattr(Axes, "leaves", leaves)
    for count in (20, 40):
        looked.append(0)
        lower(listed(tuple((3 + k, 5 + k) for k in range(count))))
    assert looked[1] < 2.2 * looked[0]


def test_a_square_and_itself_turned_round_keep_their_axes_apart() -> None:
    b = GraphBuilder("turned")
    x = b.input("x", (6, 6), "float32")
    found = lower(b.done(b.call("aten::add.Tensor", x, b.call("aten::t", x))))
    assert len(set(found.axes.flat(found.inputs[0].dims))) == 2
