"""Findings as two Arrow tables that join with the timeline's: one row a finding, and one an activity of an occurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from tracemine.columns import of_values
from tracemine.findings.record import Finding, Scan, Source
from tracemine.timeline import ColumnSchema, TableSchema

_Of = tuple[ColumnSchema, Callable[[Finding], Any]]  # a column of a finding, and where it comes from


_TEXT, _INT, _FLOAT, _BOOL, _TEXTS = pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.list_(pa.string())
_NOT_ALONE = "no steps are known, or it saves too little to be reported"
_NO_STEPS = "no steps are known"
_NO_SOURCE = "no Python stacks were recorded, or no line leads to it"
_NOT_ESTIMATED = "of idle time, or not estimated"
_NO_VERDICT = "no verdict was given"
_NOT_TIMED = "no verdict was given, or nothing was timed"


def _field(path: str) -> Callable[[Finding], Any]:
    """Return a getter of a dotted name; it gives None where something on the way is null."""
    names = path.split(".")

    def get(finding: Finding) -> Any:
        found: Any = finding
        for name in names:
            found = None if found is None else getattr(found, name)
        return found

    return get


def _of_source(name: str) -> Callable[[Finding], Any]:
    def get(finding: Finding) -> Any:
        first: Source | None = next(iter(finding.source), None)
        return None if first is None else getattr(first, name)

    return get


def _of(name: str, type: pa.DataType, says: str, null: str | None, get: Callable[[Finding], Any]) -> _Of:
    return ColumnSchema(name, type, says, null), get


def _range(name: str, path: str, says: str, null: str | None = None) -> tuple[_Of, _Of, _Of]:
    """Return the ends of a range and its middle, which has the plain name."""
    ends = (("low_ns", "low", "low end"), ("ns", "mid", "middle"), ("high_ns", "high", "high end"))
    low, mid, high = (
        _of(f"{name}_{end}", _INT, f"{says}, nanoseconds: {what} of the interval", null, _field(f"{path}.{field}"))
        for end, field, what in ends
    )
    return low, mid, high


_COLUMNS = (
    _of("fingerprint", _TEXT, "identity of the finding, the same in another recording", None, _field("fingerprint")),
    _of("rule", _TEXT, "id of the rule that found it", None, _field("rule")),
    _of("cause", _TEXT, "why it is slow: what there is one fix for", None, _field("cause")),
    _of("title", _TEXT, "what it is, in a line", None, _field("title")),
    _of("severity", _TEXT, "`high` from 5 % of all unprofiled steps, `medium` from 1 %, `low`", None, _field("severity")),
    _of("evidence", _TEXT, "how sure it is that the activities belong together: `proven`, `consistent`, `adjacent`", None, _field("evidence")),
    _of("reported", _BOOL, "false: it saves too little for a report to show it", None, _field("reported")),
    _of("occurrences", _INT, "how often it occurs in the trace", None, _field("occurrences")),
    _of("variants", _INT, "rows of it that differ in operators or shapes; 0 of findings that schema version 1 stored", None, lambda finding: len(finding.variants)),
    _of("module", _TEXT, "module path, counters replaced by `*`", "no modules were recorded, or none is around it", _field("module")),
    _of("file", _TEXT, "innermost source file that leads to it", _NO_SOURCE, _of_source("file")),
    _of("line", _INT, "line in that file, counted from 1", _NO_SOURCE, _of_source("line")),
    _of("line_begins_function", _BOOL, "whether that is the line at which the function begins: profilers record that, not what was called from where", _NO_SOURCE, _of_source("begins")),
    _of("function", _TEXT, "function that the line is in", _NO_SOURCE, _of_source("function")),
    _of("ops", _TEXTS, "operators in order, kernel families where none is known", None, _field("ops")),
    _of("shapes", _TEXT, "shapes of its inputs", "not recorded, or its variants differ", _field("shapes")),
    _of("dtype", _TEXT, "data type", "not recorded", _field("dtype")),
    _of("measured_ns", _INT, "GPU time of its activities, or idle time of its gaps, nanoseconds over the trace", None, _field("measured_ns")),
    *_range("fused", "fused_ns", "what one kernel would take for all occurrences", _NOT_ESTIMATED),
    *_range("gpu_saving", "gpu_saving_ns", "GPU time saved over the trace"),
    *_range("step_saving", "step_saving_ns", "time by which the steps get shorter, over the trace"),
    _of("per_step_measured_ns", _INT, "measured_ns, the mean over the steps, nanoseconds", _NO_STEPS, _field("per_step.measured_ns")),
    *_range("per_step_gpu_saving", "per_step.gpu_saving_ns", "GPU time saved in each step", _NO_STEPS),
    *_range("per_step_saving", "per_step.step_saving_ns", "time by which each step gets shorter, the finding's part of what all save together", _NO_STEPS),
    *_range("per_step_saving_alone", "per_step.step_saving_alone_ns", "time by which each step gets shorter where its fix is the only one", _NOT_ALONE),
    _of("step_saving_share", _FLOAT, "which part of an unprofiled step per_step_saving_ns is, 0 to 1", _NO_STEPS, _field("per_step.share_of_unprofiled")),
    _of("traffic_before_bytes", _INT, "device memory traffic as it is, bytes over the trace", "not known", _field("traffic_bytes.before")),
    _of("traffic_after_bytes", _INT, "the same of one kernel, bytes", "not known", _field("traffic_bytes.after")),
    _of("intermediate_bytes", _INT, "tensors that need not exist any more, of the largest occurrence, bytes", "not known", _field("intermediate_bytes")),
    _of("flops", _INT, "floating-point operations over the trace", "not known", _field("flops")),
    _of("verdict_level", _TEXT, "how far `tracemine verify` got, `L0` to `L6`, of the first variant that has a verdict", _NO_VERDICT, _field("verdict.level")),
    _of("verdict_basis", _TEXT, "what the saving of GPU time rests on: `measured`, `predicted`, `refuted`", _NO_VERDICT, _field("verdict.basis")),
    _of("verdict_eager_ns", _INT, "median of one occurrence as it is, where it was run again, nanoseconds", _NOT_TIMED, _field("verdict.eager_ns")),
    _of("verdict_fused_ns", _INT, "median of one occurrence as one kernel, likewise, nanoseconds", _NOT_TIMED, _field("verdict.fused_ns")),
    _of("fix", _TEXT, "what to do", None, _field("fix")),
)  # fmt: skip

# Both are written next to a timeline's tables. Opinions, so no part of a Timeline.
FINDINGS = TableSchema(
    "findings",
    "one finding, those that no report shows (`reported` is false) among them",
    "most worth first, those that no report shows last",
    (
        ColumnSchema("trace", _TEXT, "path of the trace, as the scan was given it"),
        ColumnSchema("rank", _INT, "its place in the scan, counted from 1"),
        *(schema for schema, _ in _COLUMNS),
    ),
)

OCCURRENCES = TableSchema(
    "occurrences",
    "one activity of one occurrence of a finding; of gaps, an activity that waited",
    "rank of the finding, then occurrence, then position",
    (
        ColumnSchema("trace", _TEXT, "as in `findings`"),
        ColumnSchema("fingerprint", _TEXT, "as in `findings`"),
        ColumnSchema("variant", _INT, "which variant of the finding it is of, counted from 0"),
        ColumnSchema("variant_fingerprint", _TEXT, "identity of that variant, which verdicts name"),
        ColumnSchema("occurrence", _INT, "which occurrence of the finding, counted from 0: those of the first variant first"),
        ColumnSchema("position", _INT, "which activity of the occurrence, counted from 0"),
        ColumnSchema("activity_row", _INT, "row of `activities`", "the occurrence has no activity: a gap that nothing waited for"),
    ),
)  # fmt: skip


def findings_table(scan: Scan, findings: Sequence[Finding] | None = None) -> pa.Table:
    """Return a table of the schema `FINDINGS`: all findings of a scan or the given ones, under their rank.

    Raise OverflowError for a number beyond 64 bits, which no scan has.
    """
    rank = {id(finding): number for number, finding in enumerate(scan.findings, 1)}
    rows = scan.findings if findings is None else findings
    columns: list[Sequence[Any]] = [[scan.trace.path] * len(rows), [rank[id(finding)] for finding in rows]]
    columns += [[get(finding) for finding in rows] for _, get in _COLUMNS]
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
