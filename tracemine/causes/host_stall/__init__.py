"""A host that is late with its launches for long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.columns import sorted_unique, string_ids
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Rows, number
from tracemine.timeline import Timeline

# Of gaps within operators: so many shapes, in so many steps, and so many of the gaps have their own, where each new one
# is planned.
_FEWEST_NEW_SHAPES, _SHARE_OF_NEW_SHAPES = 3, 0.8


def waited_in(timeline: Timeline, gaps: Rows, rows: Sequence[int]) -> frozenset[str]:
    """Return where the host was in most of these gaps, `in_launch` or `in_operator`, and whether the latter had other
    shapes nearly each time, `new_shapes`; nothing: neither, or not known."""
    chosen = np.array(rows, np.int64)
    begin, dur = number(gaps, "start_ns")[chosen], number(gaps, "dur_ns")[chosen]
    middle = begin + dur // 2
    next_row, launch = number(gaps, "next_row")[chosen], number(gaps, "launch_row", null=-1)[chosen]
    op = rows_of(timeline.activities["op_row"])[next_row]
    launched = taken(rows_of(timeline.api["start_ns"]), launch)
    within = taken(rows_of(timeline.ops["start_ns"]), op)
    half = max(int(dur.sum()), 1) / 2
    if dur[(launched >= 0) & (launched <= middle)].sum() > half:
        return frozenset(["in_launch"])
    inside = (within >= 0) & (within <= middle)
    if dur[inside].sum() <= half:
        return frozenset()
    shapes = string_ids(timeline.ops["input_shapes"])[0][op[inside]]
    distinct = len(sorted_unique(shapes[shapes >= 0]))
    steps = sorted_unique(rows_of(timeline.activities["step_row"])[next_row[inside]])
    new = distinct >= max(_FEWEST_NEW_SHAPES, _SHARE_OF_NEW_SHAPES * len(shapes))
    new &= (steps >= 0).sum() >= _FEWEST_NEW_SHAPES  # layers of one step differ too, and are planned in the first
    return frozenset(["in_operator", "new_shapes"] if new else ["in_operator"])


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return where the host was for most of the gaps' time."""
    if rule.rows != "gaps":
        return {}
    gaps = np.concatenate([one.matrix.reshape(-1) for one in classes])
    return dict.fromkeys(waited_in(context.timeline, context.rows["gaps"], gaps.tolist()), True)


FACTS = AdviceFacts(
    docs={
        "in_operator": FactDoc("the host was inside the operator that is named, not before it"),
        "new_shapes": FactDoc("that operator had other shapes nearly each time"),
        "in_launch": FactDoc("the host was inside the launch call"),
    },
    find=_facts,
)


CAUSE = Cause(rule="host_stall", facts=FACTS)
