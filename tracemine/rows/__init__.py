"""Row sets: columns derived from a timeline, on which rules are matched.

row_sets(timeline)   → {"activities": Rows, "gaps": Rows}
ROW_DOCS             what each column says, its kind, and what null means
"""

from __future__ import annotations

from msgspec.structs import replace

from tracemine.counters import Counters
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.rows.activities import activity_rows
from tracemine.rows.chains import chain_columns
from tracemine.rows.compiled import activity_columns, compiled, gap_columns
from tracemine.rows.docs import ROW_DOCS
from tracemine.rows.gaps import gap_rows
from tracemine.rows.graph import graph_of
from tracemine.rows.hand_casts import hand_casts
from tracemine.rows.invariants import invariant_columns
from tracemine.rows.library import library_columns
from tracemine.rows.measured import measured_columns, ungrouped_columns
from tracemine.rows.operands import operand_columns
from tracemine.rows.precision import scaling_columns
from tracemine.rows.table import Categories, Column, ColumnDoc, Flags, Numbers, Rows
from tracemine.rows.transfers import transfer_columns
from tracemine.rows.turns import turn_columns
from tracemine.rows.updates import update_columns
from tracemine.timeline import Timeline

__all__ = ["ROW_DOCS", "Categories", "Column", "ColumnDoc", "Flags", "Numbers", "Rows", "row_sets"]


def row_sets(
    timeline: Timeline, groups: Groups | None = None, *, counters: Counters | None = None, dataflow: Flow | None = None
) -> dict[str, Rows]:
    """Return every row set of a timeline, by name: with fusion groups and def-use edges where dataflow is known, and
    what Nsight Compute counted, where a report was joined.

    >>> from tracemine.timeline import Meta
    >>> sets = row_sets(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> {name: rows.count for name, rows in sets.items()}
    {'activities': 0, 'gaps': 0}
    """
    found = compiled(timeline)
    activities, gaps = activity_rows(timeline).compact(), gap_rows(timeline).compact()
    activities = activities.with_columns(library_columns(timeline, activities) | transfer_columns(timeline, activities))
    activities = activities.with_columns(measured_columns(timeline, activities, counters))
    activities = activities.with_columns(activity_columns(timeline, found) | chain_columns(activities, groups))
    activities = activities.with_columns(update_columns(timeline, activities) | operand_columns(timeline, activities))
    activities = activities.with_columns(invariant_columns(timeline, activities, dataflow, groups))
    activities = activities.with_columns(scaling_columns(timeline, activities) | ungrouped_columns(activities))
    activities = replace(activities, graph=None if dataflow is None else graph_of(dataflow))
    casts = activities.columns["weight_cast"]
    assert isinstance(casts, Flags)  # noqa: S101 - the row set's documented kind
    by_graph = {"weight_cast": Flags(casts.values | hand_casts(timeline, activities))}
    return {
        "activities": activities.with_columns(by_graph | turn_columns(timeline, activities)),
        "gaps": gaps.with_columns(gap_columns(timeline, found, gaps)),
    }
