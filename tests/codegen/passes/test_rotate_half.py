"""Joins of halves that change places load each element once, whichever half it is in; other joins ask as before."""

from __future__ import annotations

from tests.codegen.catalogue import CATALOGUE
from tracemine.codegen import GraphBuilder, generate
from tracemine.codegen.graph import Graph
from tracemine.validate import validate_graphs

ROWS, WIDTH = 6, 16


def _halves(first: tuple[int, int], second: tuple[int, int], negative: bool = True) -> Graph:
    """Two slices of a row, joined, beside the row itself."""
    b = GraphBuilder("halves")
    x = b.input("x", (ROWS, WIDTH), "float32")
    one, other = (b.call("aten::slice.Tensor", x, 1, *ends, 1) for ends in (first, second))
    joined = b.call("aten::cat", [b.call("aten::neg", one) if negative else one, other], 1)
    return b.done(b.call("aten::add.Tensor", b.call("aten::mul.Tensor", joined, x), x))


def _loads(chain: Graph) -> list[str]:
    return [line for line in generate(chain).text.splitlines() if "tl.load(" in line]


def test_halves_that_change_places_are_loaded_once_more_and_without_a_guard() -> None:
    loads = _loads(_halves((8, 16), (0, 8)))
    assert len(loads) == 2
    assert sum("((column + 8) % 16)" in line for line in loads) == 1
    assert all("& value" not in line for line in loads)


def test_halves_that_keep_their_places_are_the_row() -> None:
    assert len(_loads(_halves((0, 8), (8, 16)))) == 1


def test_parts_of_other_sizes_are_asked_for_one_by_one() -> None:
    assert sum("& value" in line for line in _loads(_halves((6, 16), (0, 6)))) == 2


def test_the_same_half_twice_is_no_turn() -> None:
    assert sum("& value" in line for line in _loads(_halves((0, 8), (0, 8)))) == 2


def test_halves_of_two_tensors_are_two() -> None:
    b = GraphBuilder("two")
    x, y = (b.input(name, (ROWS, WIDTH), "float32") for name in ("x", "y"))
    one, other = b.call("aten::slice.Tensor", x, 1, 8, 16, 1), b.call("aten::slice.Tensor", y, 1, 0, 8, 1)
    chain = b.done(b.call("aten::mul.Tensor", b.call("aten::cat", [one, other], 1), x))
    assert sum("& value" in line for line in _loads(chain)) == 2


def test_what_is_turned_is_right() -> None:
    chains = [
        _halves((8, 16), (0, 8)),
        _halves((8, 16), (0, 8), negative=False),
        _halves((0, 8), (8, 16)),
        CATALOGUE["qk_norm_rope"](),
    ]
    for proof in validate_graphs(chains, mutants=False):
        assert proof.passed, proof.faults
