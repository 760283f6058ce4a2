"""The optimised model next to a profile: its nodes by name, with the tensors that each reads and writes.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from tracemine.errors import TracemineError
from tracemine.files import read_file
from tracemine.formats.xla.wire import TEXT, read, table

_NODE = table(input=(1, [TEXT]), output=(2, [TEXT]), name=(3, TEXT), op_type=(4, TEXT))
_CONSTANT, _VALUE = table(name=(8, TEXT)), table(name=(1, TEXT))
_MODEL = table(graph=(7, table(node=(1, [_NODE]), initializer=(5, [_CONSTANT]), output=(12, [_VALUE]))))
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
    best: tuple[int, Model] | None = None
    notes = []
    folder = path.parent if part is None else part
    for file in sorted(folder.glob("*.onnx"))[:_MOST_FILES] if folder.is_dir() else [folder]:
        try:
            model = read_model(file)
        except TracemineError as error:
            notes.append(f"{file.name} {error.message}: its dataflow is not known.")
            continue
        known = sum(name in model.nodes for name in names)
        if known < _LEAST_KNOWN * len(names):
            notes.append(
                f"{file.name} has {known} of the {len(names)} nodes that were profiled: it is not the model that ran, "
                "which optimized_model_filepath saves."
            )
        elif best is None or known > best[0]:
            best = (known, model)
    return (None if best is None else best[1]), notes if best is None else []


def read_model(path: Path) -> Model:
    """Return the nodes of a model. Raises InputError where it is damaged or too large."""
    data = memoryview(read_file(path, _LARGEST_BYTES))
    ((found, *named),) = read(data, (0, len(data)), _MODEL)
    nodes = {}
    for reads, writes, name, op_type in found:
        nodes[name] = ModelNode(op_type, [each for each in reads if each], [each for each in writes if each])
    constants, outputs = (frozenset(name for (name,) in each) for each in named)
    return Model(path.name, nodes, outputs, constants)
