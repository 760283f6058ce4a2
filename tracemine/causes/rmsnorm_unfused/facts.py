"""What advice asks of an unfused norm: what is next to it, its weight, and how slow PyTorch's own kernel would be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.causes.rmsnorm_unfused.norm_order import has_offset, norm_order
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.matching.advice import Fact
from tracemine.matching.rule import Rule
from tracemine.perfmodel import rms_norm_loses
from tracemine.rows.table import BoolArray


def facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what is added next to norms, whether their weights have an offset, and whether a kernel is slow for them.

    named: activities that the rule's pattern names, of all.
    """
    if rule.saving != "fuse":
        return {}
    lists, op_row = context.lists, context.facts["activities"].op_row
    occurrences = [np.sort(one.matrix[0]) for one in classes]
    each = [(op_row[members].tolist(), op_row[members[named[members]]].tolist()) for members in occurrences]
    orders = (norm_order(lists, rows, own) for rows, own in each)
    return {
        "norm_order": next(filter(None, orders), None),
        "offset_weight": any(has_offset(lists, rows) for rows, _ in each),
        "slow_norm": _slow_norm(context, classes),
    }


def _slow_norm(context: ScanContext, classes: Sequence[ClassEstimate]) -> bool:
    """Return whether, for rows of any of these, one kernel is clearly faster than PyTorch's own for a norm."""
    curves, groups = context.curves, context.groups
    if curves is None or groups is None:
        return False
    of_first = groups.activity_group[np.array([one.matrix[0, 0] for one in classes])]
    kernels = groups.kernel[of_first[of_first >= 0]]
    return any(rms_norm_loses(curves, groups.kernels[kernel]) for kernel in kernels[kernels >= 0].tolist())
