"""What the host is at between a step's beginning and its first launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.host import KINDS, host_time
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.rows.ancestors import nearest, outermost, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, IntArray, flags, number

AT_START: Final = ("buffers", "operators", "python")
_DISTRIBUTED: Final = "DistributedDataParallel.forward"


def into_step_ns(context: ScanContext) -> IntArray:
    """Return how much of each gap passed since the step of the next activity had begun."""
    rows = context.rows["gaps"]
    return np.where(flags(rows, "between_steps"), number(rows, "into_step_ns"), number(rows, "dur_ns"))


def at_start(context: ScanContext, gaps: IntArray) -> str | None:
    """Return what took more than half of these gaps since their steps began, one of AT_START; None: nothing did.

    buffers: what DistributedDataParallel does before a forward pass. operators: those before the one that launches.
    """
    timeline, rows = context.timeline, context.rows["gaps"]
    end = (number(rows, "start_ns") + number(rows, "dur_ns"))[gaps]
    found = host_time(timeline, end - into_step_ns(context)[gaps], end)
    if found is None:
        return None
    names, parent = categories(timeline.ops["name"]), rows_of(timeline.ops["parent_row"])
    distributed = taken(nearest(parent, names.among(_DISTRIBUTED)), found.op_row) >= 0
    outer = outermost(nearest(parent, categories(timeline.ops["kind"]).among("op")), parent)
    launching = rows_of(timeline.activities["op_row"])[number(rows, "next_row")[gaps]]
    top, last = taken(outer, found.op_row), taken(outer, launching)
    operators = (top >= 0) & (top != last[found.step])
    python = np.isin(found.kind, [KINDS.index("python"), KINDS.index("not_recorded")])
    spent = {
        name: int(found.dur_ns[chosen].sum())
        for name, chosen in zip(AT_START, (distributed, operators, python), strict=True)
    }
    half = int(found.dur_ns.sum()) / 2
    return next((name for name, dur_ns in spent.items() if dur_ns > half), None)


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the host is at in these gaps."""
    if rule.id != "first_launch_late":
        return {}
    return {"at_start": at_start(context, np.concatenate([one.matrix.reshape(-1) for one in classes]))}


FACTS = AdviceFacts(
    docs={
        "at_start": FactDoc(
            "what took most of the host's time between a step's beginning and its first launch: `buffers` that "
            "DistributedDataParallel sends, `operators` on the host's tensors, or `python`",
            text=True,
            values=AT_START,
        )
    },
    find=_facts,
)
