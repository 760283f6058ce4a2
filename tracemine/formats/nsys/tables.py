"""What a reader of one export type gives: known tables as columns, whatever the file underneath is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tracemine.columns import Array
from tracemine.timeline.arrow import MISSING, distinct

Numbers = dict[str, Array]  # column → int64, MISSING where null or not there

# `cudaLaunchKernel_v7000`, `cudaMemcpyAsync_ptsz_v7000`: which version of a runtime call, and which default stream.
_VERSION = re.compile(r"(?:_pt(?:sz|ds))?+(?:_v\d++)?+\Z")

UNNAMED = "(unnamed)"
NO_STRING = "text id without a text"


class Tables(Protocol):
    """The tables of one export. `repaired` and `dropped` count what the reader met, `warnings` says what it lacks."""

    path: str
    repaired: Counter[str]
    dropped: Counter[str]
    warnings: list[str]

    @property
    def names(self) -> set[str]:
        """Names of the tables that are there."""

    def columns(self, table: str) -> set[str]:
        """Return names of a table's columns; empty where it is not there."""

    def numbers(self, table: str) -> Numbers:
        """Return the table's columns of `schema.NUMBERS`, all of one length; without rows where it is not there."""

    def texts(self, table: str) -> dict[str, list[str | None]]:
        """Return the table's columns of `schema.TEXTS`, in the same order of rows."""


def nothing(columns: tuple[str, ...], rows: int = 0) -> Numbers:
    """Return columns that are not there.

    >>> nothing(("start",), 1)["start"].tolist() == [MISSING]
    True
    """
    return {name: np.full(rows, MISSING) for name in columns}


class Strings:
    """A growing list of distinct texts, and the export's own ids of some of them.

    >>> strings = Strings(np.array([7]), ["mul"], Counter())
    >>> [strings.texts[i] for i in strings.of_ids(np.array([7, 7, 9])).tolist()]
    ['mul', 'mul', '<string id 9>']
    """

    def __init__(self, ids: Array, values: Sequence[str | None], repaired: Counter[str]) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}
        self._repaired = repaired
        self._values = {i: v for i, v in zip(ids.tolist(), values, strict=True) if v is not None and i != MISSING}

    def code(self, text: str) -> int:
        """Return the number of a text."""
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code

    def value(self, string_id: int) -> str | None:
        """Return the text that the export gives this id."""
        return self._values.get(string_id)

    def of_ids(self, ids: Array, *, without_version: bool = False) -> Array:
        """Return numbers of the texts that the ids name (int32); an id without a text says so, and is counted."""
        codes, firsts = distinct(ids)
        table = np.array([self._named(i, without_version=without_version) for i in firsts.tolist()], np.int32)
        unknown = np.array([i != MISSING and i not in self._values for i in firsts.tolist()], np.bool_)
        if unknown.any():
            self._repaired[NO_STRING] += int(unknown[codes].sum())
        return table[codes] if len(ids) else np.empty(0, np.int32)

    def _named(self, string_id: int, *, without_version: bool) -> int:
        if string_id == MISSING:
            return self.code(UNNAMED)
        text = self._values.get(string_id, f"<string id {string_id}>")
        return self.code(_VERSION.sub("", text) if without_version else text)
