"""Decoded events to the columns of RawTrace, a list at a time."""

from __future__ import annotations

import math
import operator
import re
from array import array
from typing import Any

import numpy as np

from tracemine.formats.kineto.events import TABLES, Argument, Table
from tracemine.formats.kineto.scan import ABSENT, MISSING
from tracemine.formats.kineto.structs import field_name
from tracemine.formats.kineto.values import NOT_THERE, NS_LIMIT

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


def new_columns(table: Table) -> dict[str, array[Any]]:
    """Return a table's columns, empty. Strings are kept as ids."""
    own = {name: array({"category": "B", "name": "i"}.get(name, "q")) for name in table.columns}
    return own | {a.column: array(_TYPECODES[a.kind]) for a in table.arguments}


def as_arrays(columns: dict[str, array[Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Take the columns out one by one, each as an array on its memory."""
    taken = ((name, columns.pop(name)) for name in list(columns))
    return {name: np.frombuffer(values, dtype=values.typecode) for name, values in taken}


def append_events(
    table: Table,
    columns: dict[str, array[Any]],
    events: list[Any],
    start_ns: Any,
    dur_ns: Any,
    codes: list[int],
    strings: Strings,
) -> None:
    """Append events of one table; `codes` are their categories' numbers."""
    columns["start_ns"].frombytes(start_ns.view(np.uint8))
    if "dur_ns" in table.columns:
        columns["dur_ns"].frombytes(dur_ns.view(np.uint8))
    if "category" in table.columns:
        columns["category"].fromlist(codes)
    if "name" in table.columns:
        columns["name"].fromlist(list(map(strings.__getitem__, list(map(_NAME, events)))))
    if "pid" in table.columns:
        _extend_threads(columns["pid"], list(map(_PID, events)))
        _extend_threads(columns["tid"], list(map(_TID, events)))
    if table.arguments:
        arguments = list(map(_ARGS, events))
        for argument in table.arguments:
            _append_argument(columns, argument, arguments, strings)
    if table.name == "gpu":
        _fill_from_threads(columns, events)


def _append_argument(
    columns: dict[str, array[Any]], argument: Argument, arguments: list[Any], strings: Strings
) -> None:
    """Append what the events' `args` hold under one argument's key, or an alias where that is absent."""
    keys = (argument.key, *argument.aliases)
    values = _values(argument.kind, keys[0], arguments)
    nothing = _NOTHING[argument.kind]
    for alias in keys[1:]:
        if nothing in values:
            others = _values(argument.kind, alias, arguments)
            values = [o if v == nothing else v for v, o in zip(values, others, strict=True)]
    column = columns[argument.column]
    if argument.kind in ("raw", "text"):
        column.fromlist(list(map(strings.__getitem__, values)))
    else:
        try:
            column.fromlist(values)
        except OverflowError:
            column.fromlist([value if abs(value) < NS_LIMIT * 2 else MISSING for value in values])


def _values(kind: str, key: str, arguments: list[Any]) -> list[Any]:
    values = list(map(_GETTERS[key], arguments))
    if kind != "raw":
        return values
    return [b""] * len(values) if values.count(NOT_THERE) == len(values) else list(map(bytes, values))


def _extend_threads(column: array[Any], values: list[Any]) -> None:
    """Append process or thread ids, int or text."""
    try:
        column.fromlist(values)
    except (TypeError, OverflowError):
        column.fromlist([_thread(value) for value in values])


def _thread(value: int | str) -> int:
    """Return a process or thread number; of a text such as "stream 7 " the number that it ends with."""
    if isinstance(value, int):
        return value if abs(value) < NS_LIMIT * 2 else MISSING
    match = _NUMBER_AT_THE_END.search(value)
    return int(match[0]) if match else MISSING


def _fill_from_threads(columns: dict[str, array[Any]], events: list[Any]) -> None:
    """Device and stream that `args` does not tell: a GPU activity's pid is its device and its tid the stream."""
    for name, threads in (("device", "pid"), ("stream", "tid")):
        column = columns[name]
        first = len(column) - len(events)
        if MISSING in column[first:]:
            for row, event in enumerate(events, first):
                if column[row] == MISSING:
                    column[row] = _thread(getattr(event, threads))
