"""Findings as two Arrow tables that join with the timeline's: a row a finding, and one an activity of an occurrence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tracemine.columns import of_values
from tracemine.findings.record import Finding, Scan
from tracemine.tables import table_beside
from tracemine.timeline import TableSchema, tables_beside

_PATHS: Mapping[str, str] = table_beside(__file__, "schema.toml")["findings"]["paths"]
# Both are written next to a timeline's tables. Opinions, so no part of a Timeline.
FINDINGS, OCCURRENCES = tables_beside(__file__).values()


def _value(finding: Finding, column: str) -> Any:
    """Return what a finding has in a column; None where something on the way to it is null, or a list is empty."""
    if column == "variants":
        return len(finding.variants)
    found: Any = finding
    for name in _PATHS.get(column, column).split("."):
        found = next(iter(found), None) if isinstance(found, tuple) else found
        found = None if found is None else getattr(found, name)
    return found


def findings_table(scan: Scan, findings: Sequence[Finding] | None = None) -> pa.Table:
    """Return a table of the schema `FINDINGS`: all findings of a scan or the given ones, under their rank.

    Raise OverflowError for a number beyond 64 bits, which no scan has.
    """
    rank = {id(finding): number for number, finding in enumerate(scan.findings, 1)}
    rows = scan.findings if findings is None else findings
    columns: list[Sequence[Any]] = [[scan.trace.path] * len(rows), [rank[id(finding)] for finding in rows]]
    columns += [[_value(finding, column.name) for finding in rows] for column in FINDINGS.columns[2:]]
    return _table(FINDINGS, columns)


def occurrences_table(scan: Scan, findings: Sequence[Finding] | None = None) -> pa.Table:
    """Return a table of the schema `OCCURRENCES`, of all findings of a scan or the given ones. Raise OverflowError."""
    rows = [row for finding in (scan.findings if findings is None else findings) for row in _occurrences(finding)]
    columns: list[Sequence[Any]] = [[scan.trace.path] * len(rows), *zip(*rows, strict=True)]
    return _table(OCCURRENCES, columns if rows else [])


def _occurrences(finding: Finding) -> Iterable[tuple[str, int, str, int, int, int | None]]:
    marks = [variant.identity.finding for variant in finding.variants] or [finding.fingerprint]
    ends = [*accumulate(variant.occurrences for variant in finding.variants)]
    variant = 0
    for number, activities in enumerate(finding.activities):
        while variant + 1 < len(ends) and number >= ends[variant]:
            variant += 1
        for position, row in enumerate(activities or (None,)):
            yield finding.fingerprint, variant, marks[variant], number, position, row


def _table(of: TableSchema, columns: Sequence[Sequence[Any]]) -> pa.Table:
    """Return columns of Python values as a table of this schema."""
    given = columns or [()] * len(of.columns)
    arrays = [of_values(values, column.type) for values, column in zip(given, of.columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=of.schema)
