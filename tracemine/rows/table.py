"""The types of a row set: what rules are matched against.

A row set holds derived columns, vectorised, over one kind of thing (GPU activities, idle gaps). A column is either
numbers or categories; both can be null, and a test on a null never holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

if TYPE_CHECKING:
    from tracemine.flow.record import Flow
    from tracemine.fusion.record import Groups
    from tracemine.rows.graph import NodeGraph
    from tracemine.timeline import Timeline

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


class Numbers(Struct, frozen=True):
    """int64 (or float64) values, one a row. `valid` is None where no row is null."""

    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    valid: BoolArray | None = None


class Categories(Struct, frozen=True):
    """Strings, one a row, as int32 codes into `values`; code -1 is null."""

    codes: npt.NDArray[np.int32]
    values: tuple[str, ...]

    def among(self, *wanted: str) -> BoolArray:
        """Return which rows have one of these values; a null has none.

        >>> Categories(np.array([1, 0, -1], np.int32), ("a", "b")).among("a", "c").tolist()
        [False, True, False]
        """
        return self.that(lambda value: value in wanted)

    def that(self, holds: Callable[[str], object]) -> BoolArray:
        """Return which rows have a value of which something holds, asked once of each; a null has none."""
        found: BoolArray = np.array([*(bool(holds(value)) for value in self.values), False], np.bool_)[self.codes]
        return found


class Flags(Struct, frozen=True):
    """Booleans, one a row; never null."""

    values: BoolArray


Column = Numbers | Categories | Flags


class ColumnDoc(Struct, frozen=True):
    """A column that a rule may test: its name, kind, unit or values, and what null means."""

    name: str
    kind: str  # "numbers", "categories" or "flags"
    says: str
    null: str | None = None
    evidence: str | None = None  # the column that tells how sure it is


class Rows(Struct, frozen=True):
    """One row set: `kind` names it in a rule's `rows`, `columns` all have `count` rows.

    >>> import numpy as np
    >>> rows = Rows("activities", 2, {"dur_ns": Numbers(np.array([5, 7]))})
    >>> rows.count
    2
    """

    kind: str
    count: int
    columns: dict[str, Column]
    graph: NodeGraph | None = None  # def-use edges among them, where those are known

    def with_columns(self, columns: dict[str, Column]) -> Rows:
        """Return the same rows with these columns in place of their own, or added to them."""
        new = {name: _compact(column) for name, column in columns.items()}
        return Rows(self.kind, self.count, self.columns | new, self.graph)

    def compact(self) -> Rows:
        """Return the same rows, with columns of one value in next to no memory: most are, of most traces."""
        return self.with_columns(self.columns)


class Sources(Struct, frozen=True):
    """A recording, as columns are derived from it: dataflow and fusion groups where they are known."""

    timeline: Timeline
    flow: Flow | None = None
    groups: Groups | None = None


class Columns(Struct, frozen=True, kw_only=True):
    """Columns of activities that one cause brings: what each says, and how they follow from the others."""

    docs: tuple[ColumnDoc, ...]
    derive: Callable[[Sources, Rows], dict[str, Column]]
    needs: tuple[str, ...] = ()  # columns that other causes bring


def in_order(columns: Sequence[Columns]) -> list[Columns]:
    """Return columns such that each comes after those that it needs; what needs each other stays as it is.

    >>> made = [Columns(docs=(ColumnDoc(name, "flags", ""),), derive=dict, needs=needs) for name, needs in
    ...     (("b", ("a",)), ("a", ()))]
    >>> [each.docs[0].name for each in in_order(made)]
    ['a', 'b']
    """
    left, found = list(columns), list[Columns]()
    while left:
        missing = {doc.name for each in left for doc in each.docs}
        free = next((each for each in left if missing.isdisjoint(each.needs)), left[0])
        found.append(free)
        left.remove(free)
    return found


def _compact(column: Column) -> Column:
    if isinstance(column, Categories):
        return Categories(held_once(column.codes), column.values)
    if isinstance(column, Flags):
        return Flags(held_once(column.values))
    return Numbers(held_once(column.values), None if column.valid is None else held_once(column.valid))


def held_once(values: Any) -> Any:
    """Return an array; where all its values are one, a read-only view that repeats it.

    >>> held_once(np.array([7, 7, 7])).strides, held_once(np.array([7, 7, 8])).strides
    ((0,), (8,))
    """
    if not len(values) or values[0] != values[-1] or not (values == values[0]).all():
        return values  # not-a-number equals nothing
    view = np.ndarray(values.shape, values.dtype, values[:1].copy(), strides=(0,))  # faster than broadcast_to
    view.flags.writeable = False
    return view


def numbers_of(rows: Rows, name: str) -> Numbers:
    """Return a number column of a row set."""
    column = rows.columns[name]
    assert isinstance(column, Numbers), name  # noqa: S101 - the row sets' documented kinds
    return column


def number(rows: Rows, name: str, null: int = 0) -> IntArray:
    """Return a number column as int64, nulls replaced."""
    column = numbers_of(rows, name)
    values = column.values.astype(np.int64, copy=False)
    return values if column.valid is None else np.where(column.valid, values, null)


def category(rows: Rows, name: str) -> Categories:
    """Return a category column of a row set."""
    column = rows.columns[name]
    assert isinstance(column, Categories), name  # noqa: S101 - the row sets' documented kinds
    return column


def flags(rows: Rows, name: str) -> BoolArray:
    """Return a flag column of a row set."""
    column = rows.columns[name]
    assert isinstance(column, Flags), name  # noqa: S101 - the row sets' documented kinds
    return column.values
