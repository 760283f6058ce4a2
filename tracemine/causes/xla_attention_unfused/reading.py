"""The instructions of a compiled module as rules of XLA see them: what each computes, takes and gives.

A module does the same in each execution: one is read, and what is found in it holds for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct, field

from tracemine.columns import booleans, lists, numbers, string_ids
from tracemine.flow.record import Flow, IntArray
from tracemine.ops.dtypes import itemsize
from tracemine.rows.graph import NodeGraph
from tracemine.timeline import Timeline

_TEXTS: Final = ("name", "body", "library", "precision", "dtypes", "multiplies", "loop")
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
        return int(np.prod(self.shape, dtype=np.int64))


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
    """Executions of instructions: one entry a row of the table `instructions`."""

    op_row: IntArray
    program: IntArray
    execution: IntArray
    names: IntArray
    strings: tuple[str, ...]


def runs_of(timeline: Timeline) -> InstructionRuns:
    """Return the executions of instructions of a timeline."""
    table = timeline.instructions
    names, strings = string_ids(table.column("name"))
    op_row, program, execution = (numbers(table.column(name)) for name in ("op_row", "program", "execution"))
    return InstructionRuns(op_row, program, execution, names, strings)


def modules(flow: Flow, graph: NodeGraph, runs: InstructionRuns) -> Iterator[tuple[int, list[ModuleInstruction]]]:
    """Yield each module that ran, by its program's id, with its instructions in order."""
    node_of = np.full(flow.timeline.ops.num_rows, -1)
    node_of[flow.nodes.op_row] = np.arange(len(flow.nodes))
    facts = _Facts(flow, graph)
    for program in np.unique(runs.program).tolist():
        mine = np.flatnonzero(runs.program == program)
        size = np.bincount(runs.execution[mine])
        of_one = mine[runs.execution[mine] == int(size.argmax())]
        _, first = np.unique(runs.names[of_one], return_index=True)  # of a loop, one iteration
        rows = of_one[np.sort(first)]
        yield program, facts.instructions(rows, node_of[runs.op_row[rows]], runs)


class _Facts:
    """Tables of a timeline, asked for a module's rows."""

    def __init__(self, flow: Flow, graph: NodeGraph) -> None:
        self._flow, timeline = flow, flow.timeline
        table, tensors = timeline.instructions, timeline.tensors
        self._texts = {name: string_ids(table.column(name)) for name in _TEXTS}
        self._numbers = {name: numbers(table.column(name), 0) for name in ("flops", "trips")}
        self._needs, self._result = (booleans(table.column(name)) for name in ("needs_turn", "gives_result"))
        self._kinds = string_ids(timeline.ops.column("name"))
        scope, scopes = string_ids(timeline.ops.column("module"))
        self._scopes = scope, (*scopes, "")  # −1: none
        self._tensor_row = numbers(tensors.column("op_row"))
        self._given = booleans(tensors.column("is_output"))
        self._shape = lists(tensors.column("shape"))
        self._dtype = string_ids(tensors.column("dtype"))
        reads, edges = flow.reads, flow.edges
        self._maker_begin = np.searchsorted(edges.read, np.arange(len(reads.node) + 1))
        self._read_of = np.full(tensors.num_rows, -1)
        self._read_of[reads.tensor_row] = np.arange(len(reads.node))

    def instructions(self, rows: IntArray, nodes: IntArray, runs: InstructionRuns) -> list[ModuleInstruction]:
        """Return the instructions of rows of `instructions`, each with its node."""
        number = {node: at for at, node in enumerate(nodes.tolist()) if node >= 0}
        found = []
        for at, row in enumerate(rows.tolist()):
            op_row = int(runs.op_row[row])
            begin, end = np.searchsorted(self._tensor_row, (op_row, op_row + 1)).tolist()
            arrays = [(self._array(tensor, number), bool(self._given[tensor])) for tensor in range(begin, end)]
            text = {name: self._text(name, row) for name in _TEXTS}
            found.append(
                ModuleInstruction(
                    number=at,
                    name=text["name"],
                    kind=self._kinds[1][self._kinds[0][op_row]].removeprefix("xla::"),
                    body=frozenset(text["body"].split()),
                    library=text["library"],
                    precision=text["precision"],
                    dtypes=frozenset(text["dtypes"].split()),
                    multiplies=text["multiplies"],
                    trains=_BACKWARD in self._scopes[1][self._scopes[0][op_row]],
                    flops=int(self._numbers["flops"][row]),
                    loop=text["loop"],
                    trips=int(self._numbers["trips"][row]),
                    needs_turn=bool(self._needs[row]) or not text["loop"],
                    gives_result=bool(self._result[row]),
                    takes=tuple(array for array, given in arrays if not given),
                    gives=tuple(array for array, given in arrays if given),
                )
            )
        for each in found:
            for maker in {maker for array in each.takes for maker in array.makers}:
                found[maker].readers.append(each.number)
        return found

    def _text(self, name: str, row: int) -> str:
        ids, strings = self._texts[name]
        return strings[ids[row]] if ids[row] >= 0 else ""

    def _array(self, tensor: int, number: dict[int, int]) -> Array:
        values, ends, _ = self._shape
        shape = tuple(values[ends[tensor] : ends[tensor + 1]].tolist())
        dtype = self._dtype[1][self._dtype[0][tensor]]
        read = int(self._read_of[tensor])
        makers: tuple[int, ...] = ()  # none: it comes from outside
        if read >= 0:
            span = slice(int(self._maker_begin[read]), int(self._maker_begin[read + 1]))
            makers = tuple(number[node] for node in self._flow.edges.producer[span].tolist() if node in number)
        return Array(shape, dtype, int(np.prod(shape, dtype=np.int64)) * (itemsize(dtype) or 1), makers)
