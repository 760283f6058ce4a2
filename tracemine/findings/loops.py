"""The loop of the program that a finding lies in: its line, how many iterations it has, and what one takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.columns import sorted_unique
from tracemine.findings.context import ScanContext
from tracemine.findings.labels import sources, text_at
from tracemine.findings.record import Finding, Loop
from tracemine.host.uses import shared_path
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import IntArray, category, flags, number
from tracemine.units import count_text, time_text

_DEPENDS: Final = {
    "independent": "no iteration needs what another one computed",
    "accumulates": "iterations add to a sum and need nothing else of each other",
    "carried": "each iteration needs what the one before computed",
}
_DIFFERS: Final = {
    "weights": "each has weights of its own",
    "slices": "each takes its part of a tensor",
    "tensors": "each takes a tensor of its own",
    "numbers": "each takes a few numbers of a tensor",
}


def with_loops(context: ScanContext, findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, those of which most lies in a loop with what is known of that."""
    rows = context.rows["activities"]
    of = number(rows, "loop", -1)
    if not (of >= 0).any():
        return list(findings)
    found = []
    for finding in findings:
        members = np.array([row for occurrence in finding.activities for row in occurrence], np.int64)
        loop = _loop(context, of, members)
        found.append(finding if loop is None else replace(finding, loop=loop, why=f"{finding.why} {_text(loop)}"))
    return found


def _loop(context: ScanContext, of: IntArray, members: IntArray) -> Loop | None:
    """Return the loop in which most of the activities lie, of equal ones the first; None: no half of them lies in any.

    Layers in a row, which work on what the one before gave, are none to speak of.
    """
    rows = context.rows["activities"]
    inside = members[of[members] >= 0]
    if not len(inside) or 2 * len(inside) <= len(members):
        return None
    loops, counts = np.unique(of[inside], return_counts=True)
    whole = np.flatnonzero(of == loops[counts.argmax()])
    dependence, differs = (text_at(category(rows, f"loop_{name}"), int(whole[0])) for name in ("dependence", "differs"))
    waits = bool(flags(rows, "loop_waits")[whole[0]])
    if dependence is None or (dependence == "carried" and not waits and differs in (None, "weights", "tensors")):
        return None
    ops, turn = context.timeline.ops, number(rows, "loop_turn")[whole]
    forward = ~context.facts["activities"].backward[whole]
    op_row = context.facts["activities"].op_row[whole[forward]]
    begin = rows_of(ops["start_ns"])[op_row]
    turns = int(turn.max()) + 1
    stack = rows_of(ops["stack_row"])[op_row]
    path = sorted_unique(stack[stack >= 0])
    parent = rows_of(context.timeline.stacks["parent_row"])
    while len(path) > 1:
        path = sorted_unique(shared_path(parent, path[:-1].copy(), path[1:].copy()))
    source = sources(context.timeline, int(path[0])) if len(path) and path[0] >= 0 else ()
    return Loop(
        source=source[0] if source else None,
        turns=turns,
        launches=round(int(forward.sum()) / turns),
        gpu_ns=int(context.facts["activities"].dur_ns[whole[forward]].sum()) // turns,
        host_ns=int(begin[turn[forward] == turns - 1].min() - begin.min()) // max(turns - 1, 1),
        dependence=dependence,
        differs=differs,
        sizes_differ=bool(flags(rows, "loop_sizes")[whole[0]]),
        waits=waits,
    )


def _text(loop: Loop) -> str:
    """Return what a person reads of a loop."""
    parts = [_DEPENDS[loop.dependence], *filter(None, [_DIFFERS.get(loop.differs or "")])]
    parts += ["shapes differ"] if loop.sizes_differ else []
    parts += ["the host waits for the device in it"] if loop.waits else []
    each = f"{time_text(loop.gpu_ns)} of GPU time and {time_text(loop.host_ns)} of the host each, as recorded"
    launches = count_text(loop.launches, "launch")
    return f"It is a loop of {loop.turns} iterations, {launches}, {each}: {', '.join(parts)}."
