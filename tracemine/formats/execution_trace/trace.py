"""What an execution trace says, as columns: its nodes, and the tensors among their inputs and outputs."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tracemine.formats.execution_trace.nodes import Node, Side

Array = npt.NDArray[Any]

NOT_A_TENSOR = "execution trace: tensor that cannot be read"
_INT64 = range(-(1 << 63), 1 << 63)
_NONE = "<None>"
_FIELDS = 6  # tensor id, storage id, offset, numel, itemsize, device
# One tensor of a type such as `GenericList[Tensor(float),Tensor(nullptr (uninitialized))]`.
_TENSOR_TYPE = re.compile(r"Tensor\(((?:[^()]|\([^()]*\))*)\)")


@dataclass(slots=True)
class ExecutionTrace:
    """Columns of equal length: `nodes` in file order, `tensors` by node; strings are ids into `strings`, -1: none.

    nodes:   id parent record_function_id thread (int64), name schema (string ids)
    tensors: node (row of nodes) is_output position list_index (-1: no list) tensor_id storage_id offset numel itemsize
             (int64), device dtype (string ids), shape_end strides_end (int64): tensor i's sizes are
             sizes[shape_end[i-1]:shape_end[i]], its strides steps[strides_end[i-1]:strides_end[i]], and has_strides
    """

    schema: str
    pid: int | None
    nodes: dict[str, Array]
    tensors: dict[str, Array]
    sizes: Array
    steps: Array
    strings: list[str]
    dropped: Counter[str]
    repaired: Counter[str]
    truncated: bool


_NODE_COLUMNS = ("id", "parent", "record_function_id", "thread", "name", "schema")
_TENSOR_COLUMNS = (
    *("node", "is_output", "position", "list_index"),
    *("tensor_id", "storage_id", "offset", "numel", "itemsize", "device", "dtype"),
    *("shape_end", "strides_end", "has_strides"),
)


@dataclass(slots=True)
class Collector:
    """Takes decoded nodes one after the other and becomes an `ExecutionTrace`."""

    rows: array[int] = field(default_factory=lambda: array("q"))  # node columns, a node after the other
    facts: array[int] = field(default_factory=lambda: array("q"))  # tensor columns, a tensor after the other
    sizes: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    strings: dict[str, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    truncated: bool = False
    # Type text → the ids of its tensors' dtypes, and whether it is a list. () where it holds no tensor.
    _types: dict[str, tuple[bool, Sequence[int]]] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """One node and its tensors."""
        row = len(self.rows) // len(_NODE_COLUMNS)
        record_function, thread, schema = node.facts()
        numbers = (node.id, node.parent(), record_function, thread)
        if not all(number in _INT64 for number in numbers):
            self.dropped["execution trace: number out of range"] += 1
            return
        self.rows.extend((*numbers, self._string(node.name), self._string(schema) if schema else -1))
        for is_output, side in ((0, node.inputs), (1, node.outputs)):
            for position, text in enumerate(side.types):
                is_list, dtypes = self._types.get(text) or self._type(text)
                if not dtypes:
                    continue
                value, shape, strides = side.argument(position)
                if not is_list:
                    self._tensor((row, is_output, position, -1), value, shape, strides, dtypes[0])
                    continue
                types = iter(dtypes)
                for index, (one, its_shape, its_strides) in enumerate(_members(value, shape, strides)):
                    if one != _NONE:  # which has no type among those of tensors
                        place = (row, is_output, position, index)
                        self._tensor(place, one, its_shape, its_strides, next(types, -1))

    def trace(self, schema: str, pid: int | None) -> ExecutionTrace:
        """Everything that was added."""
        return ExecutionTrace(
            schema=schema,
            pid=pid,
            nodes=_columns(self.rows, _NODE_COLUMNS),
            tensors=_columns(self.facts, _TENSOR_COLUMNS),
            sizes=np.array(self.sizes, np.int64),
            steps=np.array(self.steps, np.int64),
            strings=list(self.strings),
            dropped=self.dropped,
            repaired=self.repaired,
            truncated=self.truncated,
        )

    def _tensor(self, place: tuple[int, int, int, int], value: Any, shape: Any, strides: Any, dtype: int) -> None:
        if not _is_tensor(value):
            self.dropped[NOT_A_TENSOR] += 1
            return
        if not value[-1]:
            return  # an undefined tensor: it has no device, and nothing lies behind it
        has_strides = type(strides) is list and type(shape) is list and len(strides) == len(shape)
        try:
            if type(shape) is list:
                self.sizes.extend(shape)
            if has_strides:
                self.steps.extend(strides)
        except (TypeError, OverflowError):  # nested, or too large: then the facts without it mislead
            self.dropped[NOT_A_TENSOR] += 1
            self._cut_back()
            return
        device = self._string(value[-1])
        self.facts.extend((*place, *value[:-1], device, dtype, len(self.sizes), len(self.steps), has_strides))

    def _cut_back(self) -> None:
        """Take back the sizes of a tensor that was not kept."""
        width = len(_TENSOR_COLUMNS)
        sizes, steps = (self.facts[-3], self.facts[-2]) if len(self.facts) >= width else (0, 0)
        del self.sizes[sizes:], self.steps[steps:]

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def _type(self, text: str) -> tuple[bool, Sequence[int]]:
        dtypes = [self._string(name) for name in _TENSOR_TYPE.findall(text)] if "Tensor(" in text else []
        found = self._types[text] = (not text.startswith("Tensor("), dtypes)
        return found


def _is_tensor(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) == _FIELDS
        and type(value[-1]) is str
        and all(type(number) is int and number in _INT64 for number in value[:-1])
    )


def _members(value: Any, shape: Any, strides: Any) -> Iterator[tuple[Any, Any, Any]]:
    """What is in a list, or in a list of lists, in order, with its shape and strides."""
    waiting = [(value, shape, strides)]
    while waiting:
        value, shape, strides = waiting.pop()
        if type(value) is not list or _is_tensor(value):
            yield value, shape, strides
        else:
            waiting.extend((one, Side.at(shape, i), Side.at(strides, i)) for i, one in reversed([*enumerate(value)]))


def _columns(rows: array[int], names: Sequence[str]) -> dict[str, Array]:
    table = np.array(rows, np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(table[:, at]) for at, name in enumerate(names)}
