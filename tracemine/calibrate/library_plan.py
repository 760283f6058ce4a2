"""The calls of PyTorch's libraries that calibration times: products, convolutions and attention, none of them compiled.

A list that needs no GPU to be looked at. FLOPs and bytes are those that a recorded call of these shapes would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tracemine.ops.infer.library import LibraryCall, library_call

_TYPES: Final = {"half": "c10::Half", "tf32": "float", "fp32": "float", "fp64": "double"}
_DTYPES: Final = {"half": "float16", "tf32": "float32", "fp32": "float32", "fp64": "float64"}
_Table = tuple[tuple[int, ...], ...]
# Rows, inner dimension, columns: from launch-bound to as large as it gets, a few of them skinny.
_PRODUCTS: Final[_Table] = (
    *((64, 512, 512), (256, 1024, 1024), (512, 2048, 2048), (2048, 768, 3072), (2048, 2048, 2048)),
    *((16, 4096, 4096), (128, 4096, 4096), (8192, 1024, 128), (4096, 4096, 4096), (8192, 8192, 8192)),
)
# Batch, channels, side, channels out, window.
_CONVOLUTIONS: Final[_Table] = (
    *((16, 64, 56, 64, 3), (16, 128, 28, 128, 3), (16, 256, 14, 256, 3), (32, 512, 14, 512, 3)),
    *((32, 256, 56, 256, 3), (16, 256, 56, 64, 1), (32, 512, 28, 512, 1), (8, 64, 112, 128, 3)),
)
# Batch, heads, length, width of a head.
_ATTENTIONS: Final[_Table] = (
    *((1, 16, 128, 64), (8, 12, 128, 64), (8, 12, 512, 64), (4, 16, 1024, 64)),
    *((4, 16, 1024, 128), (2, 16, 2048, 128), (1, 16, 4096, 128)),
)
_LARGEST_FP64: Final = 1 << 35  # FLOPs: GPUs that are not built for it take a second for more


@dataclass(frozen=True, slots=True)
class LibraryJob:
    """One call to time. `sizes`: as the tables above have them."""

    operation: str
    arithmetic: str
    sizes: tuple[int, ...]
    flops: int
    nbytes: int

    @property
    def dtype(self) -> str:
        """Of the inputs, as torch names it."""
        return _DTYPES[self.arithmetic]

    @property
    def shape(self) -> str:
        """For people."""
        return "×".join(map(str, self.sizes))


def library_plan() -> tuple[LibraryJob, ...]:
    """Return every job, in the order of measuring.

    >>> jobs = library_plan()
    >>> len(jobs), sorted({job.operation for job in jobs})
    (98, ['attention', 'attention_backward', 'convolution', 'convolution_backward', 'product'])
    """
    return tuple(_jobs())


def _jobs() -> Iterator[LibraryJob]:
    for arithmetic in ("half", "tf32", "fp32", "fp64"):
        for sizes in _PRODUCTS:
            job = _job("product", arithmetic, sizes, _product(arithmetic, sizes))
            if arithmetic != "fp64" or job.flops <= _LARGEST_FP64:
                yield job
    for arithmetic in ("half", "tf32"):
        for sizes in _CONVOLUTIONS:
            forward, backward = _convolution(arithmetic, sizes), _convolution_backward(arithmetic, sizes)
            yield _job("convolution", arithmetic, sizes, forward)
            yield _job("convolution_backward", arithmetic, sizes, backward)
    for arithmetic in ("half", "fp32"):
        for sizes in _ATTENTIONS:
            yield _job("attention", arithmetic, sizes, _attention(arithmetic, sizes))
            yield _job("attention_backward", arithmetic, sizes, _attention_backward(arithmetic, sizes))


def _job(operation: str, arithmetic: str, sizes: tuple[int, ...], call: LibraryCall | None) -> LibraryJob:
    assert call is not None, (operation, sizes)  # noqa: S101  (our own data; a test looks at all of them)
    return LibraryJob(operation, arithmetic, sizes, call.flops, call.nbytes)


def _product(arithmetic: str, sizes: tuple[int, ...]) -> LibraryCall | None:
    rows, inner, columns = sizes
    strides = [[inner, 1], [1, inner]]
    return library_call("aten::mm", [[rows, inner], [inner, columns]], [_TYPES[arithmetic]] * 2, strides, ["", ""])


def _images(sizes: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Return shapes of the input, the weight and the result."""
    batch, channels, side, out, window = sizes
    return [batch, channels, side, side], [out, channels, window, window], [batch, out, side, side]


def _convolution(arithmetic: str, sizes: tuple[int, ...]) -> LibraryCall | None:
    source, weight, _ = _images(sizes)
    pad = sizes[-1] // 2
    return library_call(
        "aten::cudnn_convolution",
        [source, weight, *[[]] * 7],
        [*[_TYPES[arithmetic]] * 2, *["ScalarList"] * 3, *["Scalar"] * 4],
        None,
        ["", "", f"[{pad}, {pad}]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
    )


def _convolution_backward(arithmetic: str, sizes: tuple[int, ...]) -> LibraryCall | None:
    source, weight, result = _images(sizes)
    pad = sizes[-1] // 2
    return library_call(
        "aten::convolution_backward",
        [result, source, weight, *[[]] * 8],
        [*[_TYPES[arithmetic]] * 3, "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar", ""],
        None,
        ["", "", "", "", "[1, 1]", f"[{pad}, {pad}]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
    )


def _attention(arithmetic: str, sizes: tuple[int, ...]) -> LibraryCall | None:
    types = [*[_TYPES[arithmetic]] * 3, "Scalar", "Scalar", "Scalar", ""]
    given = ["", "", "", "0.", "False", "False", ""]
    name = "aten::_scaled_dot_product_flash_attention"
    return library_call(name, [list(sizes)] * 3 + [[]] * 4, types, None, given)


def _attention_backward(arithmetic: str, sizes: tuple[int, ...]) -> LibraryCall | None:
    kind, shape = _TYPES[arithmetic], list(sizes)
    return library_call(
        "aten::_scaled_dot_product_flash_attention_backward",
        [*[shape] * 5, shape[:3], *[[]] * 9],
        [*[kind] * 5, "float", "", "", "Scalar", "Scalar", "Scalar", "Scalar", "", "", ""],
        None,
        ["", "", "", "", "", "", "", "", str(shape[2]), str(shape[2]), "0.", "False", "", "", ""],
    )
