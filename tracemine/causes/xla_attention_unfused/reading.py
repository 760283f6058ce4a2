"""The instructions of a compiled module as rules of XLA see them: what each computes, takes and gives.

A module does the same in each execution: one is read, and what is found in it holds for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from tracemine.columns import numbers, sorted_unique, string_ids
from tracemine.flow.record import Flow, IntArray
from tracemine.ops.dtypes import itemsize

_BACKWARD: Final = "transpose("  # as JAX names the scope of what differentiates


class Array(Struct, frozen=True):
    """An array that an instruction takes or gives; `makers`: which instructions wrote it."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    makers: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Return how many elements it has.

        >>> Array((2, 3), "float32", 24).elements
        6
        """
        return math.prod(self.shape)


class ModuleInstruction(Struct, frozen=True, kw_only=True):
    """One instruction; numbers are positions in its module."""

    number: int
    name: str
    kind: str  # product, convolution, attention, reduction, elementwise, movement, collective, custom
    body: frozenset[str]
    library: str
    precision: str
    dtypes: frozenset[str]  # of the arrays in it
    multiplies: str  # what a product multiplies
    trains: bool  # differentiates
    flops: int
    loop: str
    trips: int
    needs_turn: bool
    gives_result: bool = False
    takes: tuple[Array, ...]
    gives: tuple[Array, ...]
    readers: list[int] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Return the bytes that it moves."""
        return sum(each.nbytes for each in (*self.takes, *self.gives))


class InstructionRuns(Struct, frozen=True):
    """Executions of instructions, an entry a row of the table `instructions`, and the modules that they are of."""

    op_row: IntArray
    program: IntArray
    execution: IntArray
    number: IntArray  # position in its module; −1: it is in no execution that was read
    modules: dict[int, list[ModuleInstruction]]  # by the program's id, instructions in order


def runs_of(flow: Flow) -> InstructionRuns:
    """Return the executions of instructions. Of each module the longest is read."""
    table = flow.timeline.instructions
    names = string_ids(table.column("name"))[0]
    op_row, program, execution = (numbers(table.column(name)) for name in ("op_row", "program", "execution"))
    node_of = np.full(flow.timeline.ops.num_rows, -1)
    node_of[flow.nodes.op_row] = np.arange(len(flow.nodes))
    facts, number = _Facts(flow), np.full(len(names), -1)
    found: dict[int, list[ModuleInstruction]] = {}
    for each in sorted_unique(program).tolist():
        mine = np.flatnonzero(program == each)
        of_one = mine[execution[mine] == int(np.bincount(execution[mine]).argmax())]
        _, first = np.unique(names[of_one], return_index=True)  # of a loop, one iteration
        rows = of_one[np.sort(first)]
        place = np.full(int(names.max()) + 1, -1)
        place[names[rows]] = np.arange(len(rows))
        number[mine] = place[names[mine]]
        found[each] = facts.instructions(rows, node_of[op_row[rows]])
    return InstructionRuns(op_row, program, execution, number, found)


class _Facts:
    """Tables of a timeline, asked for a module's rows."""

    def __init__(self, flow: Flow) -> None:
        self._timeline, self._producer = flow.timeline, flow.edges.producer
        self._tensor_row = numbers(flow.timeline.tensors.column("op_row"))
        self._maker_begin = np.searchsorted(flow.edges.read, np.arange(len(flow.reads.node) + 1))
        self._read_of = np.full(flow.timeline.tensors.num_rows, -1)
        self._read_of[flow.reads.tensor_row] = np.arange(len(flow.reads.node))

    def instructions(self, rows: IntArray, nodes: IntArray) -> list[ModuleInstruction]:
        """Return the instructions of rows of `instructions`, each with its node."""
        number = {node: at for at, node in enumerate(nodes.tolist()) if node >= 0}
        found = []
        for at, row in enumerate(_records(self._timeline.instructions, rows)):
            (op,) = _records(self._timeline.ops, [row["op_row"]], ("name", "module"))
            begin, end = np.searchsorted(self._tensor_row, (row["op_row"], row["op_row"] + 1)).tolist()
            tensors = _records(self._timeline.tensors, range(begin, end), ("shape", "dtype", "is_output"))
            arrays = [(self._array(each, at, number), each["is_output"]) for at, each in enumerate(tensors, begin)]
            found.append(
                ModuleInstruction(
                    number=at,
                    name=row["name"],
                    kind=op["name"].removeprefix("xla::"),
                    body=frozenset(row["body"].split()),
                    library=row["library"],
                    precision=row["precision"],
                    dtypes=frozenset(row["dtypes"].split()),
                    multiplies=row["multiplies"],
                    trains=_BACKWARD in op["module"],
                    flops=row["flops"],
                    loop=row["loop"],
                    trips=row["trips"],
                    needs_turn=row["needs_turn"] or not row["loop"],
                    gives_result=row["gives_result"],
                    takes=tuple(array for array, given in arrays if not given),
                    gives=tuple(array for array, given in arrays if given),
                )
            )
        for each in found:
            for maker in {maker for array in each.takes for maker in array.makers}:
                found[maker].readers.append(each.number)
        return found

    def _array(self, tensor: dict[str, Any], row: int, number: dict[int, int]) -> Array:
        read, shape = int(self._read_of[row]), tuple(tensor["shape"])
        makers: tuple[int, ...] = ()  # none: it comes from outside
        if read >= 0:
            span = slice(int(self._maker_begin[read]), int(self._maker_begin[read + 1]))
            makers = tuple(number[node] for node in self._producer[span].tolist() if node in number)
        return Array(shape, tensor["dtype"], math.prod(shape) * (itemsize(tensor["dtype"]) or 1), makers)


def _records(table: pa.Table, rows: Iterable[int], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return rows as dictionaries; of what is null 0 where it is a number, else an empty text."""
    columns = {name: table.column(name) for name in names or table.column_names}
    nothing = {name: 0 if pa.types.is_integer(column.type) else "" for name, column in columns.items()}
    return [
        {
            name: nothing[name] if (value := column[int(row)].as_py()) is None else value
            for name, column in columns.items()
        }
        for row in rows
    ]
