"""Calibrations: the raw medians of one device, as JSON that `tracemine calibrate` writes and the predictor reads.

    {"schema_version": 1, "gpu": "NVIDIA H200", …, "launch": {…}, "columns": ["pattern", …], "points": [["copy", …], …]}

A point is one pattern at one size: medians over several launches, of the best of a few launch configurations.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from tracemine.devices import find_device
from tracemine.errors import InputError, Location
from tracemine.files import read_file

SCHEMA_VERSION = 1
CALIBRATE_HINT = "write one with: tracemine calibrate -o FILE"
_LARGEST_FILE = 2 << 20  # bytes; what calibrate writes is a thirtieth of it
_MOST_POINTS, _LONGEST_TEXT = 20_000, 200
_MOST_BYTES, _MOST_NS, _MOST_SMS = 1 << 44, 10**12, 1 << 16  # of what can be: a tensor, a launch, a GPU
_MOST_FLOPS = 1 << 60  # of a call


class Point(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One pattern at one size. A pointwise pattern has `rows` elements of `length` 1."""

    pattern: str
    dtype: str
    bytes_read: int
    bytes_written: int
    rows: int
    length: int
    kernels: int  # launches that the times are the sum of
    cold_ns: int  # inputs in device memory, the L2 cache full of clean lines of something else
    warm_ns: int  # the same buffers again

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def elements(self) -> int:
        """Elements of the full-size tensor."""
        return self.rows * self.length


class LibraryPoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One call of a library: a product, a convolution or attention at one size, all its kernels together."""

    operation: str  # product, convolution, attention; backward ones end in `_backward`
    arithmetic: str  # half, fp8, tf32, fp32, fp64
    shape: str  # for people
    flops: int
    nbytes: int  # least traffic: inputs once, outputs once
    ns: int  # the usual one of several calls


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of launching, whatever the kernel does: median nanoseconds."""

    empty_kernel_ns: int  # duration of one that does nothing, as a profiler reports it
    queued_gap_ns: int  # between two such kernels when launches are queued
    graph_kernel_ns: int  # the same inside a replayed graph
    graph_gap_ns: int
    graph_node_ns: int  # a node of a replay without the profiler, kernel and gap together
    host_triton_ns: int  # host time of one Triton launch, as Triton's own launcher does it
    host_aten_ns: int  # host time of one small aten operator


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured on one device, and with what."""

    gpu: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    driver: str | None
    torch: str
    triton: str
    cuda: str | None
    launch: Launch
    points: tuple[Point, ...]
    skipped: tuple[str, ...] = ()  # kernels that this version of Triton could not compile or run, and why
    library: tuple[LibraryPoint, ...] | None = None  # None: not measured, as in files of older versions
    columns: tuple[str, ...] = Point.__struct_fields__
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> bytes:
        """Return the file's content: one line a point, so that a change of it can be read.

        >>> nothing = Launch(empty_kernel_ns=1, queued_gap_ns=1, graph_kernel_ns=1, graph_gap_ns=1, graph_node_ns=1,
        ...     host_triton_ns=1, host_aten_ns=1)
        >>> one = Calibration(gpu="x", sm_count=1, l2_bytes=1, memory_bytes=1, driver=None, torch="2", triton="3",
        ...     cuda=None, launch=nothing, points=(Point("copy", "float32", 8, 8, 2, 1, 1, 900, 700),))
        >>> parse_calibration(one.to_json()) == one
        True
        """
        empty = msgspec.structs.replace(self, points=(), library=() if self.library else self.library)
        content = msgspec.json.encode(empty)
        for key, points in ((b"points", self.points), (b"library", self.library or ())):
            lines = b",\n".join(map(msgspec.json.encode, points))
            content = content.replace(b'"%b":[]' % key, b'"%b":[\n%b\n]' % (key, lines)) if lines else content
        return content + b"\n"


def parse_calibration(content: bytes, path: str = "calibration") -> Calibration:
    """Parse a calibration file's content. Raise InputError where it is anything else, or holds times that cannot be.

    >>> parse_calibration(b"{}")
    Traceback (most recent call last):
    tracemine.errors.InputError: calibration: no calibration: Object missing required field `gpu`
      hint: write one with: tracemine calibrate -o FILE
    """
    hint = CALIBRATE_HINT
    try:
        calibration = msgspec.json.decode(content, type=Calibration)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"no calibration: {error}", where=Location(path), hint=hint) from error
    if calibration.schema_version != SCHEMA_VERSION or calibration.columns != Point.__struct_fields__:
        raise InputError(f"not version {SCHEMA_VERSION} of the calibration file", where=Location(path), hint=hint)
    if wrong := next(_wrong(calibration), None):
        raise InputError(wrong, where=Location(path), hint=hint)
    return calibration


def _texts(calibration: Calibration) -> Iterator[str]:
    yield calibration.gpu
    for point in calibration.points:
        yield from (point.pattern, point.dtype)
    for one in calibration.library or ():
        yield from (one.operation, one.arithmetic, one.shape)


def _wrong(calibration: Calibration) -> Iterator[str]:
    """Yield what cannot be in a calibration, each in a few words."""
    points, library, launch = calibration.points, calibration.library or (), calibration.launch
    if not 0 < len(points) <= _MOST_POINTS:
        yield f"{len(points)} points, of at most {_MOST_POINTS}"
    if len(library) > _MOST_POINTS:
        yield f"{len(library)} points of libraries, of at most {_MOST_POINTS}"
    if not calibration.gpu or max(map(len, _texts(calibration))) > _LONGEST_TEXT:
        yield "a name is empty or too long"
    if not _between((calibration.sm_count, _MOST_SMS), (calibration.l2_bytes, _MOST_BYTES)):
        yield "a device has no such multiprocessors or cache"
    if not _between((launch.empty_kernel_ns, _MOST_NS), (launch.graph_kernel_ns, _MOST_NS)):
        yield "launch: a time is not positive, or longer than can be"
    for one in library:
        if not _between((one.flops, _MOST_FLOPS), (one.nbytes, _MOST_BYTES), (one.ns, _MOST_NS)):
            yield f"{one.operation}: a size or a time is not positive, or greater than can be"
    for point in points:
        yield from _wrong_point(point)


def _wrong_point(point: Point) -> Iterator[str]:
    sizes = (point.nbytes, point.rows, point.length, point.elements)
    least = min(point.cold_ns, point.warm_ns, point.kernels, *sizes)
    if least <= 0 or min(point.bytes_read, point.bytes_written) < 0:
        yield f"{point.pattern}: a size or a time is not positive"
    if max(sizes) > _MOST_BYTES or max(point.cold_ns, point.warm_ns) > _MOST_NS:
        yield f"{point.pattern}: a size or a time is greater than can be"


def _between(*limits: tuple[int, int]) -> bool:
    """Return whether each value is positive and no more than its limit."""
    return all(0 < value <= most for value, most in limits)


def read_calibration(path: Path) -> Calibration:
    """Read the calibration in a file. Raise InputError."""
    return parse_calibration(read_file(path, _LARGEST_FILE), str(path))


@cache
def shipped_calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations that come with the package."""
    return tuple(
        parse_calibration(file.read_bytes(), file.name)
        for file in sorted(Path(__file__).with_name("measured").iterdir(), key=lambda file: file.name)
        if file.name.endswith(".json")
    )


def calibration_of(title: str) -> Calibration | None:
    """Return the shipped calibration of a row of the device table; None where that device was not measured."""
    return next(_fitting(title), None)


def _fitting(title: str) -> Iterator[Calibration]:
    for calibration in shipped_calibrations():
        device = find_device(calibration.gpu, sm_count=calibration.sm_count)
        if device is not None and device.title == title:
            yield calibration
