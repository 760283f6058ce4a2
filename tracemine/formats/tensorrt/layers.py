"""An engine's layers, as `trtexec --exportLayerInfo` writes them with detailed profiling verbosity."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct

from tracemine.errors import InputError, Location
from tracemine.formats.tensorrt.files import content, damaged

DETAILED = "--profilingVerbosity=detailed"
_DTYPES = {
    "int8": "int8", "fp8": "float8_e4m3fn", "fp16": "float16", "half": "float16", "fp32": "float32",
    "float": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16", "int32": "int32", "int64": "int64",
    "bool": "bool", "uint8": "uint8",
}  # fmt: skip
_DTYPE = re.compile(rf"\b({'|'.join(_DTYPES)})\b", re.IGNORECASE)
_WIDE = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_VECTOR = re.compile(rf"\b({'|'.join(_WIDE)}) wide\b|channel % (\d{{1,3}}) == 0", re.IGNORECASE)
_WEIGHTS = re.compile(r"(?:^|\+ )([\w.]{1,200})\.weight\b")
_NODE = re.compile(r"(?:^|: |\+ )/([\w./]{1,200})/\w+")
_LARGEST = 1 << 40  # elements of a dimension
_MOST_TENSORS = 4_096  # of one layer
_NARROW = frozenset({"int8", "float8_e4m3fn"})  # what products of a quantised engine read
_TEXT_LIMIT = 1_000  # characters of a name


class EngineTensor(Struct, frozen=True):
    """A tensor as one layer reads or writes it. A dimension of −1 is not known before the engine runs."""

    name: str
    dims: tuple[int, ...]
    dtype: str | None  # canonical; None: not known
    layout: str  # as written, such as `Thirty-two wide channel vectorized row major Int8 format`
    channels: int = 1  # that are padded to a multiple of this

    @property
    def elements(self) -> int | None:
        """Return how many elements lie in memory, those of padding too; None where a dimension is not known."""
        if any(size < 0 for size in self.dims):
            return None
        padded = [*self.dims]
        if len(padded) > 1 and self.channels > 1:
            padded[1] = -(-padded[1] // self.channels) * self.channels
        return prod(padded)


class Layer(Struct, frozen=True):
    """One layer of an engine."""

    name: str
    kind: str  # such as `Convolution`, `Pooling`, `Reformat`, `Quantize`
    reads: tuple[EngineTensor, ...]
    writes: tuple[EngineTensor, ...]
    tactic: str
    kernel: tuple[int, ...] = ()  # of a convolution or a pooling
    groups: int = 1
    stream: int = 0
    module: str | None = None  # where in the model it comes from


def read_layers(path: Path) -> list[Layer]:
    """Return the layers of an engine, in its order. Raises InputError where they are damaged, or names alone."""
    rows_read = content(path)
    rows = rows_read.get("Layers") if isinstance(rows_read, dict) else None
    if not isinstance(rows, list) or not rows:
        raise damaged(path, "it has no list of layers")
    if all(isinstance(row, str) for row in rows):
        raise InputError(
            "is TensorRT's layers by their names alone",
            where=Location(str(path)),
            hint=f"build and export them with {DETAILED}",
        )
    layers = [_layer(row) for row in rows if isinstance(row, dict) and isinstance(row.get("Name"), str)]
    if len(layers) < len(rows):
        raise damaged(path, f"{len(rows) - len(layers)} of its layers have no name")
    return layers


def _layer(row: dict[str, Any]) -> Layer:
    reads, writes = (_tensors(row.get(key)) for key in ("Inputs", "Outputs"))
    stream, groups = row.get("StreamId"), row.get("Groups")
    return Layer(
        name=row["Name"][:_TEXT_LIMIT],
        kind=_kind(row, reads, writes),
        reads=reads,
        writes=writes,
        tactic=str(row.get("TacticName") or "")[:_TEXT_LIMIT],
        kernel=_dims(row.get("Kernel")),
        groups=groups if isinstance(groups, int) and 0 < groups < _LARGEST else 1,
        stream=stream if isinstance(stream, int) and 0 <= stream < _LARGEST else 0,
        module=_module(row["Name"], str(row.get("Metadata") or "")),
    )


def _module(name: str, metadata: str) -> str | None:
    """Return the module whose weights or whose ONNX nodes a layer is named after.

    >>> _module("layer1.0.conv2.weight + QuantizeLinear_32 + Conv_34 + Add_36", ""), _module("MaxPool_2", "")
    ('layer1.0.conv2', None)
    >>> _module("conv_myl0_1", "[ONNX Layer: /backbone/layer1/conv2/Conv]")
    'backbone.layer1.conv2'
    """
    rows_read = _NODE.search(metadata[:_TEXT_LIMIT] or name[:_TEXT_LIMIT])
    weights = _WEIGHTS.search(name[:_TEXT_LIMIT])
    return weights[1] if weights else rows_read[1].replace("/", ".") if rows_read else None


def _kind(row: dict[str, Any], reads: tuple[EngineTensor, ...], writes: tuple[EngineTensor, ...]) -> str:
    """Return what a layer does. Conversions have one type, and their origin tells what they are for; up to TensorRT 8.2
    those of precision are scales.
    """
    if row.get("LayerType") == "NoOp":
        return "NoOp"
    narrow = [bool(one) and one[0].dtype in _NARROW for one in (reads, writes)]
    if row.get("Origin") == "QDQ" or (row.get("ParameterType") == "Scale" and narrow[0] != narrow[1]):
        return "Quantize" if narrow[1] else "Dequantize"
    if row.get("LayerType") == "Padding" or (row.get("ParameterType") == "Slice" and row.get("Mode") == "FILL"):
        return "Padding"
    kind = str(row.get("ParameterType") or row.get("LayerType") or "Layer")
    return re.sub(r"\W+", "_", kind)[:_TEXT_LIMIT] or "Layer"


def _tensors(rows: Any) -> tuple[EngineTensor, ...]:
    rows_read = rows[:_MOST_TENSORS] if isinstance(rows, list) else ()
    return tuple(_tensor(row) for row in rows_read if isinstance(row, dict) and isinstance(row.get("Name"), str))


def _tensor(row: dict[str, Any]) -> EngineTensor:
    layout = " ".join(str(row[key]) for key in ("Format/Datatype", "Format", "Datatype", "DataType") if row.get(key))
    dtype, vector = _DTYPE.search(layout), _VECTOR.search(layout)
    channels = 1 if vector is None else _WIDE[vector[1].lower()] if vector[1] else int(vector[2])
    return EngineTensor(
        name=row["Name"][:_TEXT_LIMIT],
        dims=_dims(row.get("Dimensions")),
        dtype=None if dtype is None else _DTYPES[dtype[1].lower()],
        layout=layout[:_TEXT_LIMIT],
        channels=max(channels, 1),
    )


def _dims(given: Any) -> tuple[int, ...]:
    """Return sizes; −1 of what is none."""
    if not isinstance(given, list):
        return ()
    return tuple(size if isinstance(size, int) and 0 <= size < _LARGEST else -1 for size in given[:32])
