"""The axes that a reduction's shapes tell, against every set of axes tried out."""

from __future__ import annotations

from itertools import combinations
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from tracemine.fusion.iteration_space import Space
from tracemine.fusion.nodes import told_by_shapes

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


def longer(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size > 1)


def all_ways(source: tuple[int, ...], result: tuple[int, ...]) -> set[frozenset[int]]:
    """Every set of axes whose reduction gives the result: keeping them where the ranks are equal, else without them.

    Axes of one element are left out on both sides: whether they are reduced is nobody's matter.
    """
    ways = set()
    for count in range(len(source) + 1):
        for axes in combinations(range(len(source)), count):
            kept = tuple(1 if axis in axes else size for axis, size in enumerate(source))
            if result == kept if len(result) == len(source) else longer(result) == longer(kept):
                ways.add(frozenset(axis for axis in axes if source[axis] > 1))
    return ways


@given(SHAPES, st.data())
def test_axes_are_told_where_one_set_fits_and_only_there(source: tuple[int, ...], data: st.DataObject) -> None:
    axes = data.draw(st.sets(st.integers(0, len(source) - 1)))
    keep = data.draw(st.booleans())
    result = tuple(1 if i in axes else n for i, n in enumerate(source) if keep or i not in axes)
    found, ways = told_by_shapes(source, result), all_ways(source, result)
    if found is None:
        assert len(ways) > 1
        return
    (reduced,) = ways
    length = prod(source[axis] for axis in reduced)
    inner = max((axis for axis, size in enumerate(source) if size > 1), default=0)
    assert found == Space(prod(source) // length, length, columns=bool(reduced) and inner not in reduced)


def test_a_square_matrix_does_not_tell_which_axis_was_reduced_unless_it_was_kept() -> None:
    assert told_by_shapes((8, 8), (8,)) is None
    assert told_by_shapes((8, 8), (1, 8)) == Space(8, 8, columns=True)


def test_a_shape_that_no_reduction_gives_tells_nothing() -> None:
    assert told_by_shapes((4, 8), (3,)) is None
    assert told_by_shapes((4, 8), (4, 2)) is None
    assert told_by_shapes((1,) * 17, (1,)) is None
