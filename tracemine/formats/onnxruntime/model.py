"""The optimised model next to a profile: its nodes by name, with the tensors that each reads and writes.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from tracemine.errors import TracemineError
from tracemine.files import read_file
from tracemine.formats.xla import wire
from tracemine.formats.xla.wire import Kind

_MODEL = wire.table(graph=(7, Kind.SPAN))
_GRAPH = wire.table(node=(1, Kind.SPANS), initializer=(5, Kind.SPANS), output=(12, Kind.SPANS))
_NODE = wire.table(input=(1, Kind.TEXTS), output=(2, Kind.TEXTS), name=(3, Kind.TEXT), op_type=(4, Kind.TEXT))
_VALUE = wire.table(name=(1, Kind.TEXT))
_CONSTANT = wire.table(name=(8, Kind.TEXT))
_LARGEST_BYTES = 1 << 29  # a model with weights inside; larger ones keep them in files of their own
_MOST_FILES = 50
_LEAST_KNOWN = 0.9  # of the profiled nodes that a model has, to be the one that ran


class ModelNode(Struct, frozen=True):
    """A node of a model."""

    op_type: str
    reads: list[str]
    writes: list[str]


class Model(Struct, frozen=True):
    """A model's nodes by name, what it gives, and its weights."""

    file: str
    nodes: dict[str, ModelNode]
    outputs: frozenset[str]
    constants: frozenset[str]


def model_beside(path: Path, part: Path | None, names: Collection[str]) -> tuple[Model | None, list[str]]:
    """Return the model that has the profiled nodes, and what to say of those that have not.

    part: a model, or the folder that holds it; None: it lies in the profile's.
    """
    fitting, notes = list[tuple[int, Model]](), list[str]()
    folder = path.parent if part is None else part
    for file in sorted(folder.glob("*.onnx"))[:_MOST_FILES] if folder.is_dir() else [folder]:
        try:
            model = read_model(file)
        except TracemineError as error:
            notes.append(f"{file.name} {error.message}: its dataflow is not known.")
            continue
        known = sum(name in model.nodes for name in names)
        if known >= _LEAST_KNOWN * len(names):
            fitting.append((known, model))
        else:
            notes.append(
                f"{file.name} has {known} of the {len(names)} nodes that were profiled: it is not the model that ran, "
                "which optimized_model_filepath saves."
            )
    return (max(fitting, key=lambda pair: pair[0])[1], []) if fitting else (None, notes)


def read_model(path: Path) -> Model:
    """Return the nodes of a model. Raises InputError where it is damaged or too large."""
    data = memoryview(read_file(path, _LARGEST_BYTES))
    span = wire.read(data, (0, len(data)), _MODEL)["graph"]
    graph = wire.read(data, span or (0, 0), _GRAPH)
    nodes = {}
    for span_of_node in graph["node"]:
        node = wire.read(data, span_of_node, _NODE)
        reads, writes = ([name for name in node[key] if name] for key in ("input", "output"))
        nodes[node["name"]] = ModelNode(node["op_type"], reads, writes)
    outputs, constants = (
        frozenset(wire.read(data, named, table)["name"] for named in graph[key])
        for key, table in (("output", _VALUE), ("initializer", _CONSTANT))
    )
    return Model(path.name, nodes, outputs, constants)
