"""Gaps behind waits, of recordings that slow the host so that each launch comes late: findings of the wait's line."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from tracemine.columns import codes, unique_pairs
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.classes import groups_of_sequences
from tracemine.findings.context import ScanContext
from tracemine.findings.facts import Facts, pattern_of
from tracemine.findings.gap_estimates import of_gaps
from tracemine.findings.labels import label_of
from tracemine.flow import Evidence
from tracemine.host.waits import WAITS
from tracemine.matching.rule import Rule
from tracemine.perfmodel import NOTHING, closed_gaps
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, joined, mapped, rows_of, take
from tracemine.rows.table import BoolArray, IntArray

ASSUMED = "the timeline run again without the wait: gaps count by how much shorter they are then"


def of_waits(
    context: ScanContext, rule: Rule, named: BoolArray, rounds: BoolArray
) -> Iterable[tuple[IntArray, Evidence]]:
    """Yield classes of gaps that no pattern names and that go with waits; a match has all that follow one wait.

    rounds: gaps that go with a loop's rounds.
    """
    wait = context.wait_gaps.wait
    gaps = np.flatnonzero((wait >= 0) & ~named & ~rounds & ~context.claimed[rule.rows])
    gaps = gaps[~_taken_on(context, named)[wait[gaps]]]
    if not len(gaps):
        return
    gaps = gaps[np.argsort(wait[gaps], kind="stable")]
    place = context.wait_gaps.place[wait[gaps]]
    offsets = np.append(np.flatnonzero(np.diff(wait[gaps], prepend=-1)), len(gaps))
    of = groups_of_sequences(place, offsets)
    for group in range(int(of.max()) + 1):
        own = np.flatnonzero(of == group)
        yield gaps[offsets[own][:, None] + np.arange(offsets[own[0] + 1] - offsets[own[0]])], Evidence.CONSISTENT


def _taken_on(context: ScanContext, named: BoolArray) -> BoolArray:
    """Return which waits are for a number that each round of a loop may hand on to the next: that stays a wait, or
    becomes more work on the device. Of a place that the pattern names in another step none is, and of one that fetches
    one number after another no round is computed in between.
    """
    waits = context.waits
    numbers = (context.wait_uses < 0) & np.isin(waits.kind, [WAITS.index("number"), WAITS.index("truth")])
    if not numbers.any():
        return numbers
    counted = context.accounts.counted
    begun = np.zeros(0, np.int64) if counted is None else np.sort(counted.begin_ns)
    place = codes(context.wait_gaps.place, np.searchsorted(begun, waits.begin_ns, side="right"))
    kernels = rows_of(context.timeline.activities["launch_row"])[
        categories(context.timeline.activities["kind"]).among("kernel")
    ]
    launched = np.sort(context.calls.begin[kernels[kernels >= 0]])
    rounds = np.bincount(unique_pairs(place, np.searchsorted(launched, waits.begin_ns))[0])[place] > 1
    behind = context.wait_gaps.behind[named]
    of_named = np.isin(context.wait_gaps.place, context.wait_gaps.place[behind[behind >= 0]])
    taken: BoolArray = numbers & rounds & ~of_named
    return taken


def goes_with_wait(context: ScanContext, matrix: IntArray) -> bool:
    """Return whether gaps are of a class of these."""
    return "wait_gaps" in vars(context) and bool(context.wait_gaps.wait[matrix[0, 0]] >= 0)


def estimate_waits(context: ScanContext, matrix: IntArray) -> ClassEstimate:
    """Estimate gaps by how much of each goes without the waits, and is still there; at most all of it."""
    gaps = matrix.reshape(-1)
    least, usual, _ = (
        np.minimum(now[gaps], freed[gaps])
        for now, freed in zip(context.unprofiled_gaps_ns, context.wait_gaps.freed_ns, strict=True)
    )
    most, dur_ns = context.unprofiled_gaps_ns[2][gaps], context.facts["gaps"].dur_ns[gaps]
    gone = context.wait_gaps.gone[gaps]
    saving, told = NOTHING, dict[str, None]()
    for chosen, cause in ((gone, "gone_with_wait"), (~gone, "synchronisation")):
        if chosen.any():
            alone = (least[chosen], usual[chosen], most[chosen])
            closed, assumed = closed_gaps(dur_ns[chosen], cause, alone, context.steps.slowdown)
            saving, told = saving + closed, told | dict.fromkeys(assumed)
    found = of_gaps(context, matrix, saving, (ASSUMED, *told))
    label = label_of(context.timeline, _facts_of(context, gaps[:1]), np.zeros(1, np.int64))
    return replace(found, label=label, evidence=Evidence.CONSISTENT.name.lower())


def _facts_of(context: ScanContext, gaps: IntArray) -> Facts:
    """Return facts of these gaps alone, by the waits that they go with."""
    api, ops = context.timeline.api, context.timeline.ops
    call = context.waits.api_row[context.wait_gaps.wait[gaps]]
    op = taken(rows_of(api["op_row"]), call)
    name, module = (
        joined(take(categories(ops[each]), op), take(categories(api[each]), call)) for each in ("name", "module")
    )
    facts = context.facts["gaps"]
    own = {
        each: take(getattr(facts, each), gaps)
        for each in ("shapes", "dtypes", "strides", "dtype", "op_class", "optimizer", "source")
    }
    return replace(
        facts,
        op=name,
        op_row=np.full(len(gaps), -1, np.int64),
        module=mapped(module, pattern_of),
        backward=np.zeros(len(gaps), np.bool_),
        stack_row=taken(rows_of(api["stack_row"]), call),
        dur_ns=facts.dur_ns[gaps],
        **own,
    )
