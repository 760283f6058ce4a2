"""Blocking sync: the host waits for the GPU, and the GPU then for the host.

waits.py     gaps behind waits that the rule's pattern does not name
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.causes.cause import Cause
from tracemine.causes.host_sync.waits import ASSUMED, estimate_waits, goes_with_wait, of_waits
from tracemine.columns import codes, sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.gap_estimates import blocked_ns, cause_of, close, closed, of_gaps
from tracemine.findings.labels import label_of
from tracemine.flow import Evidence
from tracemine.host.uses import USES
from tracemine.host.waits import WAITS
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import KERNEL_NS, Abstained, Range
from tracemine.rows.arrow import categories
from tracemine.rows.table import BoolArray, IntArray, category, flags, number
from tracemine.tables import table_beside

_WAITS = table_beside(__file__, "written.toml")
# By kind of wait: what it calls, its outermost operator or, in none, its call; the first that fits.
_WRITTEN: Final[dict[str, tuple[tuple[str, str], ...]]] = _WAITS["written"]
WRITTEN: Final = tuple(dict.fromkeys(text for each in _WRITTEN.values() for _, text in each))


def written(context: ScanContext, wait: int) -> str | None:
    """Return what a wait is written as; None: that is not known."""
    waits, timeline = context.waits, context.timeline
    op, call = int(waits.op_row[wait]), int(waits.api_row[wait])
    column, row = (timeline.ops["name"], op) if op >= 0 else (timeline.api["name"], call)
    names = categories(column)
    name = names.values[int(names.codes[row])] if names.codes[row] >= 0 else ""
    known = _WRITTEN.get(WAITS[int(waits.kind[wait])], ())
    return next((text for pattern, text in known if re.search(pattern, name)), None)


_PRODUCTS = ("gemm", "conv", "attention", "rnn")
_BY_INDEX = ("experts", "masks", "segments", "limits")
_FETCHES = ("number", "truth", "check", "mask", "print", "to_host")


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate gaps without their waits; where one call can do all rounds of a loop the rounds' launches go as well."""
    gaps = matrix.reshape(-1)
    at_once = _one_call(context, gaps)
    if goes_with_wait(context, matrix) and not at_once[0]:
        return estimate_waits(context, matrix)
    known = ~at_once & (context.wait_gaps.behind[gaps] >= 0)
    if not (at_once | known).any():
        return close(context, rule, matrix)
    cause = cause_of(context, matrix)
    waits = cause == "synchronisation"
    recorded = context.facts["gaps"].dur_ns[gaps]
    most = np.where(at_once, recorded, np.minimum(recorded, blocked_ns(context, matrix))) if waits else recorded
    merged = at_once & _merged(context, gaps)
    parts = (
        (at_once & ~merged, "at_once"),
        (merged, "in_one_call"),
        (known, "without_wait"),
        (~(at_once | known), cause),
    )
    freed = [np.where(known, each[gaps], np.iinfo(np.int64).max) for each in context.wait_gaps.freed_ns[:2]]
    saving, assumptions = closed(context, matrix, most, parts, freed)
    kernels_ns = _kernels_ns(context, gaps[merged])
    if kernels_ns:
        saving = (saving + Range(0, kernels_ns, kernels_ns)).at_most(int(recorded.sum()))
        assumptions += (f"kernels of a loop's later rounds go as well, {KERNEL_NS / 1000:g} µs of each at most",)
    found = of_gaps(context, matrix, saving, (ASSUMED, *assumptions) if known.any() else assumptions)
    return _placed(context, matrix, found) if at_once[0] else found


def _merged(context: ScanContext, gaps: IntArray) -> BoolArray:
    """Return which gaps lie in a loop whose kernels become fewer: it chooses rows by a condition, counts or sums by
    index, or takes parts or numbers of one tensor. Of tensors apart each keeps kernels of its own.
    """
    following, rows = number(context.rows["gaps"], "next_row")[gaps], context.rows["activities"]
    found: BoolArray = category(rows, "loop_over").among(*_BY_INDEX)[following]
    return found | category(rows, "loop_differs").among("slices", "numbers")[following]


def in_rounds(context: ScanContext, named: BoolArray) -> BoolArray:
    """Return which gaps that no pattern names lie in loops that wait, where one call can do all rounds."""
    following, rows = number(context.rows["gaps"], "next_row"), context.rows["activities"]
    loop = number(rows, "loop", -1)[following]
    waits = flags(rows, "loop_waits")[following] | np.isin(loop, loop[named])
    free = ~named & ~context.claimed["gaps"] & waits & (loop >= 0)
    return free & _one_call(context, np.arange(len(free)))


def of_rounds(context: ScanContext, rounds: BoolArray) -> Iterable[tuple[IntArray, Evidence]]:
    """Yield such gaps, those of one loop's rounds as a match, and those of its backward pass."""
    gaps = np.flatnonzero(rounds)
    following = number(context.rows["gaps"], "next_row")[gaps]
    loop = number(context.rows["activities"], "loop", -1)[following]
    pass_of = codes(loop, context.facts["activities"].backward[following].astype(np.int64))
    for each in sorted_unique(pass_of):
        yield gaps[pass_of == each][None], Evidence.CONSISTENT


def _placed(context: ScanContext, matrix: IntArray, found: ClassEstimate) -> ClassEstimate:
    """Return gaps of a backward pass as what they are part of: the loop that is differentiated."""
    following = number(context.rows["gaps"], "next_row")
    backward = context.facts["activities"].backward[following]
    if not backward[matrix[0, 0]]:
        return found
    loop = number(context.rows["activities"], "loop", -1)[following]
    forward = np.flatnonzero((loop == loop[matrix[0, 0]]) & ~backward)
    return replace(found, label=label_of(context.timeline, context.facts["gaps"], forward[:1]))


def _kernels_ns(context: ScanContext, gaps: IntArray) -> int:
    """Return how much shorter the kernels behind these gaps get, those of a loop's later rounds: each of fewer does
    more, so that of each goes what any kernel takes, however little it does. What another finding has is not counted.
    """
    following = number(context.rows["gaps"], "next_row")[gaps]
    later = (number(context.rows["activities"], "loop_turn")[following] > 0) & ~context.claimed["activities"][following]
    return int(np.minimum(context.facts["activities"].dur_ns[following[later]], KERNEL_NS).sum())


def _one_call(context: ScanContext, gaps: IntArray) -> BoolArray:
    """Return which gaps lie in a loop whose rounds one call could do. They need nothing of each other; and they choose
    their rows by a mask, or hold no products, of which each round's may keep a device busy by themselves.
    """
    rows, waits = context.rows["activities"], context.wait_gaps.behind
    following = number(context.rows["gaps"], "next_row")
    loop = number(rows, "loop", -1)
    masks = np.append(context.waits.kind == WAITS.index("mask"), False)[waits]
    heavy = np.isin(loop, loop[category(rows, "op_class").among(*_PRODUCTS)])
    heavy &= ~np.isin(loop, loop[following[masks]])
    return (context.asked_at_once & ~heavy)[following[gaps]]


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what most of the values are used for that gaps wait for, and whether most of the gaps' time follows a
    loop's waits, and whether its rounds can be done at once.
    """
    if rule.rows != "gaps":
        return {}
    gaps = np.concatenate([one.matrix.reshape(-1) for one in classes])
    return _of_wait(context, gaps) | _of_rounds(context, gaps)


def _of_wait(context: ScanContext, gaps: IntArray) -> dict[str, Fact]:
    """Return what most of the values are used for that these gaps wait for, and what the longest wait is written as."""
    waits = context.waits
    wait_of = np.full(context.timeline.api.num_rows + 1, -1, np.int64)
    wait_of[waits.call_row] = waits.call_of
    wait = wait_of[number(context.rows["gaps"], "sync_row", null=-1)[gaps]]
    wait = np.where(wait >= 0, wait, context.wait_gaps.wait[gaps])
    known = wait >= 0
    if not known.any():
        return {"use": None, "waiting": None}
    idle_ns = context.facts["gaps"].dur_ns[gaps]
    spent = np.bincount(1 + np.append(context.wait_uses, -1)[wait], weights=idle_ns, minlength=len(USES) + 1)
    most = int(spent.argmax()) - 1
    use = USES[most] if most >= 0 and 2 * spent.max() > spent.sum() else None
    of_use = known if use is None else known & (np.append(context.wait_uses, -1)[wait] == most)
    fetches = of_use & np.isin(np.append(waits.kind, -1)[wait], [WAITS.index(each) for each in _FETCHES])
    chosen = fetches if fetches.any() else of_use
    longest = int(wait[chosen][idle_ns[chosen].argmax()])
    return {"use": use, "waiting": written(context, longest)}


def _of_rounds(context: ScanContext, gaps: IntArray) -> dict[str, Fact]:
    waits = category(context.rows["gaps"], "cause").among("after_wait")[gaps]
    if not waits.any():
        return {"rounds": False}
    following, idle_ns = number(context.rows["gaps"], "next_row")[gaps], context.facts["gaps"].dur_ns[gaps]
    found = {"rounds": waits, "at_once": context.asked_at_once[following]}
    return {name: 2 * int(idle_ns[chosen].sum()) > int(idle_ns.sum()) for name, chosen in found.items()}


FACTS = AdviceFacts(
    docs={
        "at_once": FactDoc(
            "most of it lies in a loop of eight rounds or more of the same operators, none of which needs another"
        ),
        "rounds": FactDoc("most of it follows waits of a loop that waits ten times or more in a step"),
        "use": FactDoc(
            "of waits for the device, what most of the values that are fetched there are used for",
            text=True,
            values=USES,
        ),
        "waiting": FactDoc(
            "what the longest of these waits is written as, of those that fetch a value where some do: `{waiting}` in "
            "the text names it",
            text=True,
            values=WRITTEN,
        ),
    },
    find=_facts,
)


def more(context: ScanContext, rule: Rule, named: BoolArray) -> Iterable[tuple[IntArray, Evidence]]:
    """Yield classes of gaps that go with waits and that no pattern names."""
    rounds = in_rounds(context, named)
    return chain(of_waits(context, rule, named, rounds), of_rounds(context, rounds))


CAUSE = Cause(rule="host_sync", estimate=estimate, facts=FACTS, more=more, operators_wait=True)
