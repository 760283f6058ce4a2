"""Facts of a finding that advice may ask for: what was matched, and what of it decides which fix is true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracemine.findings.context import ScanContext
from tracemine.findings.norm_order import has_offset, norm_order
from tracemine.findings.score_functions import OF_QUERIES, adds_of_queries, function_of_scores
from tracemine.matching.advice import Fact
from tracemine.ops import lookup
from tracemine.ops.infer.library import OPERATIONS
from tracemine.rows.table import BoolArray, IntArray


def call_class(ops: Sequence[str]) -> str | None:
    """Return what kind of a library's call these operators are; None: of several kinds, or of none.

    >>> call_class(["aten::mm", "aten::bmm"]), call_class(["aten::convolution_backward"])
    ('product', 'convolution')
    >>> call_class(["aten::bmm", "aten::_softmax"]) is None
    True
    """
    kinds = {None if (known := lookup(op)) is None else OPERATIONS.get(known.op_class) for op in ops}
    return next(iter(kinds)) if len(kinds) == 1 else None


def score_function(context: ScanContext, members: IntArray) -> str | None:
    """Return what one occurrence of attention does to scores that the fused operator does not; None: nothing.

    members: its activities, in order.
    """
    facts, graph = context.facts["activities"], context.rows["activities"].graph
    found = function_of_scores(context.lists, facts.op_row[members].tolist())
    if found is None and graph is not None and adds_of_queries(graph, facts.op, members):
        return OF_QUERIES
    return found


def of_norms(context: ScanContext, occurrences: Iterable[IntArray], named: BoolArray) -> dict[str, Fact]:
    """Return what stands beside norms, and whether their weights have an offset.

    occurrences: activities of one of each class, in order. named: those that the rule's pattern names, of all.
    """
    lists, op_row = context.lists, context.facts["activities"].op_row
    each = [(op_row[members].tolist(), op_row[members[named[members]]].tolist()) for members in occurrences]
    orders = (norm_order(lists, rows, own) for rows, own in each)
    return {
        "norm_order": next(filter(None, orders), None),
        "offset_weight": any(has_offset(lists, rows) for rows, _ in each),
    }
