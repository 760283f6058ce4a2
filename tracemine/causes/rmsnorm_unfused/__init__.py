"""An RMSNorm as separate operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from tracemine.calls.call import Extents
from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.lists import Lists
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.ops.facts import base_name
from tracemine.perfmodel import rms_norm_loses
from tracemine.rows.table import BoolArray

SUM_FIRST, NORM_FIRST, BETWEEN_NORMS = "sum first", "norm first", "between norms"
_ORDERS: Final[Mapping[str, str]] = {"+n": SUM_FIRST, "n+": NORM_FIRST, "n+n": BETWEEN_NORMS}
_SUM, _NORM = "+", "n"
_MEAN, _ADD, _CAST = "mean", "add", "copy"


def norm_order(lists: Lists, op_rows: Iterable[int], named: Iterable[int]) -> str | None:
    """Return how one occurrence's norms and residual sum follow each other, by its operators in order of time.

    named: operators that the norm's pattern names. None: next to the norms there is something other than one such sum.
    """
    rows, own = [row for row in dict.fromkeys(op_rows) if row >= 0], set(named)
    width = _width(lists, rows)
    told = []
    for row in rows:
        name = base_name(lists.name(row))
        if row in own:
            told += [_NORM] if name == _MEAN else []
        elif name == _ADD and _is_residual(lists.shapes(row), width):
            told.append(_SUM)
        elif name != _CAST:
            return None
    return _ORDERS.get("".join(told))


def has_offset(lists: Lists, op_rows: Iterable[int]) -> bool:
    """Return whether a number is added to the norm's weight, a vector as long as its rows."""
    rows = [row for row in dict.fromkeys(op_rows) if row >= 0]
    width = _width(lists, rows)
    return width is not None and any(
        base_name(lists.name(row)) == _ADD and lists.shapes(row)[:2] == ((width,), ()) for row in rows
    )


def _width(lists: Lists, rows: Sequence[int]) -> int | None:
    """Return the length of the rows over which the mean is taken."""
    means = [lists.shapes(row) for row in rows if base_name(lists.name(row)) == _MEAN]
    shape = means[0][0] if means and means[0] else ()
    return shape[-1] if shape and isinstance(shape[-1], int) else None


def _is_residual(shapes: Sequence[Extents], width: int | None) -> bool:
    """Return whether two tensors of the norm's rows are added."""
    first, second = (*shapes, (), ())[:2]
    return first == second and len(first) > 1 and first[-1] == width


_FUSED_NORM_SINCE = (2, 9)  # pytorch/pytorch#153666


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
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
        "no_fused_norm": lacks_fused_norm(context.environment.torch),
        "slow_norm": _slow_norm(context, classes),
    }


def lacks_fused_norm(torch: tuple[int, int] | None) -> bool:
    """Return whether a release of torch has no kernel of its own for `F.rms_norm`, as far as it is known.

    >>> [lacks_fused_norm(torch) for torch in ((2, 8), (2, 9), (2, 11), None)]
    [True, False, False, False]
    """
    return torch is not None and torch < _FUSED_NORM_SINCE


def _slow_norm(context: ScanContext, classes: Sequence[ClassEstimate]) -> bool:
    """Return whether, for rows of any of these, one kernel is clearly faster than PyTorch's own for a norm."""
    curves, groups = context.curves, context.groups
    if curves is None or groups is None:
        return False
    of_first = groups.activity_group[np.array([one.matrix[0, 0] for one in classes])]
    kernels = groups.kernel[of_first[of_first >= 0]]
    return any(rms_norm_loses(curves, groups.kernels[kernel]) for kernel in kernels[kernels >= 0].tolist())


FACTS = AdviceFacts(
    docs={
        "no_fused_norm": FactDoc("this torch, which a capture names, has no kernel of its own for `F.rms_norm`"),
        "slow_norm": FactDoc(
            "PyTorch's own kernel for `F.rms_norm` takes clearly longer on these rows than one made for them"
        ),
        "offset_weight": FactDoc("a number is added to the norm's weight before it is multiplied by"),
        "norm_order": FactDoc(
            "how the norm and one residual sum follow each other, where nothing else is added to it",
            text=True,
            values=("sum first", "norm first", "between norms"),
        ),
    },
    find=_facts,
)


CAUSE = Cause(rule="rmsnorm_unfused", facts=FACTS)
