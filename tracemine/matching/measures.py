"""Compute the measures of matches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracemine.errors import Location, RuleError
from tracemine.matching.rule import Measure, Measured, Rule
from tracemine.rows.table import BoolArray, IntArray, Numbers, Rows

Bytes = npt.NDArray[np.uint8]


def measured(
    rule: Rule, rows: Rows, matched: IntArray, offsets: IntArray, variables: Bytes
) -> tuple[dict[str, Measured], dict[str, BoolArray]]:
    measures: dict[str, Measured] = {}
    unknown: dict[str, BoolArray] = {}
    names = list(rule.variables)
    for measure in rule.measures:
        chosen = np.zeros(len(names), np.bool_)
        chosen[[names.index(variable) for variable in measure.variables]] = True
        bound = chosen[variables]
        values, null = _measure(measure, rows, matched, offsets, bound)
        measures[measure.name] = values
        if null.any():
            unknown[measure.name] = null
            measures[measure.name] = values * ~null
    return measures, unknown


def _measure(
    measure: Measure, rows: Rows, matched: IntArray, offsets: IntArray, bound: BoolArray
) -> tuple[Measured, BoolArray]:
    """Return one value a match from its bound rows; and where it is null.

    A sum is null when a value in it was not recorded: less than everything is not a sum. It is 0 over no rows. The
    others are null over no rows, `first` and `last` also where that row's value is null; `min` and `max` skip nulls.
    """
    counts = _sums(bound, offsets)
    if measure.column is None:
        return counts, np.zeros(len(counts), np.bool_)
    column = rows.columns[measure.column]
    if not isinstance(column, Numbers):
        raise RuleError(f"{measure.column!r} holds no numbers", where=Location(rows.kind, None, measure.name))
    known = bound if column.valid is None else bound & column.valid[matched]
    if measure.function == "sum":
        values = np.where(known, column.values[matched], 0)
        return _sums(values, offsets), _sums(known, offsets) < counts
    if measure.function in ("min", "max"):
        recorded = _sums(known, offsets)
        inner = np.zeros(len(recorded) + 1, np.int64)
        np.cumsum(recorded, out=inner[1:])
        reduce = np.minimum if measure.function == "min" else np.maximum
        filled = recorded > 0
        result = _nothing(column, len(recorded))
        if filled.any():
            result[filled] = reduce.reduceat(column.values[matched[known]], inner[:-1][filled])
        return result, ~filled
    at = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=at[1:])
    which = at[:-1] if measure.function == "first" else at[1:] - 1
    some = counts > 0
    row = matched[bound][which[some]]
    result = _nothing(column, len(counts))
    result[some] = column.values[row]
    null = ~some
    if column.valid is not None:
        null[some] |= ~column.valid[row]
    return result, null


def _sums(values: npt.NDArray[np.generic], offsets: IntArray) -> Measured:
    if len(offsets) < 2:
        return np.zeros(0, np.int64)
    # A match has at least one row, so no span is empty, for which reduceat would give its first value.
    dtype = np.float64 if values.dtype.kind == "f" else np.int64
    sums: Measured = np.add.reduceat(values, offsets[:-1], dtype=dtype)
    return sums


def _nothing(column: Numbers, count: int) -> Measured:
    return np.zeros(count, np.float64) if column.values.dtype.kind == "f" else np.zeros(count, np.int64)
