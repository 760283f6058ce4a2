"""What rules ask of one row set, computed once for all: its partitions, each in order, and which nodes pass what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracemine.columns import compact, ordered
from tracemine.matching.define import column_holds, holds_of_some
from tracemine.matching.graph_joins import places_of
from tracemine.matching.rule import ColumnTest
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Rows

Tests = tuple[ColumnTest, ...]
Order = npt.NDArray[np.intp]


class Shared:
    """Answers about the rows of one row set, each made when it is first asked for."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._arrangements: dict[tuple[tuple[str, ...], tuple[str, ...]], Arrangement] = {}
        self._places: dict[tuple[str, ...], IntArray] = {}
        self._edges: dict[tuple[str, ...], BoolArray] = {}
        self._some: dict[Tests, BoolArray] = {}
        self._every: dict[Tests, BoolArray] = {}

    def may_pass(self, tests: Tests) -> bool:
        """Return whether a row may pass all these tests; False: no value that a column of categories has does."""
        return all(holds_of_some(test, self.rows.columns[test.column]) for test in tests)

    def passed(self, tests: Tests) -> BoolArray:
        """Return which rows pass all these tests."""
        passed = np.ones(self.rows.count, np.bool_)
        for test in tests:
            passed &= column_holds(test, self.rows.columns[test.column], slice(0, self.rows.count))
        return passed

    def arrangement(self, partition_by: Sequence[str], order_by: Sequence[str]) -> Arrangement:
        """Return the rows in partitions, each in order."""
        key = tuple(partition_by), tuple(order_by)
        if key not in self._arrangements:
            self._arrangements[key] = arrange(self.rows, *key)
        return self._arrangements[key]

    # --- nodes of the graph ------------------------------------------------------------------------------------------

    def places(self, graph: NodeGraph, partition_by: Sequence[str]) -> IntArray:
        """Return a number for each node, as `places_of`."""
        key = tuple(partition_by)
        if key not in self._places:
            self._places[key] = places_of(self.rows, graph, key)
        return self._places[key]

    def edges(self, graph: NodeGraph, partition_by: Sequence[str]) -> BoolArray:
        """Return the edges that a match may have: usable ones between nodes of one place."""
        key = tuple(partition_by)
        if key not in self._edges:
            place = self.places(graph, key)
            self._edges[key] = graph.usable & (place[graph.consumer] == place[graph.producer])
        return self._edges[key]

    def some(self, graph: NodeGraph, tests: Tests) -> BoolArray:
        """Return the nodes of which an activity passes all these tests."""
        if tests not in self._some:
            self._some[tests] = graph.any_of(self.passed(tests))
        return self._some[tests]

    def every(self, graph: NodeGraph, tests: Tests) -> BoolArray:
        """Return the nodes of which each activity passes all these tests."""
        if tests not in self._every:
            self._every[tests] = graph.all_of(self.passed(tests))
        return self._every[tests]


class Arrangement:
    """Rows in partition order. They are sorted when that is first asked for: many rules have nothing to look for.

    A row with a null in a partition_by or order_by column is in no partition: which stream it ran on, or when, is not
    known, so neither is what comes next to it.
    """

    def __init__(self, rows: Rows, partition_by: tuple[str, ...], order_by: tuple[str, ...]) -> None:
        self.rows, self.partition_by, self.order_by = rows, partition_by, order_by

    @cached_property
    def known(self) -> BoolArray | None:
        """Return which rows are in a partition; None where all are."""
        return _all_known([self.rows.columns[name] for name in (*self.partition_by, *self.order_by)])

    @property
    def left_out(self) -> int:
        """Return how many rows are in no partition."""
        return 0 if self.known is None else self.rows.count - int(np.count_nonzero(self.known))

    @property
    def order(self) -> Order | None:
        """Return row numbers in order; None where they are as they stand."""
        return self._sorted[0]

    @property
    def bounds(self) -> IntArray:
        """Return where partitions begin and end: partition i is bounds[i]:bounds[i + 1] of the order."""
        return self._sorted[1]

    @cached_property
    def _sorted(self) -> tuple[Order | None, IntArray]:
        return _sorted_rows(self.rows, self.partition_by, self.order_by, self.known)


def arrange(rows: Rows, partition_by: Sequence[str], order_by: Sequence[str]) -> Arrangement:
    """Sorts rows by partition and then by order_by, equal ones as they stand; does nothing where they are sorted.

    >>> from tracemine.rows.table import Numbers
    >>> rows = Rows("activities", 4, {"stream": Numbers(np.array([7, 5, 7, 5])), "start_ns": Numbers(np.arange(4))})
    >>> arranged = arrange(rows, ["stream"], ["start_ns"])
    >>> arranged.order.tolist(), arranged.bounds.tolist()
    ([1, 3, 0, 2], [0, 2, 4])
    """
    return Arrangement(rows, tuple(partition_by), tuple(order_by))


def _sorted_rows(
    rows: Rows, partition_by: Sequence[str], order_by: Sequence[str], known: BoolArray | None
) -> tuple[Order | None, IntArray]:
    """Return the order and the bounds of an arrangement."""
    order: Order | None = None if known is None else np.flatnonzero(known)
    keys = [_values(rows.columns[name], order) for name in order_by]
    parts: npt.NDArray[np.generic] = np.zeros(rows.count if order is None else len(order), np.uint16)
    count = 1
    for name in partition_by:
        parts, count = _combine(parts, count, _values(rows.columns[name], order))
    if not _sorted([parts, *keys]):
        # Most row sets are in order of time already; a stable sort by partition then keeps that order.
        by_key = None if _sorted(keys) else np.lexsort(keys[::-1])
        by_part = np.argsort(parts if by_key is None else parts[by_key], kind="stable")
        by_both = by_part if by_key is None else by_key[by_part]
        parts = parts[by_both]
        order = by_both if order is None else order[by_both]
    inner = np.flatnonzero(parts[1:] != parts[:-1]) + 1
    return order, np.concatenate(([0], inner, [len(parts)])).astype(np.int64)


def _all_known(columns: Sequence[Column]) -> BoolArray | None:
    """Return rows where no column is null; None where there are no nulls."""
    known = [
        column.codes >= 0 if isinstance(column, Categories) else column.valid
        for column in columns
        if not isinstance(column, Flags)
    ]
    masks = [mask for mask in known if mask is not None]
    if not masks:
        return None
    mask = np.logical_and.reduce(masks)
    return None if mask.all() else mask


def _values(column: Column, order: Order | None) -> npt.NDArray[np.generic]:
    values: npt.NDArray[np.generic] = column.codes if isinstance(column, Categories) else column.values
    return values if order is None else values[order]


def _combine(
    parts: npt.NDArray[np.generic], count: int, values: npt.NDArray[np.generic]
) -> tuple[npt.NDArray[np.generic], int]:
    """Number pairs (part, value) densely, in order. Small numbers stay uint16, which numpy sorts in linear time."""
    if not len(values):
        return parts, count
    codes, width = _codes(values)
    if width == 1:
        return parts, count
    if count == 1:
        return codes, width
    pairs = parts.astype(np.int64) * width + codes.astype(np.int64)
    if count * width <= 1 << 16:
        return pairs.astype(np.uint16), count * width
    return _small(*compact(pairs, count * width))


def _codes(values: npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.generic], int]:
    """Number values in order, and return below which number all are; there may be holes where that is small."""
    if values.dtype.kind not in "iu":
        distinct, inverse = np.unique(values, return_inverse=True)
        return inverse, len(distinct)
    code, size = ordered(values.astype(np.int64))
    return (code.astype(np.uint16), size) if size <= 1 << 15 else _small(*compact(code, size))


def _small(number: IntArray, count: int) -> tuple[npt.NDArray[np.generic], int]:
    return number.astype(np.uint16) if count <= 1 << 16 else number, count


def _sorted(keys: Sequence[npt.NDArray[np.generic]]) -> bool:
    """Return whether rows stand in the order of these keys, the first one first."""
    if not keys or len(keys[0]) < 2:
        return True
    rises: BoolArray | None = None
    for key in reversed(keys):
        before, after = key[:-1], key[1:]
        rises = after >= before if rises is None else (after > before) | ((after == before) & rises)
    return rises is None or bool(rises.all())
