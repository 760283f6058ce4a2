"""One node of an execution trace, in both of the layouts that PyTorch wrote."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder


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
