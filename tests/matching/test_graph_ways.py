"""ONLY READER where it is a guess who reads: a way out of a match that leads back makes it none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from tests.flow.test_inferred import FLOAT, Eager
from tracemine.errors import Location
from tracemine.matching.graph_cases import graph_of_table
from tracemine.matching.graph_match import find_in_graph
from tracemine.matching.graph_parse import parse_graph
from tracemine.matching.rule import ColumnTest
from tracemine.rows.graph import graph_of
from tracemine.rows.table import Categories, Rows

HERE = Location("cases.md", 1)
# The keys are copied, the copy is scaled, and the product is taken to read the copy.
OPS = ("copy", "div", "bmm", "softmax", "bmm")
READS = ("k", "copied", "q, copied", "scores", "p, v")
NODES = ("copied", "scaled", "scores", "p", "o")


def matches(
    guesses: Mapping[int, Sequence[int]], reads: Sequence[str] = READS, backward: frozenset[int] = frozenset()
) -> list[int]:
    """The operators of the one match, where some may also read what others wrote. backward: those of that pass."""
    cells = {"node": [(HERE, name) for name in NODES], "reads": [(HERE, text) for text in reads]}
    graph = replace(graph_of_table(cells, len(OPS)), guesses_of=lambda: guesses, backward_of=lambda: backward)
    values = tuple(dict.fromkeys(OPS))
    rows = Rows("activities", len(OPS), {"op": Categories(np.array([values.index(op) for op in OPS]), values)}, graph)
    labels = {name: (ColumnTest("op", "is", (name,)),) for name in values}
    pattern = parse_graph(
        "(softmax)-[reads]->(scores IS bmm), (softmax)<-[reads]-(values IS bmm), "
        "(scores)-[reads]->{0,1}(copied IS copy) ONLY READER (copied, scores, softmax)",
        list(labels),
    )
    found: list[int] = find_in_graph(pattern, labels, rows, ()).rows.tolist()
    return found


ALONE = ("k", "x", *READS[2:])  # nothing says that the division reads the copy


def test_without_a_guess_the_match_has_the_copy() -> None:
    assert matches({}, ALONE) == [0, 2, 3, 4]


def test_a_copy_that_the_product_may_read_by_way_of_another_is_no_member() -> None:
    assert matches({0: [1], 1: [2]}, ALONE) == [2, 3, 4]


def test_scores_that_may_be_read_elsewhere_and_come_back_are_no_match() -> None:
    assert matches({2: [1], 1: [4]}, ALONE) == []


@pytest.mark.parametrize("guesses", [{0: [1]}, {1: [2]}, {4: [1], 1: [2]}, {0: [2]}])
def test_a_guess_that_does_not_lead_out_and_back_is_in_nobodys_way(guesses: dict[int, list[int]]) -> None:
    assert matches(guesses, ALONE) == [0, 2, 3, 4]


def test_what_comes_back_in_the_backward_pass_is_in_nobodys_way() -> None:
    """Of a forward pass all comes back by the loss."""
    assert matches({2: [1], 1: [4]}, ALONE, backward=frozenset({4})) == [0, 2, 3, 4]
    assert matches({2: [1], 1: [3]}, ALONE, backward=frozenset({4})) == []


def test_guesses_of_a_program_are_those_of_its_dataflow() -> None:
    eager = Eager()
    eager.call("aten::relu", ([32, 64], FLOAT))
    eager.call("aten::neg", ([32, 64], FLOAT))
    eager.call("aten::exp", ([32, 64], FLOAT))
    eager.call("aten::add", ([32, 64], FLOAT), ([32, 64], FLOAT), ([], "Scalar"))
    found = eager.flow()
    graph = graph_of(found)
    assert graph is not None
    pairs = {(before, after) for before, several in graph.guesses.items() for after in several}
    assert pairs == set(zip(found.perhaps_before.tolist(), found.perhaps_after.tolist(), strict=True))
    named = sorted(zip(graph.producer.tolist(), graph.consumer.tolist(), strict=True))
    assert named == sorted((node, reader) for node in range(len(graph)) for reader in graph.readers(node))
