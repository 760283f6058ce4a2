"""The iteration space of one call: how many rows of which length it reduces, from what a profiler recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from tracemine.fusion.roles import Role
from tracemine.ops.facts import base_name
from tracemine.ops.infer.arguments import Arguments, Unknown, wrapped
from tracemine.ops.infer.tensor import TensorSpec


class Space(Struct, frozen=True):
    """Rows that are reduced, and their length. `columns`: the reduced axes do not hold the contiguous one."""

    rows: int
    length: int
    columns: bool = False


def space_of(call: Arguments) -> Space | None:
    """Return the rows that a call reduces; None where it reduces none (a loss or a norm without statistics).

    Raises Unknown where what was recorded does not tell.

    >>> shapes, types = [[4, 8], [], [], []], ["float", "ScalarList", "Scalar", ""]
    >>> call = Arguments("aten::sum", shapes, types, None, ["", "[1]", "False", ""])
    >>> space_of(call)
    Space(rows=4, length=8, columns=False)
    """
    rule = _BY_NAME.get(base_name(call.name)) or _BY_CLASS.get(call.overload.op_class)
    if rule is None:
        raise Unknown("which rows it reduces is not known")
    return rule(call)


def _over(source: TensorSpec, axes: set[int]) -> Space:
    length = prod(source.shape[axis] for axis in axes)
    if length == 0:
        raise Unknown("it reduces nothing")
    inner = len(source.shape) - 1
    if source.strides is not None:
        steps = [(step, -axis) for axis, step in enumerate(source.strides) if source.shape[axis] > 1 and step > 0]
        inner = -min(steps)[1] if steps else inner
    return Space(source.elements // length, length, columns=bool(axes) and inner not in axes and length > 1)


def _named_axes(call: Arguments) -> Space:
    """Reductions: the axes of `dim`, all without it."""
    source = call.tensor("self", "input", "x")
    name = "axis" if "axis" in call else "dim"
    named = call.integers(name) if name in call else None
    rank = len(source.shape)
    axes = {wrapped(axis, rank) for axis in named} if named and rank else set(range(rank))
    return _over(source, axes)


def _one_axis(call: Arguments) -> Space:
    """Softmax and scans, forward and backward: the axis `dim`."""
    source = call.tensor("self", "input", "grad_output")
    return _over(source, {wrapped(call.integer("dim"), len(source.shape))} if source.shape else set())


def _normalized(call: Arguments) -> Space:
    """Layer and RMS norm: the last axes, as many as `normalized_shape` has."""
    source = call.tensor("input", "self", "grad_out")
    rank, last = len(source.shape), len(call.sizes("normalized_shape"))
    return _over(source, set(range(rank - last, rank)))


def _groups(call: Arguments) -> Space:
    """Group norm: a row for each image and group of channels."""
    source = call.tensor("input", "grad_out")
    images, groups = source.shape[0], call.integer("group" if "group" in call else "num_groups")
    rows = max(images * groups, 1)
    return Space(rows, max(source.elements // rows, 1))


def _channels(call: Arguments) -> Space | None:
    """Batch norm in training: a row for each channel; with recorded statistics it reduces none."""
    source = call.tensor("input", "grad_out", "grad_output")
    training = "training" if "training" in call else "train" if "train" in call else None
    if training is not None and call.text(training) == "False":
        return None
    return _over(source, {axis for axis in range(len(source.shape)) if axis != 1})


def _loss(call: Arguments) -> Space | None:
    """Return one number of all elements, or of rows; with reduction 0 none."""
    if call.integer("reduction", 1) == 0:
        return None
    source = call.tensor("self", "input")
    if base_name(call.name).startswith("nll"):  # of each row one element, and those summed: what softmax has as rows
        return _over(source, {min(1, len(source.shape) - 1)})
    return Space(1, max(source.elements, 1))


_Rule = Callable[[Arguments], Space | None]
_BY_CLASS: dict[str, _Rule] = {"reduction": _named_axes, "softmax": _one_axis, "scan": _one_axis, "loss": _loss}
_BY_NAME: dict[str, _Rule] = {
    **dict.fromkeys(
        ("native_layer_norm", "layer_norm", "native_layer_norm_backward", "rms_norm", "_fused_rms_norm"), _normalized
    ),
    "_fused_rms_norm_backward": _normalized,
    **dict.fromkeys(("native_group_norm", "group_norm", "native_group_norm_backward"), _groups),
    **dict.fromkeys(
        (
            *("native_batch_norm", "cudnn_batch_norm", "batch_norm", "_native_batch_norm_legit", "batch_norm_stats"),
            *("native_batch_norm_backward", "cudnn_batch_norm_backward", "_batch_norm_with_update"),
            *("batch_norm_backward", "batch_norm_backward_reduce", "miopen_batch_norm", "miopen_batch_norm_backward"),
        ),
        _channels,
    ),
    "_native_batch_norm_legit_no_training": lambda _: None,
    "_batch_norm_no_update": lambda _: None,
}

NEEDS_SPACE = frozenset({Role.ROW, Role.SCAN})
