"""What advice asks of a loop of small products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray, category, number

_DIFFERING: Final = ("inputs", "weights", "both")
_PRODUCTS: Final = ("mm", "addmm", "bmm", "baddbmm", "_addmm_activation")


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the loop's first product takes that is not the same in each iteration."""
    rows, graph = context.rows["activities"], context.rows["activities"].graph
    if rule.id != "small_products_apart" or graph is None:
        return {}
    members = np.sort(classes[0].matrix[0])
    products = members[category(rows, "operation").among(*_PRODUCTS)[members]]
    turns, nodes = int(number(rows, "turns")[members[0]]), sorted_unique(graph.activity_node[products])
    if not turns or len(nodes) % turns or (nodes < 0).any():
        return {"differing": None}
    return {"differing": _differing(graph, nodes[:: len(nodes) // turns])}


def _differing(graph: NodeGraph, nodes: IntArray) -> str | None:
    """Return which of a product's two matrices, the last that it reads, differ from one of these nodes to the next."""
    begin, end = graph.read_begin[nodes], graph.read_begin[nodes + 1]
    if (end - begin < 2).any():
        return None
    read = np.stack([graph.read_buffer, graph.read_writer, graph.read_first])
    inputs, weights = (np.unique(read[:, end - at], axis=1).shape[1] > 1 for at in (2, 1))
    return {(True, False): "inputs", (False, True): "weights", (True, True): "both"}.get((inputs, weights))


FACTS = AdviceFacts(
    docs={
        "differing": FactDoc(
            "of a loop of small products, what of its first product differs from iteration to iteration",
            text=True,
            values=_DIFFERING,
        )
    },
    find=_facts,
)
