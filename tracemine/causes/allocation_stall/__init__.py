"""A device that waits while memory is allocated or freed."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.causes.cause import Cause
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.graphs.blockers import ALLOCATED
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import named as calls_named
from tracemine.rows.table import BoolArray
from tracemine.timeline import Timeline

_FREED = deferred(r"^(cuda|hip)Free(?!ze)(?!Host)")
_FEWEST_ALLOCATIONS, _MOST_ALLOCATIONS_A_FREE = 20, 8


def uncached(timeline: Timeline) -> bool:
    """Return whether memory is freed about as often as allocated in the first half and in the second."""
    begin, calls = rows_of(timeline.api["start_ns"]), categories(timeline.api["name"])
    freed, allocated = calls_named(calls, _FREED), calls_named(calls, ALLOCATED)
    if allocated.sum() < _FEWEST_ALLOCATIONS:
        return False
    late = begin > (begin.min() + begin.max()) // 2
    return all(
        0 < (allocated & half).sum() <= _MOST_ALLOCATIONS_A_FREE * (freed & half).sum() for half in (late, ~late)
    )


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether memory is never kept."""
    return {"uncached": uncached(context.timeline)}


FACTS = AdviceFacts(
    docs={
        "uncached": FactDoc(
            "memory is freed nearly as often as allocated, all the time: the allocator's cache is off, or full"
        )
    },
    find=_facts,
)


CAUSE = Cause(rule="allocation_stall", facts=FACTS)
