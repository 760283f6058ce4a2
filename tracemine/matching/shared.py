"""What rules ask of one row set, computed once for all: how its rows are arranged, and which nodes pass what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.matching.define import column_holds, holds_of_some
from tracemine.matching.graph_joins import places_of
from tracemine.matching.partitions import Arrangement, arrange
from tracemine.matching.rule import ColumnTest
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray, Rows

Tests = tuple[ColumnTest, ...]


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
