"""Describe what holds for a whole timeline: its meta.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from tracemine.files import path_text

SCHEMA_VERSION = 10

_Says = msgspec.Meta  # of a field in meta.json, as Column.says of a table's; docs/ shows it


# What made a recording's kernels, as rules name it (`producers`); all other formats hold what PyTorch launched.
PRODUCERS: Final = {"torch": "PyTorch", "xla": "XLA (JAX)", "tensorrt": "TensorRT", "onnxruntime": "ONNX Runtime"}


class RecordedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as the export describes it. Null: not recorded."""

    ordinal: Annotated[int, _Says(description="the number that `activities.device` holds")]
    name: Annotated[str | None, _Says(description="product name")] = None
    memory_bytes: Annotated[int | None, _Says(description="device memory, bytes")] = None
    compute_capability: Annotated[str | None, _Says(description="`major.minor`")] = None
    sm_count: Annotated[int | None, _Says(description="streaming multiprocessors or compute units")] = None
    warp_size: Annotated[int | None, _Says(description="threads a warp or wavefront")] = None
    max_threads_per_sm: Annotated[int | None, _Says(description="resident threads a multiprocessor")] = None
    registers_per_sm: Annotated[int | None, _Says(description="32-bit registers a multiprocessor")] = None
    shared_memory_per_sm_bytes: Annotated[int | None, _Says(description="shared memory a multiprocessor, bytes")] = None


class IngestReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every event: read, left out and why, repaired and how, and what is incomplete."""

    events: Annotated[dict[str, int], _Says(description="events by category, as found")] = {}
    skipped: Annotated[dict[str, int], _Says(description="events that carry no row, by category")] = {}
    dropped: Annotated[dict[str, int], _Says(description="events that could not be kept, by reason")] = {}
    repaired: Annotated[dict[str, int], _Says(description="events kept after a repair, by repair")] = {}
    unowned: Annotated[dict[str, int], _Says(description="activities without an operator, by reason")] = {}
    warnings: Annotated[
        tuple[str, ...], _Says(description="what a reader must know about completeness, one sentence each")
    ] = ()
    doubts: Annotated[
        tuple[str, ...],
        _Says(description="records that cannot be or are lost, and what became of them, a sentence each"),
    ] = ()
    unusable: Annotated[
        bool,
        _Says(description="whether they leave no time that can be believed, so that nothing is said of the program"),
    ] = False
    truncated: Annotated[bool, _Says(description="whether the file ended before its content did")] = False


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the whole timeline. Only listed facts of the export's header get here, never its rest."""

    schema_version: Annotated[int, _Says(description="version of this schema")] = SCHEMA_VERSION
    tracemine_version: Annotated[str, _Says(description="what ingested the export")]
    source: Annotated[str, _Says(description="file name, without its folder")]
    format: Annotated[
        str, _Says(description="`kineto`, `nsys`, `proton`, `rocpd`; `ncu`: counters alone, no other table has rows")
    ]
    producer: Annotated[str | None, _Says(description="what the export was made by, as far as its features tell")] = (
        None
    )
    time_resolution_ns: Annotated[
        int, _Says(description="1000 where every time in the file is a whole microsecond, else 1")
    ] = 1
    base_ns: Annotated[
        int | None, _Says(description="nanoseconds that the timeline's times have more than those in the export")
    ] = None
    devices: Annotated[tuple[RecordedDevice, ...], _Says(description="the GPUs")] = ()
    execution_trace: Annotated[
        str | None, _Says(description="file name of the execution trace whose tensors the timeline has")
    ] = None
    rank: Annotated[int | None, _Says(description="this process among the job's")] = None
    world_size: Annotated[int | None, _Says(description="processes of the job")] = None
    record_shapes: Annotated[bool | None, _Says(description="whether the profiler recorded shapes")] = None
    with_stack: Annotated[bool | None, _Says(description="whether the profiler recorded Python stacks")] = None
    profile_memory: Annotated[bool | None, _Says(description="whether the profiler recorded allocations")] = None
    alone_step_ns: Annotated[
        int | None, _Says(description="median time of a step while nothing recorded, where a capture measured it")
    ] = None
    alone_step_p10_ns: Annotated[int | None, _Says(description="what a tenth of those steps did not exceed")] = None
    alone_step_p90_ns: Annotated[int | None, _Says(description="what nine tenths of those steps did not exceed")] = None
    recorded_step_ns: Annotated[int | None, _Says(description="mean time of a recorded step")] = None
    host_step_ns: Annotated[
        int | None,
        _Says(description="for how long the host is at a step that begins on an idle device, nothing recorded"),
    ] = None
    light_step_ns: Annotated[
        int | None,
        _Says(description="median time of a step in the light window of a capture, where that is used: see `light`"),
    ] = None
    garbage_ns: Annotated[
        tuple[tuple[int, int, int], ...] | None,
        _Says(description="begin, end and thread of each collection of Python's garbage, where a capture timed them"),
    ] = None
    versions: Annotated[
        dict[str, str],
        _Says(description="CUDA, CUPTI, NCCL, HIP versions as recorded; `torch`, where a capture says it"),
    ] = {}
    ingest: Annotated[IngestReport, _Says(description="what became of every event")] = IngestReport()

    def __post_init__(self) -> None:
        for name in ("source", "execution_trace"):
            if (file := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, path_text(file))


def warned(meta: Meta, texts: Iterable[str]) -> Meta:
    """Return the same, with more warnings in its report."""
    report = msgspec.structs.replace(meta.ingest, warnings=(*meta.ingest.warnings, *texts))
    return msgspec.structs.replace(meta, ingest=report)


# Formats whose one step is the mean of many that were timed.
MEANS = frozenset({"tensorrt"})


def producer_of(meta: Meta) -> str:
    """Return which of PRODUCERS a recording's kernels are of: rules, and what they advise, hold for some of them.

    >>> producer_of(Meta(tracemine_version="0", source="trace.json", format="kineto"))
    'torch'
    """
    return producer_named(meta.format)


def producer_named(format: str) -> str:
    """Return which of PRODUCERS the kernels of a recording in this format are of."""
    return format if format in PRODUCERS else "torch"


class _Version(msgspec.Struct):
    schema_version: int


def schema_version_of(content: bytes) -> int:
    """Return the schema version that a document says it is of, whatever else it holds. Raise msgspec's DecodeError.

    >>> schema_version_of(b'{"schema_version": 3, "findings": "of another kind"}')
    3
    """
    return msgspec.json.decode(content, type=_Version).schema_version
