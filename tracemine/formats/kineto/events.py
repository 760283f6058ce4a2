"""Which events carry rows, and which of their arguments: the one place that knows Kineto's names.

Names are exact, blanks and case included, as torch 1.8 to 2.15 wrote them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["integer", "number", "text", "raw"]


class EventArgument(Struct, frozen=True):
    """One column read from `args`. A raw one keeps its JSON text, such as `[1, 2, 3]` or `"triton"` with quotes."""

    column: str
    key: str
    kind: Kind = "integer"
    aliases: tuple[str, ...] = ()  # other spellings, read where `key` is absent


class EventTable(Struct, frozen=True):
    """One table of RawTrace: the event's own fields first, then its arguments."""

    name: str
    columns: tuple[str, ...]  # of the event itself: category, name, start_ns, dur_ns, pid, tid
    arguments: tuple[EventArgument, ...] = ()
    phases: tuple[str, ...] = ("X",)  # as the event calls what it is: X has a duration, i and I are instants
    only: str | None = None  # events of another name carry no row


# libkineto wrote "external id" on device and runtime events until 2022, torch "External id" on the others.
_EXTERNAL_ID = EventArgument("external_id", "External id", aliases=("external id",))
_CORRELATION = EventArgument("correlation", "correlation")
_DEVICE = EventArgument("device", "device")
_STREAM = EventArgument("stream", "stream")
# What torch 2.2 and later write with a collective, on its kernel and on the host's record of it.
_COLLECTIVE = (
    EventArgument("collective", "Collective name", "text"),
    EventArgument("group_size", "Group size"),
    EventArgument("elements_in", "In msg nelems"),
    EventArgument("sent_dtype", "dtype", "text"),
    EventArgument("group_name", "Process Group Name", "text"),
    EventArgument("group_description", "Process Group Description", "text"),
    EventArgument("group_ranks", "Process Group Ranks", "text"),
)

TABLES: dict[str, EventTable] = {
    table.name: table
    for table in (
        EventTable(
            "gpu",
            ("category", "name", "start_ns", "dur_ns"),
            (
                _DEVICE,
                _STREAM,
                EventArgument("context", "context"),
                _CORRELATION,
                _EXTERNAL_ID,
                EventArgument("grid", "grid", "raw"),
                EventArgument("block", "block", "raw"),
                EventArgument("registers", "registers per thread"),
                EventArgument("shared_memory", "shared memory"),
                EventArgument("bytes", "bytes"),
                EventArgument("occupancy", "est. achieved occupancy %", "number"),
                EventArgument("graph_id", "graph id"),
                EventArgument("graph_node_id", "graph node id"),
                *_COLLECTIVE,
                EventArgument("elements_out", "Out msg nelems"),
                EventArgument("splits_in", "In split size", "text"),
                EventArgument("splits_out", "Out split size", "text"),
                EventArgument("sequence", "Seq"),
            ),
        ),
        EventTable(
            "calls",
            ("category", "name", "start_ns", "dur_ns", "pid", "tid"),
            (_CORRELATION, _EXTERNAL_ID, EventArgument("kernel", "kernel", "text")),
        ),
        EventTable(
            "syncs",
            ("start_ns", "dur_ns"),
            (EventArgument("name", "cuda_sync_kind", "text"), _DEVICE, _STREAM, _CORRELATION),
        ),
        EventTable(
            "ops",
            ("category", "name", "start_ns", "dur_ns", "pid", "tid"),
            (
                _EXTERNAL_ID,
                EventArgument("record_function_id", "Record function id"),
                EventArgument("sequence_number", "Sequence number"),
                EventArgument("forward_thread_id", "Fwd thread id"),
                EventArgument("input_dims", "Input Dims", "raw", aliases=("Input dims",)),
                EventArgument("input_types", "Input type", "raw"),
                EventArgument("input_strides", "Input Strides", "raw"),
                EventArgument("concrete_inputs", "Concrete Inputs", "raw"),
                EventArgument("call_stack", "Call stack", "raw"),
                EventArgument("kernel_backend", "kernel_backend", "raw"),
                EventArgument("event_index", "Ev Idx"),
                *_COLLECTIVE,
                EventArgument("peer", "Dst Rank", aliases=("Src Rank", "Rank")),  # Rank is the peer of a send
            ),
        ),
        EventTable("frames", ("name", "start_ns", "dur_ns", "pid", "tid")),
        EventTable(
            "memory",
            ("start_ns", "pid", "tid"),
            (
                EventArgument("device_type", "Device Type"),
                EventArgument("device", "Device Id"),
                EventArgument("address", "Addr"),
                EventArgument("bytes", "Bytes"),
                EventArgument("total_allocated", "Total Allocated"),
                EventArgument("total_reserved", "Total Reserved"),
            ),
            phases=("i", "I"),
            only="[memory]",
        ),
    )
}

# Category, lower case → table and the value of its `category` column. Categories were capitalised until torch 1.9,
# some under other names.
CATEGORIES: dict[str, tuple[str, int]] = {
    "kernel": ("gpu", 0),
    "gpu_memcpy": ("gpu", 1),
    "memcpy": ("gpu", 1),
    "gpu_memset": ("gpu", 2),
    "memset": ("gpu", 2),
    "cuda_runtime": ("calls", 0),
    "runtime": ("calls", 0),
    "xpu_runtime": ("calls", 0),
    "mtia_runtime": ("calls", 0),
    "privateuse1_runtime": ("calls", 0),
    "cuda_driver": ("calls", 1),
    "xpu_driver": ("calls", 1),
    "privateuse1_driver": ("calls", 1),
    "cuda_sync": ("syncs", 0),
    "xpu_sync": ("syncs", 0),
    "cpu_op": ("ops", 0),
    "operator": ("ops", 0),
    "user_annotation": ("ops", 1),
    "python_function": ("frames", 0),
    "cpu_instant_event": ("memory", 0),
}


def row_of(spelling: str) -> tuple[str, int] | None:
    """Return the table of a category's events and the value of its `category` column; None: they carry no row.

    >>> row_of("Kernel"), row_of("ac2g")
    (('gpu', 0), None)
    """
    return CATEGORIES.get(spelling.lower())


# The exporter before Kineto wrote no category but named the process.
LEGACY_PROCESSES: dict[str, str] = {"CPU functions": "cpu_op", "CUDA functions": "kernel"}

# Spellings that every scan may meet; any other is learnt when it is met.
KNOWN_SPELLINGS: tuple[str, ...] = (
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync"),
    *("cpu_op", "user_annotation", "python_function"),
    *("ac2g", "fwdbwd", "cpu_instant_event", "gpu_user_annotation", "overhead", "Trace"),
)
