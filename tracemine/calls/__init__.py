"""The recorded call: an operator, and what it was called with.

calls_of(timeline)     → Calls: of each row of `ops` the number of its call; identical rows share one
Calls[number]          → Call: overload, arguments, shapes, dtypes; results, bytes and FLOPs that follow from them

A trace is calls; a call reads and writes tensors. Later stages ask a `Call`; nothing reads the texts again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracemine.calls.call import Call, Texts
from tracemine.columns import codes, examples, string_codes
from tracemine.timeline import Timeline

IntArray = npt.NDArray[np.int64]
_Value = TypeVar("_Value")

NAME, SHAPES, DTYPES, STRIDES, VALUES = range(5)  # of what makes a call
_RECORD: Final = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs")  # columns of `ops`


class Calls:
    """The distinct calls of a table of operators. Calls of which nothing but the name was recorded count too."""

    def __init__(self, ops: pa.Table) -> None:
        columns = [string_codes(ops.column(name)) for name in _RECORD]
        number = codes(*(ids for ids, _ in columns))
        rows = examples(number)
        self.number: IntArray = np.append(number, -1)  # of each row of `ops`; one more for the row −1
        self._columns = [strings for _, strings in columns]
        self._parts = [ids[rows] for ids, _ in columns]  # of each number the texts that make it
        self._texts = Texts()
        self._calls: dict[int, Call] = {}

    def __len__(self) -> int:
        return len(self._parts[NAME])

    def __getitem__(self, number: int) -> Call:
        """Return the call of a number; it raises IndexError for one that there is not."""
        call = self._calls.get(number)
        if call is None:
            if not 0 <= number < len(self):
                raise IndexError(number)
            read = self._texts
            name, shapes, dtypes, strides, values = (self.text(number, which) for which in range(len(_RECORD)))
            sizes, steps = read.extents(shapes), read.extents(strides)
            call = Call(name or "", sizes, read.words(dtypes), steps, read.words(values))
            self._calls[number] = call
        return call

    def __iter__(self) -> Iterator[Call]:
        return (self[number] for number in range(len(self)))

    @property
    def damaged(self) -> int:
        """Return how many of the texts read so far are damaged: they count as not recorded."""
        return self._texts.damaged

    def at(self, op_row: int) -> Call | None:
        """Return the call of a row of `ops`; None for −1."""
        number = int(self.number[op_row])
        return None if number < 0 else self[number]

    def text(self, number: int, which: int) -> str | None:
        """Return one of the texts that make a call, as recorded."""
        code = int(self._parts[which][number])
        return self._columns[which][code] if code >= 0 else None

    def distinct(self, op_rows: IntArray) -> tuple[list[Call], IntArray]:
        """Return the distinct calls of some rows of `ops`, and which of them each row's is; −1 for the row −1."""
        number = self.number[op_rows]
        place = np.full(len(self) + 1, -1, np.int64)
        place[number] = 0
        place[-1] = -1
        chosen = np.flatnonzero(place == 0)
        place[chosen] = np.arange(len(chosen))
        return [self[each] for each in chosen.tolist()], place[number]

    def spread(
        self, op_rows: IntArray, of: Callable[[Call], _Value], missing: _Value, kind: npt.DTypeLike = np.int64
    ) -> npt.NDArray[Any]:
        """Return what holds of the call of each of these rows of `ops`, asked for once a distinct call.

        `missing`: what holds for the row −1.
        """
        calls, place = self.distinct(op_rows)
        return np.array([*map(of, calls), missing], kind)[place]

    def alike(self, op_rows: IntArray, *which: int) -> IntArray:
        """Return a number for each of these rows of `ops`, equal where the named texts are; null ones are equal too."""
        number = self.number[op_rows]
        return codes(*(np.append(self._parts[each], -2)[number] for each in which))


__all__ = ["DTYPES", "NAME", "SHAPES", "STRIDES", "Call", "Calls", "calls_of"]

_known: dict[int, tuple[weakref.ref[object], Calls]] = {}  # by the id of a table of operators, while there is one


def calls_of(timeline: Timeline) -> Calls:
    """Return the calls of a timeline: the same object while its table of operators is the same.

    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> len(calls_of(empty)), calls_of(empty) is calls_of(empty)
    (0, True)
    """
    key = id(timeline.ops)
    entry = _known.get(key)
    if entry is None or entry[0]() is not timeline.ops:
        gone = weakref.ref(timeline.ops, lambda _: _known.pop(key, None))
        entry = _known[key] = (gone, Calls(timeline.ops))
    return entry[1]
