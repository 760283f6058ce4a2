"""Decoded events to rows, and rows to the columns of RawTrace, a block at a time."""

from __future__ import annotations

import math
import operator
import re
from array import array
from typing import Any, TypeAlias

import numpy as np

from tracemine.formats.kineto.scan import ABSENT, MISSING
from tracemine.formats.kineto.structs import TABLES, EventArgument, EventTable, field_name
from tracemine.formats.kineto.values import NOT_THERE, NS_LIMIT

# What one block holds of one table: arrays of one length, by column. `spelling` is the number of the category as it is
# spelt in the file; text is there as ids; every table has `name`, `pid` and `tid`, whether its columns do or not.
Rows: TypeAlias = dict[str, np.ndarray[Any, Any]]

_NOTHING: dict[str, Any] = {"integer": MISSING, "number": math.nan, "text": None, "raw": b""}
_GETTERS = {
    key: operator.attrgetter(field_name(key))
    for table in TABLES.values()
    for argument in table.arguments
    for key in (argument.key, *argument.aliases)
}
_NAME, _PID, _TID, _ARGS = map(operator.attrgetter, ("name", "pid", "tid", "args"))
_TYPECODES = {"integer": "q", "number": "d", "text": "i", "raw": "i"}
_NUMBER_AT_THE_END = re.compile(r"-?\d{1,18}\s*+$")


class Strings(dict[Any, int]):
    """Text → id, in order of first appearance; names are str, raw JSON text is bytes."""

    def __init__(self) -> None:
        super().__init__({None: ABSENT, b"": ABSENT})
        self._reserved = len(self)

    def __missing__(self, text: str | bytes) -> int:
        number = self[text] = len(self) - self._reserved
        return number

    def table(self) -> list[str]:
        """Return the texts by id."""
        return [t if isinstance(t, str) else t.decode("utf-8", "replace") for t in list(self)[self._reserved :]]


def new_columns(table: EventTable) -> dict[str, array[Any]]:
    """Return a table's columns, empty. Strings are kept as ids."""
    own = {name: array({"category": "B", "name": "i"}.get(name, "q")) for name in table.columns}
    return own | {a.column: array(_TYPECODES[a.kind]) for a in table.arguments}


def as_arrays(columns: dict[str, array[Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Take the columns out one by one, each as an array on its memory."""
    taken = ((name, columns.pop(name)) for name in list(columns))
    return {name: np.frombuffer(values, dtype=values.typecode) for name, values in taken}


def append(columns: dict[str, array[Any]], rows: Rows) -> None:
    """Append rows to the columns of their table."""
    for name, column in columns.items():
        values: Any = np.ascontiguousarray(rows[name], column.typecode)
        column.frombytes(values.view(np.uint8))


def rows_of(
    table: EventTable, events: list[Any], start_ns: Any, dur_ns: Any, spellings: list[int], strings: Strings
) -> Rows:
    """Return the rows of one table's events; `spellings` are their categories' numbers."""
    rows = {
        "spelling": np.array(spellings, np.int64),
        "name": _ids(list(map(_NAME, events)), strings),
        "start_ns": start_ns,
        "dur_ns": dur_ns,
        "pid": _threads(list(map(_PID, events))),
        "tid": _threads(list(map(_TID, events))),
    }
    if table.arguments:
        arguments = list(map(_ARGS, events))
        rows |= {argument.column: _argument(argument, arguments, strings) for argument in table.arguments}
    return rows


def fill_from_threads(rows: Rows) -> None:
    """Set device and stream where `args` does not tell them: a GPU activity's pid is its device, its tid the stream."""
    for name, threads in (("device", "pid"), ("stream", "tid")):
        rows[name] = np.where(rows[name] == MISSING, rows[threads], rows[name])


def _ids(texts: list[Any], strings: Strings) -> Any:
    return np.fromiter(map(strings.__getitem__, texts), np.int32, len(texts))


def _argument(argument: EventArgument, arguments: list[Any], strings: Strings) -> Any:
    """Return what the events' `args` hold under one argument's key, or an alias where that is absent."""
    keys = (argument.key, *argument.aliases)
    values = _values(argument.kind, keys[0], arguments)
    nothing = _NOTHING[argument.kind]
    for alias in keys[1:]:
        if nothing in values:
            others = _values(argument.kind, alias, arguments)
            values = [o if v == nothing else v for v, o in zip(values, others, strict=True)]
    if argument.kind in ("raw", "text"):
        return _ids(values, strings)
    if argument.kind == "number":
        return np.array(values, np.float64)
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([value if abs(value) < NS_LIMIT * 2 else MISSING for value in values], np.int64)


def _values(kind: str, key: str, arguments: list[Any]) -> list[Any]:
    values = list(map(_GETTERS[key], arguments))
    if kind != "raw":
        return values
    return [b""] * len(values) if values.count(NOT_THERE) == len(values) else list(map(bytes, values))


def _threads(values: list[Any]) -> Any:
    """Return process or thread ids, int or text."""
    try:
        return np.array(array("q", values), np.int64)
    except (TypeError, OverflowError):
        return np.array([thread_number(value) for value in values], np.int64)


def thread_number(value: int | str) -> int:
    """Return a process or thread number; of a text such as "stream 7 " the number that it ends with."""
    if isinstance(value, int):
        return value if abs(value) < NS_LIMIT * 2 else MISSING
    match = _NUMBER_AT_THE_END.search(value)
    return int(match[0]) if match else MISSING
