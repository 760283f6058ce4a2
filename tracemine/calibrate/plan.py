"""What calibration measures, as lists that need no GPU to be looked at: patterns, sizes and launch configurations; and
calls of PyTorch's libraries, whose FLOPs and bytes are those that a recorded call of these shapes would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tracemine.ops.infer.library import LibraryCall, library_call

_KB, _MB, _GB = 1 << 10, 1 << 20, 1 << 30

ITEM_BYTES = {"bfloat16": 2, "float32": 4, "int8": 1}
DTYPES = ("bfloat16", "float32")  # float16 moves and computes as bfloat16 does

_ALL_SIZES = tuple(1 << power for power in range(12, 34))  # 4 KB to 8 GB of traffic
_SOME_SIZES = (64 * _KB, 512 * _KB, 2 * _MB, 8 * _MB, 32 * _MB, 128 * _MB, 512 * _MB)
_ROW_SIZES = (16 * _KB, 128 * _KB, 1 * _MB, 4 * _MB, 16 * _MB, 64 * _MB, 256 * _MB, 1 * _GB)
_FEW_ROWS = (8, 64)
_WHOLE = 1024  # rows up to here are held whole by one program
_ALIGNED = 4096  # elements of a pointwise tensor are a multiple, so that every access is as wide as it can be

FUNCTIONS = ("exp", "log", "tanh", "erf", "divide", "sigmoid", "log_exp_tanh")
POINTWISE = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "add": (2, 1), "add3": (3, 1), "add4": (4, 1)}
# Row patterns: full-size tensors written, and the row lengths.
WHOLE_ROWS = {
    "row_sum": (0, (64, 256, 1024)),
    "row_norm": (1, (64, 128, 256, 512, 768, 1000, 1024)),
    "row_softmax": (1, (64, 256, 512, 1000, 1024)),
    "row_scan": (1, (128, 1024)),
}
LOOPED_ROWS = {
    "row_sum": (0, (4096, 16384, 65536)),
    "row_norm_looped": (1, (2048, 4096, 5000, 5120, 8192, 32768, 65536, 131072)),
    "row_two_sums": (1, (4096, 5120, 8192, 32768)),
    "row_welford": (1, (2048, 4096, 5000, 5120, 8192, 32768)),
    "row_softmax_online": (1, (2048, 4096, 5000, 5120, 8192, 32768, 65536)),
    "row_scan": (1, (4096, 5120)),
}


@dataclass(frozen=True, slots=True)
class PatternJob:
    """One pattern at one size, with the launch configurations to try: the best one counts."""

    pattern: str
    dtype: str
    rows: int
    length: int
    bytes_read: int
    bytes_written: int
    configs: tuple[tuple[int, ...], ...]
    kernels: int = 1
    function: str = ""

    @property
    def name(self) -> str:
        """The pattern's name in the file."""
        return self.function or self.pattern

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


def plan(largest_bytes: int = 8 * _GB) -> tuple[PatternJob, ...]:
    """Return every job whose traffic is at most `largest_bytes`, in the order of measuring.

    >>> jobs = plan()
    >>> len({job.name for job in jobs}), max(job.nbytes for job in jobs) // 10**9
    (25, 8)
    """
    return tuple(job for job in _jobs() if job.nbytes <= largest_bytes)


def _jobs() -> Iterator[PatternJob]:
    for dtype in DTYPES:
        yield from _elementwise(dtype)
        for table, configs in ((WHOLE_ROWS, _whole_configs), (LOOPED_ROWS, _looped_configs)):
            for pattern, (written, lengths) in table.items():
                for length in lengths:
                    yield from _rows(pattern, dtype, length, written, configs(length))
        for size in _ROW_SIZES[2:]:
            yield from _reductions_of_two_kernels(dtype, size)
    yield from _widening()


def _elementwise(dtype: str) -> Iterator[PatternJob]:
    for pattern, (inputs, outputs) in POINTWISE.items():
        for size in _ALL_SIZES if pattern in ("read", "write", "copy", "add") else _SOME_SIZES:
            yield _pointwise(pattern, dtype, size, inputs, outputs)
    for function in FUNCTIONS:
        for size in _SOME_SIZES:
            yield _pointwise("function", dtype, size, 1, 1, function)
    for size in _ALL_SIZES[4:]:
        yield _strided(dtype, size)


def _widening() -> Iterator[PatternJob]:
    for size in _SOME_SIZES:  # one byte in, two out
        n = max(1, size // 3 // _ALIGNED) * _ALIGNED
        yield PatternJob("widen", "int8", n, 1, n, 2 * n, _pointwise_configs())


def _pointwise_configs() -> tuple[tuple[int, ...], ...]:
    """Return (elements a block, warps)."""
    return ((512, 4), (1024, 4), (2048, 8))


def _pointwise(pattern: str, dtype: str, size: int, inputs: int, outputs: int, function: str = "") -> PatternJob:
    item = ITEM_BYTES[dtype]
    n = size // ((inputs + outputs) * item)
    n = n // _ALIGNED * _ALIGNED if n >= _ALIGNED else 1 << max(n.bit_length() - 1, 4)
    return PatternJob(
        pattern, dtype, n, 1, inputs * n * item, outputs * n * item, _pointwise_configs(), function=function
    )


def _strided(dtype: str, size: int) -> PatternJob:
    item = ITEM_BYTES[dtype]
    side = max(64, int((size / 2 / item) ** 0.5) // 64 * 64)
    moved = side * side * item
    return PatternJob("strided", dtype, side, side, moved, moved, ((32, 4), (64, 4), (64, 8)))


def _whole_configs(length: int) -> tuple[tuple[int, ...], ...]:
    """Return (rows a block, elements a step, warps)."""
    block = 1 << (length - 1).bit_length()
    return ((max(1, 1024 // block), block, 4), (max(1, 2048 // block), block, 8))


def _looped_configs(length: int) -> tuple[tuple[int, ...], ...]:
    return tuple((1, min(block, 1 << (length - 1).bit_length()), warps) for block, warps in ((1024, 4), (2048, 8)))


def _rows(
    pattern: str, dtype: str, length: int, written: int, configs: tuple[tuple[int, ...], ...]
) -> Iterator[PatternJob]:
    row_bytes = length * ITEM_BYTES[dtype]
    for size in _ROW_SIZES:
        rows = size // (row_bytes * (1 + written))
        if rows:
            out = rows * (row_bytes if written else 4)
            yield PatternJob(pattern, dtype, rows, length, rows * row_bytes, out, configs)


def _reductions_of_two_kernels(dtype: str, size: int) -> Iterator[PatternJob]:
    item = ITEM_BYTES[dtype]
    for rows in _FEW_ROWS:
        length = size // (rows * item)
        if length > 8 * _WHOLE:
            part = max(2048, length // 64)
            yield PatternJob(
                "split_sum", dtype, rows, length, size, rows * 4, ((part, 1024, 4), (part, 2048, 8)), kernels=2
            )
    columns = 4096
    rows = size // (columns * item)
    if rows >= 256:
        configs = ((max(32, rows // 64), 128, 4), (max(32, rows // 64), 256, 8))
        yield PatternJob("column_sum", dtype, rows, columns, size, columns * 4, configs, kernels=2)


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
    return tuple(_library_jobs())


def _library_jobs() -> Iterator[LibraryJob]:
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
