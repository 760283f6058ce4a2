"""What is done to scores of spelled-out attention beyond what the fused operator has arguments for.

It takes a scale, one number, and a mask or a bias that is added. Any other function of a score, and a bias that is
computed from the queries, fused into the kernel, is `flex_attention`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tracemine.calls.call import Extents
from tracemine.findings.context import ScanContext
from tracemine.findings.lists import Lists
from tracemine.ops import lookup
from tracemine.ops.facts import base_name
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import Categories, IntArray

CAPPED, OF_QUERIES, OTHER = "soft cap", "bias of queries", "other"
_SOFTMAX: Final = frozenset({"_softmax", "softmax"})
_PRODUCTS: Final = frozenset({"bmm", "baddbmm"})
_SCALES: Final = frozenset({"mul", "div"})
_SUMS: Final = frozenset({"add", "sub", "baddbmm"})
GATHERS: Final = frozenset({"gather"})  # of what products with positions give
_MOST_NODES = 64  # that are followed up from one sum


def function_of_scores(lists: Lists, op_rows: Iterable[int]) -> str | None:
    """Return what one occurrence's operators, in order of time, do to each score; None: nothing besides."""
    seen = None
    for row in _between(lists, op_rows):
        name = base_name(lists.name(row))
        if name == "tanh":
            return CAPPED
        if (name in _SCALES and _varies(lists.shapes(row))) or (name == "where" and _chooses(lists.shapes(row))):
            seen = OTHER
    return seen


def _between(lists: Lists, op_rows: Iterable[int]) -> list[int]:
    """Return the scores' product and what stands behind it, up to the softmax; nothing where there is no such thing."""
    rows = [row for row in dict.fromkeys(op_rows) if row >= 0]
    names = [base_name(lists.name(row)) for row in rows]
    softmax = next((at for at, name in enumerate(names) if name in _SOFTMAX), 0)
    scores = max((at for at in range(softmax) if names[at] in _PRODUCTS), default=softmax)
    return rows[scores:softmax]


def _varies(shapes: Sequence[Extents]) -> bool:
    """Return whether both factors have more than one element along the last axis: a scale is the same for all keys.

    >>> _varies([(8, 4, 4), ()]), _varies([(8, 4, 4), (8, 1, 1)]), _varies([(8, 4, 4), (4, 4)])
    (False, False, True)
    """
    last = [shape[-1] for shape in shapes if shape]
    return len(last) > 1 and all(isinstance(size, int) and size > 1 for size in last[:2])


def _chooses(shapes: Sequence[Extents]) -> bool:
    """Return whether `where` chooses between two tensors: a mask fills in one number.

    >>> _chooses([(4, 4), (8, 4, 4), ()]), _chooses([(4, 4), (8, 4, 4), (1,)]), _chooses([(4, 4), (8, 4, 4), (8, 4, 4)])
    (False, False, True)
    """
    return len(shapes) > 2 and _varies(shapes[1:3])


def adds_of_queries(graph: NodeGraph, op: Categories, members: IntArray) -> bool:
    """Return whether a sum among an occurrence's members adds, or a gather takes, a product with the queries or keys.

    op: of each activity. Both products then rest on one tensor, the queries, behind the products that made it.
    """
    nodes = dict.fromkeys(int(node) for node in graph.activity_node[members] if node >= 0)
    names = {node: _name(graph, op, node) for node in nodes}
    softmax = next((node for node in sorted(nodes) if names[node] in _SOFTMAX), -1)
    scores = max((node for node in nodes if node < softmax and names[node] in _PRODUCTS), default=-1)
    if scores < 0:
        return False
    rests_on = _rests_on(graph, op, scores)
    sums = [node for node in nodes if scores <= node < softmax and names[node] in _SUMS]
    gathers = [node for node in nodes if node < softmax and names[node] in GATHERS]
    products = {each for node in (*sums, *gathers) for each in _products_above(graph, op, node, nodes)}
    return any(rests_on & _rests_on(graph, op, product) for product in products)


def _name(graph: NodeGraph, op: Categories, node: int) -> str:
    code = int(op.codes[graph.first_activity[node]])
    return base_name(op.values[code]) if code >= 0 else ""


def _is_product(graph: NodeGraph, op: Categories, node: int) -> bool:
    code = int(op.codes[graph.first_activity[node]])
    known = lookup(op.values[code]) if code >= 0 else None
    return known is not None and known.op_class == "gemm"


def _products_above(graph: NodeGraph, op: Categories, node: int, members: dict[int, None]) -> set[int]:
    """Return the nearest products that a sum's other operand is computed from."""
    found, seen = set[int](), set[int]()
    left = [each for each in graph.producers(node) if each not in members]
    while left and len(seen) < _MOST_NODES:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        if _is_product(graph, op, each):
            found.add(each)
        else:
            left += graph.producers(each)
    return found


def _rests_on(graph: NodeGraph, op: Categories, product: int) -> set[int]:
    """Return the tensors that a product reads, and what they are computed from up to other products."""
    found, seen = set[int](), set[int]()
    left = [product]
    while left and len(seen) < _MOST_NODES:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        begin, end = graph.read_begin[node : node + 2].tolist()
        found.update(graph.read_buffer[begin:end].tolist())
        left += [each for each in graph.producers(node) if not _is_product(graph, op, each)]
    return found


def score_function(context: ScanContext, members: IntArray) -> str | None:
    """Return what one occurrence of attention does to scores that the fused operator does not; None: nothing.

    members: its activities, in order.
    """
    facts, graph = context.facts["activities"], context.rows["activities"].graph
    found = function_of_scores(context.lists, facts.op_row[members].tolist())
    if found is None and graph is not None and adds_of_queries(graph, facts.op, members):
        return OF_QUERIES
    return found
