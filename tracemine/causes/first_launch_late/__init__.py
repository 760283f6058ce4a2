"""A host that works at a step's start, before it launches anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.columns import codes, sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.gap_estimates import of_gaps
from tracemine.host import host_time
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.perfmodel.data_loading import HANDED_OVER_NS, SLOWER, WORKERS
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.ancestors import nearest, outermost, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, FloatArray, IntArray, number

_WORKERS, _SLOWER, _HANDED_OVER_NS = WORKERS[-1], SLOWER[1], HANDED_OVER_NS[1]  # as many as the fix has
# Of the low end: others share the cores.
_LEAST_SHARE: Final = 0.5
_OPERATOR_NS: Final = 10_000  # that the host takes to launch one on the device: small ones take 5 to 20 µs
_OF_BUFFERS: Final = 0.75  # the forward pass begins with other work of the host
AT_START: Final = ("buffers", "operators")
_DISTRIBUTED: Final = "DistributedDataParallel.forward"


def at_start(context: ScanContext, gaps: IntArray) -> tuple[str | None, int, int]:
    """Return what took more than half of the host's time in these gaps, one of AT_START; None: neither did. And how
    many operators that is, and how many where equal ones of a function are one.

    buffers: what DistributedDataParallel does before a forward pass. operators: those before the one that launches.
    """
    timeline, rows = context.timeline, context.rows["gaps"]
    begin = number(rows, "start_ns")[gaps]
    found = host_time(timeline, begin, begin + number(rows, "dur_ns")[gaps])
    if found is None:
        return None, 0, 0
    names, parent = categories(timeline.ops["name"]), rows_of(timeline.ops["parent_row"])
    distributed = taken(nearest(parent, names.among(_DISTRIBUTED)), found.op_row) >= 0
    outer = outermost(nearest(parent, categories(timeline.ops["kind"]).among("op")), parent)
    launching = rows_of(timeline.activities["op_row"])[number(rows, "next_row")[gaps]]
    top, last = taken(outer, found.op_row), taken(outer, launching)
    operators = (top >= 0) & (top != last[found.step])
    spent = dict(zip(AT_START, (int(found.dur_ns[each].sum()) for each in (distributed, operators)), strict=True))
    half = int(found.dur_ns.sum()) / 2
    what = next((name for name, dur_ns in spent.items() if dur_ns > half), None)
    each = sorted_unique(top[operators])
    path = rows_of(timeline.ops["stack_row"])[each]
    at_once = codes(names.codes[each], np.where(path >= 0, path, -1 - each))  # of an unknown function each for itself
    return what, len(each), int(at_once.max(initial=-1)) + 1


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate steps whose first launch waits for no more than the launch itself."""
    members = matrix.reshape(-1)
    # Of whole gaps: what lies in no step is taken off where it is said what a step gains.
    least, usual, most = (each[members].astype(np.float64) for each in context.unprofiled_gaps_ns)
    step_ns = context.unprofiled.mid_ns if context.unprofiled.of_step else 2 * usual
    rest = np.maximum(step_ns - usual, 0)
    what, *operators = at_start(context, members)
    (fewer, _), (middle, how) = (
        _saved(what, usual, rest, count / max(len(members), 1) * _OPERATOR_NS) for count in operators
    )
    saving = outwards(
        float((_LEAST_SHARE * np.minimum(least, fewer)).sum()),
        float(middle.sum()),
        float(np.maximum(most, middle).sum()),
    )
    note = f"middle: {how} (assumed); low end: half, one by one, on a faster host; high end: all of it goes"
    return of_gaps(context, matrix, saving.at_most(int(context.facts["gaps"].dur_ns[members].sum())), (note,))


def _saved(what: str | None, load: FloatArray, rest: FloatArray, launching_ns: float) -> tuple[FloatArray, str]:
    """Return what goes of each stretch of `load`, next to `rest` of the step, and how. launching_ns: what the host
    takes to launch its operators on the device.

    >>> ms = 1e6
    >>> _saved("operators", np.array([4 * ms]), np.array([3 * ms]), 0.5 * ms)[0].tolist()
    [3500000.0]
    >>> _saved(None, np.array([8 * ms]), np.array([1 * ms]), 0.0)[0].tolist()
    [7750000.0]
    """
    if what == "operators":
        how = "the device does it, equal operators of a function at once, or a thread while the rest of the step runs"
        return np.maximum(load - launching_ns, np.minimum(load, rest)), how
    if what == "buffers":
        return _OF_BUFFERS * load, f"{_OF_BUFFERS:.0%} of it is sending buffers"
    left = np.maximum(_SLOWER * load / _WORKERS - rest, np.minimum(_HANDED_OVER_NS, load))
    how = f"{_WORKERS} processes do it while the rest of the step runs, each {_SLOWER:g} times slower"
    return load - left / 2, f"half way between work done once and {how}"


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the host is at in these gaps."""
    if rule.id != "first_launch_late":
        return {}
    return {"at_start": at_start(context, np.concatenate([one.matrix.reshape(-1) for one in classes]))[0]}


FACTS = AdviceFacts(
    docs={
        "at_start": FactDoc(
            "what took most of the host's time between a step's beginning and its first launch: `buffers` that "
            "DistributedDataParallel sends, or `operators` on the host's tensors; not known: Python",
            text=True,
            values=AT_START,
        )
    },
    find=_facts,
)


CAUSE = Cause(rule="first_launch_late", estimate=estimate, facts=FACTS)
