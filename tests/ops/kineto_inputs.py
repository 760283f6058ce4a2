"""A call of a torch operator, written down as Kineto does; test_infer.py holds it to a recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

CPP_NAMES = {
    torch.uint8: "unsigned char", torch.int8: "signed char", torch.int16: "short", torch.int32: "int",
    torch.int64: "long int", torch.float16: "c10::Half", torch.float32: "float", torch.float64: "double",
    torch.complex64: "c10::complex<float>", torch.complex128: "c10::complex<double>", torch.bool: "bool",
    torch.bfloat16: "c10::BFloat16", torch.complex32: "c10::complex<c10::Half>", torch.uint16: "unsigned short",
    torch.uint32: "unsigned int", torch.uint64: "unsigned long", torch.float8_e4m3fn: "c10::Float8_e4m3fn",
    torch.float8_e5m2: "c10::Float8_e5m2",
}  # fmt: skip
SCALAR_TYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
    torch.float8_e5m2: 23, torch.float8_e4m3fn: 24, torch.uint16: 27, torch.uint32: 28, torch.uint64: 29,
}  # fmt: skip
MEMORY_FORMATS = {
    torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3
}  # fmt: skip

Recorded = tuple[list[Any], list[str], list[Any], list[str]]
NOTHING: tuple[list[Any], str, list[Any], str] = ([], "", [], "")


def number(value: bool | int | float) -> str:
    """As C++ prints it: `1.` for 1.0, seventeen digits."""
    if isinstance(value, (bool, int)):
        return str(value)
    text = f"{value:.17g}"
    return text if any(c in text for c in ".en") else text + "."


def recorded(overload: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Recorded:
    """Shapes, types, strides and concrete values, one entry an argument, defaults included."""
    rows = []
    for place, argument in enumerate(overload._schema.arguments):
        if place < len(args):
            value = args[place]
        else:
            value = kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
        rows.append(_entry(str(argument.type), value))
    shapes, types, strides, concrete = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 4
    return shapes, types, strides, concrete


def _entry(kind: str, value: Any) -> tuple[Any, str, Any, str]:
    if isinstance(value, torch.Tensor):
        return list(value.shape), CPP_NAMES[value.dtype], list(value.stride()), ""
    if isinstance(value, (list, tuple)):
        if "Tensor" in kind:
            if "Optional[Tensor]" in kind or not value:
                return NOTHING if value else ([], "TensorList", [], "")
            return [list(t.shape) for t in value], "TensorList", [list(t.stride()) for t in value], ""
        return [], "ScalarList", [], "[" + ", ".join(map(number, value)) + "]"
    if isinstance(value, torch.dtype):
        return [], "Scalar", [], str(SCALAR_TYPES[value])
    if isinstance(value, torch.memory_format):
        return [], "Scalar", [], str(MEMORY_FORMATS[value])
    if isinstance(value, torch.layout):
        return [], "Scalar", [], "0"
    if isinstance(value, complex) and "Tensor" in kind:
        return [], "c10::complex<double>", [], ""
    if isinstance(value, (bool, int, float)):
        if "Tensor" in kind:  # a Python number where a tensor is wanted becomes a 0-dim one
            return [], "long int" if isinstance(value, int) else "double", [], ""
        if "List" in kind:  # one number stands for a list
            return [], "ScalarList", [], f"[{number(value)}]"
        return [], "Scalar", [], number(value)
    return NOTHING  # None, strings, devices, generators
