"""What a reader of one export type gives: known tables as columns, whatever the file underneath is."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import numpy as np

from tracemine.columns import Array
from tracemine.timeline.arrow import MISSING

Numbers = dict[str, Array]  # column → int64, MISSING where null or not there


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
