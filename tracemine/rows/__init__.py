"""Row sets: columns derived from a timeline, on which rules are matched.

row_sets(timeline)   → {"activities": Rows, "gaps": Rows}
ROW_DOCS             what each column says, its kind, and what null means; causes bring more (tracemine/causes)
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tracemine.counters import Counters
from tracemine.flow.record import Flow
from tracemine.fusion.record import Groups
from tracemine.rows.activities import activity_rows, transfer_columns, update_columns
from tracemine.rows.chains import chain_columns, scopes_begin
from tracemine.rows.communication import communication_columns
from tracemine.rows.compiled import activity_columns, compiled, gap_columns
from tracemine.rows.docs import ROW_DOCS
from tracemine.rows.gaps import gap_rows
from tracemine.rows.graph import graph_of
from tracemine.rows.library import library_columns
from tracemine.rows.loop_detection import loop_columns
from tracemine.rows.measured import measured_columns, ungrouped_columns
from tracemine.rows.table import Categories, Columns, Flags, Numbers, Rows, Sources, in_order
from tracemine.timeline import Timeline

__all__ = ["ROW_DOCS", "Categories", "Columns", "Flags", "Numbers", "Rows", "row_sets"]


def row_sets(
    timeline: Timeline,
    groups: Groups | None = None,
    *,
    counters: Counters | None = None,
    dataflow: Flow | None = None,
    columns: Sequence[Columns] = (),
) -> dict[str, Rows]:
    """Return every row set of a timeline, by name: with fusion groups and def-use edges where dataflow is known, what
    Nsight Compute counted, where a report was joined, and the columns of activities that causes bring.

    >>> from tracemine.timeline import Meta
    >>> sets = row_sets(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> {name: rows.count for name, rows in sets.items()}
    {'activities': 0, 'gaps': 0}
    """
    found = compiled(timeline)
    activities, gaps = activity_rows(timeline).compact(), gap_rows(timeline).compact()
    activities = activities.with_columns(library_columns(timeline, activities) | transfer_columns(timeline, activities))
    activities = activities.with_columns(communication_columns(timeline, activities))
    activities = activities.with_columns(measured_columns(timeline, activities, counters))
    activities = activities.with_columns(
        activity_columns(timeline, found) | chain_columns(activities, groups, scopes_begin(timeline))
    )
    activities = activities.with_columns(update_columns(timeline) | ungrouped_columns(activities))
    activities = replace(activities, graph=None if dataflow is None else graph_of(dataflow))
    activities = activities.with_columns(loop_columns(timeline, activities, dataflow))
    sources = Sources(timeline, dataflow, groups)
    for each in in_order(columns):
        activities = activities.with_columns(each.derive(sources, activities))
    return {"activities": activities, "gaps": gaps.with_columns(gap_columns(timeline, found, gaps))}
