"""Chains of activities that one kernel may replace: fusion groups where dataflow is known, else stretches of a
stream.
"""

from __future__ import annotations

import numpy as np

from tracemine.fusion.record import Groups
from tracemine.rows.arrow import categories
from tracemine.rows.codes import combination_codes
from tracemine.rows.table import BoolArray, Column, Flags, IntArray, Numbers, Rows
from tracemine.timeline import Timeline


def scopes_begin(timeline: Timeline) -> BoolArray | None:
    """Return the activities with which another pass over the outermost scopes may begin, where each says its
    scopes and not which pass it is part of: none that ran before belongs with it. None: no activity says its scopes.

    A pass begins where the outermost scope is another one, where scopes come in another order than when they were
    first seen, and where a kernel runs in its scope again.
    """
    places = categories(timeline.activities["module"])
    if not (places.codes >= 0).any() and not timeline.untimed:
        return None
    marked = timeline.steps.num_rows > 0  # passes are steps then
    names = categories(timeline.activities["name"]).codes.tolist()
    outermost = [*(place.partition(".")[0] for place in places.values), None]
    first: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    before, found = -1, np.zeros(len(names), np.bool_)
    for at, (place, name) in enumerate(zip(places.codes.tolist(), names, strict=True)):
        order = first.setdefault(place, len(first))
        again = (place, name) in seen or order < first.get(before, 0)
        if (again and not marked) or outermost[place] != outermost[before]:
            found[at] = True
            seen.clear()
        seen.add((place, name))
        before = place
    return found | timeline.untimed


def chain_columns(activities: Rows, groups: Groups | None, begins: BoolArray | None = None) -> dict[str, Column]:
    """Return `chain` and `grouped`; without groups every activity is part of a stretch. begins: see `scopes_begin`.

    >>> from tracemine.timeline import Meta, Timeline
    >>> from tracemine.rows.activities import activity_rows
    >>> rows = activity_rows(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> sorted(chain_columns(rows, None))
    ['chain', 'grouped']
    """
    columns = (activities.columns[name] for name in ("device", "stream", "segment"))
    stretch = combination_codes(*(column for column in columns if isinstance(column, Numbers)))
    if begins is not None:
        stretch = _cut(stretch, begins)
    if groups is None:
        return {"chain": Numbers(stretch), "grouped": Flags(np.zeros(activities.count, np.bool_))}
    group, known = groups.activity_group, groups.activity_known
    stretch = _cut(stretch, known)
    stretches = int(stretch.max(initial=-1)) + 1
    alone = stretches + len(groups) + np.arange(activities.count)
    chain = np.where(group >= 0, stretches + group, np.where(known, alone, stretch))
    return {"chain": Numbers(chain), "grouped": Flags(group >= 0)}


def _cut(stretch: IntArray, known: BoolArray) -> IntArray:
    """Cut stretches where something runs of which the dataflow is known: what is behind it may need that.

    >>> _cut(np.array([0, 0, 0, 1]), np.array([False, True, False, False])).tolist()
    [0, 1, 1, 2]
    """
    order = np.argsort(stretch, kind="stable")
    new = np.append(True, stretch[order][1:] != stretch[order][:-1])[: len(order)] | known[order]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(new) - 1
    return found
