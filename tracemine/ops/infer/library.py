"""What a call of a library computes and must move, and what its layout says: products, convolutions, attention.

FLOPs are those of flops.py, bytes those of traffic.py: this module only adds what a roofline needs besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final

from msgspec import Struct

from tracemine.ops.dtypes import itemsize
from tracemine.ops.infer.arguments import MISFITS, Arguments, Unknown
from tracemine.ops.infer.flops import flops
from tracemine.ops.infer.outputs import outputs
from tracemine.ops.infer.tensor import TensorSpec
from tracemine.ops.infer.traffic import traffic

OPERATIONS: Final = {"gemm": "product", "conv": "convolution", "attention": "attention"}
_LOAD_BYTES: Final = 16  # of the widest load: what matrix units are fed with
# The two factors of a product by the arguments of each operator, the second as [k, n], or [n, k] where it is a weight.
_FACTORS: Final = {
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "_addmm_activation": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "addbmm": ("batch1", "batch2"),
    "_scaled_mm": ("self", "mat2"),
    "linear": ("input", "weight"),
}


class LibraryCall(Struct, frozen=True, kw_only=True):
    """One call of a library's operator. None: not recorded, or it has no such thing."""

    operation: str  # product, convolution or attention; backward ones end in `_backward`
    dtype: str  # of what is multiplied
    flops: int
    nbytes: int  # least device memory traffic: inputs once, outputs once
    misaligned: bool | None = None  # product: a leading dimension is no multiple of 16 bytes
    padded_flops: int = 0  # the same product with the dimensions at fault padded to the next multiple
    padded_bytes: int = 0
    copied_bytes: int = 0  # what padding its factors in each call would move, where they cannot be kept padded
    groups: int = 1
    channels: int = 0  # convolution: input channels a group
    unfolded_bytes: int = 0  # convolution: the matrix of windows that a product in its place would read
    patches: bool = False  # convolution: windows side by side, each place in one of them: a product of reshaped inputs
    allow_tf32: bool | None = None  # convolution: as recorded

    @property
    def depthwise(self) -> bool:
        """A filter for each channel alone: limited by memory, whatever computes it."""
        return self.groups > 1 and self.channels == 1


def library_call(
    operator: str,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    strides: Sequence[Any] | None = None,
    concrete: Sequence[str] | None = None,
) -> LibraryCall | None:
    """Return what a recorded call asks of its library; None where it is of no such class, or that was not recorded.

    >>> one = library_call("aten::mm", [[64, 49], [49, 32]], ["c10::Half"] * 2, [[49, 1], [32, 1]])
    >>> one.flops, one.nbytes, one.misaligned, one.padded_flops
    (200704, 13504, True, 229376)
    >>> library_call("aten::relu", [[4]], ["float"]) is None
    True
    """
    try:
        return of_arguments(Arguments(operator, shapes, dtypes, strides, concrete))
    except MISFITS:
        return None


def of_arguments(call: Arguments | None) -> LibraryCall | None:
    """Return as `library_call`, of a call whose inputs are known by the names of its arguments."""
    operation = None if call is None else OPERATIONS.get(call.overload.op_class)
    try:
        return None if call is None or operation is None else _library_call(call, operation)
    except MISFITS:
        return None


def _library_call(call: Arguments, operation: str) -> LibraryCall | None:
    try:
        made: tuple[TensorSpec | None, ...] | None = outputs(call)
    except Unknown:
        made = None
    count, (read, written) = flops(call, made), traffic(call, made)
    dtype = next((one.dtype for one in _tensors(call) if one.dtype is not None), None)
    if not count or read is None or written is None or dtype is None:
        return None
    return LibraryCall(
        operation=f"{operation}_backward" if "backward" in call.name else operation,
        dtype=dtype,
        flops=count,
        nbytes=read + written,
        **_DETAILS[operation](call, count),
    )


def _tensors(call: Arguments) -> Iterator[TensorSpec]:
    return (given for given in call.inputs if isinstance(given, TensorSpec))


# --- products --------------------------------------------------------------------------------------------------------


def _product(call: Arguments, count: int) -> dict[str, Any]:
    """Return which leading dimensions are no multiple of a load, and the product with later dimensions padded."""
    if call.name not in _FACTORS:
        return {}
    first, second = _factors(call)
    item = itemsize(first.dtype or "")
    if item is None or item >= _LOAD_BYTES:
        return {}
    each = _LOAD_BYTES // item
    sizes = {"m": (1, *first.shape)[-2], "k": first.shape[-1], "n": second.shape[-1]}
    found = (_leading(first, "m", "k"), _leading(second, "k", "n"), ("n", sizes["n"]))  # and the result's rows
    at_fault = {one[0] for one in found if one is not None and one[1] % each}
    if not at_fault:
        return {"misaligned": None if None in found else False}
    padded = {axis: -(-size // each) * each if axis in at_fault else size for axis, size in sizes.items()}
    m, k, n = padded.values()
    batch = count // (2 * prod(sizes.values()))
    copied = (2 * one.elements * item for one, axes in ((first, "mk"), (second, "kn")) if at_fault & set(axes))
    return {
        "misaligned": True,
        "padded_flops": 2 * batch * m * k * n,
        "padded_bytes": batch * (m * k + k * n + m * n) * item,
        "copied_bytes": sum(copied),
    }


def _factors(call: Arguments) -> tuple[TensorSpec, TensorSpec]:
    first, second = (call.tensor(name) for name in _FACTORS[call.name])
    return first, _transposed(second) if call.name == "linear" else second


def _transposed(one: TensorSpec) -> TensorSpec:
    shape, strides = one.shape, one.strides
    turned = None if strides is None else (*strides[:-2], strides[-1], strides[-2])
    return TensorSpec((*shape[:-2], shape[-1], shape[-2]), one.dtype, turned)


def _leading(one: TensorSpec, rows: str, columns: str) -> tuple[str, int] | None:
    """Return the axis that lies contiguous in a matrix, and the step from one of its runs to the next, in elements.

    >>> _leading(TensorSpec((768, 30522), "float16", (1, 768)), "k", "n")
    ('k', 768)
    """
    if one.strides is None or len(one.shape) < 2:
        return None
    (height, width), (down, right) = one.shape[-2:], one.strides[-2:]
    if right == 1:
        return columns, down if height > 1 else width
    if down == 1:
        return rows, right if width > 1 else height
    return columns, width  # the library is given a copy of it


# --- convolutions ----------------------------------------------------------------------------------------------------


def _convolution(call: Arguments, count: int) -> dict[str, Any]:
    """Return groups, channels, and the windows that a matrix product in its place would read."""
    weight, source = call.tensor("weight"), call.tensor("input", "self")
    own = call.name.startswith(("_conv_depthwise", "conv_depthwise"))
    groups = source.shape[1] if own else call.integer("groups", 1) if "groups" in call else 1
    item = itemsize(source.dtype or "") or 0
    # FLOPs are 2 × output elements × window: without the output's channels, the windows of one group. Of a backward
    # pass each gradient has its own.
    windows = count // (2 * max(weight.shape[0], 1)) * groups
    return {
        "groups": groups,
        "channels": weight.shape[1] if groups > 1 else source.shape[1],
        "unfolded_bytes": windows * item,
        "patches": groups == 1 and _side_by_side(call, weight.shape[2:]),
        "allow_tf32": call.flag("allow_tf32") if "allow_tf32" in call else None,
    }


def _side_by_side(call: Arguments, window: tuple[int, ...]) -> bool:
    """Return whether windows neither overlap nor leave gaps, and nothing is padded; not of a window of one element."""
    if "transpose" in call.name or call.flag("transposed"):
        return False
    plain = {"stride": set(window), "padding": {0}, "dilation": {1}}
    given = {name: call.integers(name) or () for name in plain}
    stride = given["stride"] * (len(window) if len(given["stride"]) == 1 else 1)
    rest = all(set(given[name]) <= plain[name] for name in ("padding", "dilation"))
    return max(window, default=1) > 1 and stride == tuple(window) and rest


_DETAILS: dict[str, Callable[[Arguments, int], dict[str, Any]]] = {
    "product": _product,
    "convolution": _convolution,
    "attention": lambda call, count: {},
}
