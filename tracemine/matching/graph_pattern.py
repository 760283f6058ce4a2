"""The graph pattern language: text to a checked tree, for what names and order do not tell.

    match   = path ("," path)* ("WHERE" test ("AND" test)*)? ("ONLY READER" "(" names ")")?
    path    = node (edge node | edge count group)*
    node    = "(" variable ("IS" label ("|" label)*)? ")"
    edge    = "-[reads]->" | "<-[reads]-"
    count   = "{n}" | "{n,m}"
    group   = "(" variable ("IS" labels)? ")" | "(" ":" label ("|" label)* ")"
    test    = operand ("=" | "<>" | "<" | "<=" | ">" | ">=") operand | "SAME INPUT" "(" variable "," variable ")"
    operand = variable "." column ("[" index "]")? | integer | "'" text "'"

The words are those of SQL:2023's property graph patterns, as far as they are needed; anything else is refused with the
reason. A vertex is an operator that launched something, an edge says that one reads what the other wrote, through
whatever views. The count stands behind its edge, as there: so many edges in a row, each to a node with these labels.
Where there are none, the next edge begins at the node before.

Every count is bounded, and every path must share a variable with those before it, so that a match is a connected piece
of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from msgspec import Struct

MOST_WAYS: Final = 64  # combinations of counts between two nodes
PLACES: Final = ("in0", "in1", "in2", "out")
# What a test may ask of a node, and of which kind it is: of its operator's first three inputs and its first output.
COLUMNS: Final = {
    **{f"{place}_shape": "shape" for place in PLACES},
    **{f"{place}_rank": "number" for place in PLACES},
    **{f"{place}_dtype": "text" for place in PLACES},
    **{f"{place}_layout": "text" for place in PLACES},
    **{f"{place}_memory": "shape" for place in PLACES},
    "axis": "number",
}
COLUMN_SAYS: Final = {
    "in0_shape": "sizes of the operator's first input, tensors counted in order of its arguments; with an index one of "
    "them: `in0_shape[-1]`. Likewise `in1`, `in2`, and `out`, its first output",
    "in0_rank": "how many axes it has",
    "in0_dtype": "its dtype as the trace names it: `float32`, `bfloat16`",
    "in0_layout": "`contiguous`, `channels_last` (and not contiguous), or `strided`: anything else",
    "in0_memory": "its sizes in the order in which they lie, outermost first, without those of 1; known where it lies "
    "without gaps, in whatever order of axes",
    "axis": "the one axis along which the operator works (softmax, cat, a reduction over one), counted from the end: "
    "−1 is the last",
}
LAYOUTS: Final = ("contiguous", "channels_last", "strided")


class Group(Struct, frozen=True):
    """Between `low` and `high` edges in a row, each to a node with one of the labels; without a name shown by those."""

    name: str | None
    labels: tuple[str, ...]
    reads: bool  # of each edge: the node before reads the one behind
    low: int
    high: int

    @property
    def shown(self) -> tuple[str, ...]:
        """What its nodes may be called."""
        return self.labels if self.name is None else (self.name,)


class Segment(Struct, frozen=True):
    """From one vertex over groups to the next one, or to wherever the groups end (`last` None)."""

    first: str
    groups: tuple[Group, ...]
    reads: bool  # of the last edge, to `last`
    last: str | None

    def ways(self) -> Iterator[tuple[int, ...]]:
        """Yield every combination of how often each group is there, the most first."""
        return product(*(range(group.high, group.low - 1, -1) for group in self.groups))


class Operand(Struct, frozen=True):
    """One side of a comparison: a column of a vertex, whole or at an index, or a value."""

    name: str | None
    column: str
    index: int | None
    value: int | str | None

    @property
    def kind(self) -> str:
        """`shape`, `number` or `text`."""
        if self.name is None:
            return "text" if isinstance(self.value, str) else "number"
        return "number" if self.index is not None else COLUMNS[self.column]

    def __str__(self) -> str:
        if self.name is None:
            return repr(self.value)
        return f"{self.name}.{self.column}" + ("" if self.index is None else f"[{self.index}]")


class Comparison(Struct, frozen=True, tag=True):
    """A test of WHERE on one or two columns; null on a side: it does not hold."""

    left: Operand
    sign: str
    right: Operand

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(side.name for side in (self.left, self.right) if side.name is not None)


class SameInput(Struct, frozen=True, tag=True):
    """A test of WHERE: two vertices read one value, or parts of one that lie over each other."""

    one: str
    other: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.one, self.other


Test = Comparison | SameInput


class GraphPattern(Struct, frozen=True):
    """A pattern that was checked."""

    text: str
    vertices: dict[str, tuple[str, ...]]  # nodes that a match must have once, and labels of which each has one
    segments: tuple[Segment, ...]
    where: tuple[Test, ...]
    only_reader: tuple[str, ...]

    @property
    def groups(self) -> tuple[Group, ...]:
        """Every group, in the order of the text."""
        return tuple(group for segment in self.segments for group in segment.groups)

    @property
    def variables(self) -> tuple[str, ...]:
        """What nodes of a match are called: vertices, then groups; of a group without a name its labels."""
        shown = [name for group in self.groups for name in group.shown]
        return tuple(dict.fromkeys([*self.vertices, *shown]))

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label that it asks for."""
        found = [*self.vertices.values(), *(group.labels for group in self.groups)]
        return tuple(dict.fromkeys(label for labels in found for label in labels))


# --- what makes a pattern one piece of bounded size ------------------------------------------------------------------
