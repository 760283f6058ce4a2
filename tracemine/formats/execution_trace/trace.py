"""What an execution trace says, as columns: its nodes, and the tensors among their inputs and outputs."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.json import Decoder

from tracemine.columns import Array

NOT_A_TENSOR = "execution trace: tensor that cannot be read"
_NONE = "<None>"
_FIELDS = 6  # tensor id, storage id, offset, numel, itemsize, device
# One tensor of a type such as `GenericList[Tensor(float),Tensor(nullptr (uninitialized))]`.
_TENSOR_TYPE = re.compile(r"Tensor\(((?:[^()]|\([^()]*\))*)\)")


class ExecutionTrace(Struct):
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


class Collector:
    """Takes decoded nodes one after the other and becomes an `ExecutionTrace`."""

    def __init__(self) -> None:
        self.rows: array[int] = array("q")  # node columns, a node after the other
        self.facts: array[int] = array("q")  # tensor columns, a tensor after the other
        self.sizes: array[int] = array("q")
        self.steps: array[int] = array("q")
        self.strings: dict[str, int] = {}
        self.dropped = Counter[str]()
        self.repaired = Counter[str]()
        self.truncated = False
        # Type text → the ids of its tensors' dtypes, and whether it is a list. () where it holds no tensor.
        self._types: dict[str, tuple[bool, Sequence[int]]] = {}

    def add(self, node: TraceNode) -> None:
        """Add one node and its tensors."""
        row = len(self.rows) // len(_NODE_COLUMNS)
        record_function, thread, schema = node.facts()
        numbers = (node.id, node.parent(), record_function, thread)
        strings = (self._string(node.name), self._string(schema) if schema else -1)
        if not _extended(self.rows, (*numbers, *strings)):
            self.dropped["execution trace: number out of range"] += 1
            return
        types = self._types
        for is_output, side in ((0, node.inputs), (1, node.outputs)):
            for position, text in enumerate(side.types):
                is_list, dtypes = types.get(text) or self._type(text)
                if not dtypes:
                    continue
                value, shape, strides = side.argument(position)
                if is_list:
                    self._list((row, is_output, position), value, shape, strides, dtypes)
                else:
                    self._tensor((row, is_output, position, -1), value, shape, strides, dtypes[0])

    def _list(self, place: tuple[int, int, int], value: Any, shape: Any, strides: Any, dtypes: Sequence[int]) -> None:
        types = iter(dtypes)
        for index, (one, its_shape, its_strides) in enumerate(_members(value, shape, strides)):
            if one != _NONE:  # which has no type among those of tensors
                self._tensor((*place, index), one, its_shape, its_strides, next(types, -1))

    def trace(self, schema: str, pid: int | None) -> ExecutionTrace:
        """Return everything that was added."""
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
        if not value[5]:
            return  # an undefined tensor: it has no device, and nothing lies behind it
        sizes, steps = self.sizes, self.steps
        size_count, step_count = len(sizes), len(steps)
        known = type(shape) is list and _extended(sizes, shape)
        has_strides = known and type(strides) is list and len(strides) == len(shape) and _extended(steps, strides)
        facts = (*place, *value[:5], self._string(value[5]), dtype, len(sizes), len(steps), has_strides)
        if not known or max(map(abs, value[2:5])) >> 62 or not _extended(self.facts, facts):
            # Without its shape, or with numbers too large, what is left would mislead.
            del sizes[size_count:], steps[step_count:]
            self.dropped[NOT_A_TENSOR] += 1

    def _string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def _type(self, text: str) -> tuple[bool, Sequence[int]]:
        dtypes = [self._string(name) for name in _TENSOR_TYPE.findall(text)] if "Tensor(" in text else []
        found = self._types[text] = (not text.startswith("Tensor("), dtypes)
        return found


def _is_tensor(value: Any) -> bool:
    if type(value) is not list or len(value) != _FIELDS:
        return False
    tensor, storage, offset, numel, itemsize, device = value
    return type(tensor) is type(storage) is type(offset) is type(numel) is type(itemsize) is int and type(device) is str


def _extended(column: array[int], values: Sequence[Any]) -> bool:
    """Append numbers, all or, where one is none or does not fit, none of them."""
    count = len(column)
    try:
        column.extend(values)
    except (TypeError, OverflowError):
        del column[count:]
        return False
    return True


def _members(value: Any, shape: Any, strides: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield what is in a list, or in a list of lists, in order, with its shape and strides."""
    waiting = [(value, shape, strides)]
    while waiting:
        value, shape, strides = waiting.pop()
        if type(value) is not list or _is_tensor(value):
            yield value, shape, strides
        else:
            waiting.extend(
                (one, ArgumentLists.at(shape, i), ArgumentLists.at(strides, i))
                for i, one in reversed([*enumerate(value)])
            )


def _columns(rows: array[int], names: Sequence[str]) -> dict[str, Array]:
    table = np.array(rows, np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(table[:, at]) for at, name in enumerate(names)}


class ArgumentLists(Struct, gc=False, frozen=True):
    """The inputs, or the outputs: four lists with one entry an argument."""

    values: list[Any] = []
    shapes: list[Any] = []
    types: list[str] = []
    strides: list[Any] = []

    def argument(self, position: int) -> tuple[Any, Any, Any]:
        """Return value, shape and strides at a position; None where one is not recorded."""
        try:
            return self.values[position], self.shapes[position], self.strides[position]
        except IndexError:
            return (
                ArgumentLists.at(self.values, position),
                ArgumentLists.at(self.shapes, position),
                ArgumentLists.at(self.strides, position),
            )

    @staticmethod
    def at(values: Any, index: int) -> Any:
        """Return `values[index]`; None where there is no such thing."""
        return values[index] if type(values) is list and index < len(values) else None


class Attribute(Struct, gc=False, frozen=True):
    """A named value besides a node's inputs and outputs."""

    name: str
    value: Any = None


class TraceNode(Struct, gc=False, frozen=True):
    """The layout since torch 2.2 (Chakra)."""

    id: int
    name: str
    ctrl_deps: Any = 0
    inputs: ArgumentLists = ArgumentLists()
    outputs: ArgumentLists = ArgumentLists()
    attrs: list[Attribute] = []

    def parent(self) -> int:
        """Return id of the node around it, 0 where there is none."""
        return self.ctrl_deps if type(self.ctrl_deps) is int else 0

    def facts(self) -> tuple[int, int, str]:
        """Record function id, thread, operator schema; 0 and "" where there is none."""
        named = {attribute.name: attribute.value for attribute in self.attrs}
        return _integer(named.get("rf_id")), _integer(named.get("tid")), _text(named.get("op_schema"))


class FlatNode(Struct, gc=False, frozen=True):
    """The layout of torch 1.13 to 2.1."""

    name: str
    id: int
    parent: int = 0
    rf_id: int = 0
    tid: int = 0
    op_schema: str = ""
    inputs: list[Any] = []
    input_shapes: list[Any] = []
    input_types: list[str] = []
    outputs: list[Any] = []
    output_shapes: list[Any] = []
    output_types: list[str] = []

    def node(self) -> TraceNode:
        """Return the same in the later layout."""
        facts = (("rf_id", self.rf_id), ("tid", self.tid), ("op_schema", self.op_schema))
        return TraceNode(
            id=self.id,
            name=self.name,
            ctrl_deps=self.parent,
            inputs=ArgumentLists(self.inputs, self.input_shapes, self.input_types),
            outputs=ArgumentLists(self.outputs, self.output_shapes, self.output_types),
            attrs=[Attribute(name, value) for name, value in facts],
        )


def _integer(value: Any) -> int:
    return value if type(value) is int else 0


def _text(value: Any) -> str:
    return value if type(value) is str else ""


class NodeLayout(Struct, frozen=True):
    """How a node begins, where its name stands, and what decodes it."""

    begin: re.Pattern[bytes]  # of a node, and of nothing inside one
    name: re.Pattern[bytes]  # group 1: what stands between the name's quotes, escaped or not
    many: Decoder[Any]
    one: Decoder[Any]


CHAKRA = NodeLayout(
    begin=re.compile(rb'\{\s*+"id"\s*+:\s*+\d++\s*+,\s*+"name"\s*+:'),
    name=re.compile(rb'\A\{\s*+"id"\s*+:\s*+\d++\s*+,\s*+"name"\s*+:\s*+"(.*?)"\s*+,\s*+"ctrl_deps"\s*+:', re.DOTALL),
    many=Decoder(list[TraceNode]),
    one=Decoder(TraceNode),
)
FLAT = NodeLayout(
    begin=re.compile(rb'\{\s*+"name"\s*+:'),
    name=re.compile(rb'\A\{\s*+"name"\s*+:\s*+"(.*?)"\s*+,\s*+"id"\s*+:', re.DOTALL),
    many=Decoder(list[FlatNode]),
    one=Decoder(FlatNode),
)


def layout_of(text: bytes) -> NodeLayout | None:
    """Return the layout of a text that begins with a node; None: neither, or another order of keys.

    >>> layout_of(b'{"id": 2, "name": "aten::mul", "ctrl_deps": 1') is CHAKRA
    True
    """
    return next((layout for layout in (CHAKRA, FLAT) if layout.begin.match(text)), None)
