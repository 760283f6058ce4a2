"""What one operator call makes, moves and computes, from what a profiler recorded of it. Needs no torch.

infer("aten::mul", [[4, 8], [8]], ["float", "float"])  → outputs, bytes read and written, flops

What cannot be known from the record is None, with a reason: an operator without an output rule is a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tracemine.ops.infer.arguments import MISFIT, MISFITS, Arguments, ListDtype, Unknown
from tracemine.ops.infer.flops import flops
from tracemine.ops.infer.outputs import outputs
from tracemine.ops.infer.tensor import TensorSpec
from tracemine.ops.infer.traffic import traffic

__all__ = ["TensorSpec", "infer"]


class Inference(Struct, frozen=True):
    """What follows from the record of one call. None: not known; `reason` says why where the outputs are not.

    outputs: one entry a tensor output, in the schema's order, lists flat among them. An entry is None where that
    output is not made or not known. bytes: compulsory traffic, each distinct element once. flops: see flops.py.
    """

    outputs: tuple[TensorSpec | None, ...] | None
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    reason: str | None = None


def infer(
    operator: str,
    input_shapes: Sequence[Any],
    input_dtypes: Sequence[str],
    input_strides: Sequence[Any] | None = None,
    values: Sequence[str] | None = None,
    list_dtype: ListDtype = None,
) -> Inference:
    """Return outputs, traffic and flops of one call. Never raises: what is damaged is not known.

    operator: its name, with or without overload. input_shapes, input_dtypes, input_strides and values: one
    entry an input, as Kineto records them (sizes and strides in elements, of a TensorList one list a member; type
    names; texts of scalars). list_dtype: canonical dtype of the members of TensorLists, which Kineto does not record,
    where something else tells it: one for all, or one entry an input, of each of its members.

    >>> infer("aten::mul", [[4, 8], [8]], ["float", "c10::Half"], [[8, 1], [1]], ["", ""]).outputs
    (TensorSpec(shape=(4, 8), dtype='float32', strides=(8, 1)),)
    >>> found = infer("aten::mm", [[4, 8], [8, 2]], ["float", "float"])
    >>> found.bytes_read, found.bytes_written, found.flops
    (192, 32, 128)
    >>> infer("aten::nonzero", [[4]], ["bool"]).reason
    'the operator has no output rule'
    """
    try:
        call = Arguments(operator, input_shapes, input_dtypes, input_strides, values, list_dtype)
    except Unknown as unknown:
        return Inference(None, reason=str(unknown))
    except MISFITS:
        return Inference(None, reason="the recorded inputs are damaged")
    reason = None
    try:
        made: tuple[TensorSpec | None, ...] | None = outputs(call)
    except Unknown as unknown:
        made, reason = None, str(unknown)
    except MISFITS:
        made, reason = None, MISFIT
    try:
        read, written = traffic(call, made)
    except MISFITS:
        read = written = None
    try:
        count = flops(call, made)
    except MISFITS:
        count = None
    return Inference(made, read, written, count, reason)
