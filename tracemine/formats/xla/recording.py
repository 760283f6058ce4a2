"""What a profile of XLA recorded, as columns: activities of GPUs and events of host threads, in order of time.

The same for both files that JAX writes. `hlo_*` and `program` say which instruction of which module an activity is of.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from tracemine.columns import Array, codes, is_among, sorted_unique
from tracemine.formats.kineto.nesting import time_order
from tracemine.formats.xla.hlo import HloModule
from tracemine.timeline import RecordedDevice

Columns = dict[str, Array]

MEMORY_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
FRAME = "$"  # begins the name of a Python frame's event
# A frame in which the host waits, whatever is below it; among host events it has a name of its own.
WAITING_FRAME = re.compile(r"^\$.*[: ]block_until_ready$", re.DOTALL)
WAIT = "jax.block_until_ready"
_OWN_WORK = ("BUFFER_FLUSH", "<UNKNOWN>")  # the profiler's


class EventKind(Struct, frozen=True):
    """Stats that are wanted of events, by the column that holds them: integers, ids of texts (−1: none), and float64;
    and by which name an event is of the kind.
    """

    numbers: dict[str, str]
    texts: dict[str, str]
    doubles: dict[str, str]
    holds: Callable[[str], bool]


def _is_host(name: str) -> bool:
    if name.startswith(FRAME):
        return WAITING_FRAME.match(name) is not None
    return name not in MEMORY_EVENTS and name not in _OWN_WORK


GPU = EventKind(
    {
        "correlation": "correlation_id",
        "graph_id": "cuda_graph_id",
        "graph_node_id": "cuda_graph_node_id",
        "program": "program_id",
    },
    {
        "hlo_op": "hlo_op",
        "hlo_module": "hlo_module",
        "kernel_details": "kernel_details",
        "copy_details": "memcpy_details",
        "set_details": "Memset_details",
        "old_set_details": "memset_details",
    },
    {"occupancy": "theoretical_occupancy_pct"},
    lambda _: True,
)
OF_HOST = {
    "host": EventKind(
        {"correlation": "correlation_id", "device": "device_id", "commands": "num_commands", "step": "step_num"},
        {"module": "module_name"},
        {},
        _is_host,
    ),
    "memory": EventKind(
        {"allocated": "bytes_allocated", "bytes": "allocation_bytes", "address": "addr"},
        {"allocator": "allocator_name"},
        {},
        MEMORY_EVENTS.__contains__,
    ),
    "frame": EventKind({}, {}, {}, lambda name: name.startswith(FRAME)),
}
SMALL = ("device", "commands")  # numbers of many host events: int32, −1 where there is none or one beyond that


class Recording(Struct, frozen=True, kw_only=True):
    """One file. Columns are int64 but for ids of texts (int32, in `strings`, -1: none); MISSING where not recorded.

    `gpu`: name, start_ns, dur_ns, device, stream, those of GPU, and launch, the row of `host` that launched it (-1: not
    recorded). `host`: name, start_ns, end_ns, thread (in `threads`), those of OF_HOST; Python's frames are in `frames`
    instead: all `frame_count`, or those alone that ran when a host event began.
    """

    source: str  # `xplane` or `json`
    strings: list[str]
    gpu: Columns
    host: Columns
    memory: Columns
    frames: Columns
    frame_count: int
    threads: tuple[str, ...]
    tids: tuple[int, ...]
    pid: int
    devices: tuple[RecordedDevice, ...]
    vendors: dict[int, str]
    modules: dict[int, HloModule] = {}  # those that ran, by the number that `program` says
    versions: dict[str, str]
    base_ns: int = 0
    without_frames: bool = False  # there are too many
    truncated: bool = False

    @property
    def replays(self) -> bool:
        """Whether command buffers were replayed as CUDA graphs while it was profiled."""
        return bool((self.gpu["graph_id"] > 0).any())


class Strings(dict[str, int]):
    """Text → id, in order of first appearance."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def of(self, text: str | None) -> int:
        """Return the id of a text, −1 of none.

        >>> Strings().of("a"), Strings().of(None)
        (0, -1)
        """
        return -1 if text is None else self[text]


def joined(parts: list[Columns], kind: EventKind, *own: str) -> Columns:
    """Return columns one after another, taken out of `parts` to free them; `own`: those that are of no stat."""
    if parts:
        return {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}
    wide = ("start_ns", "dur_ns", *own, *kind.numbers, *kind.doubles)
    return {name: np.empty(0, np.int64) for name in wide} | {n: np.empty(0, np.int32) for n in ("name", *kind.texts)}


def in_order(columns: Columns, *ties: str) -> Columns:
    """Put columns in order of start; of equal starts by `ties`, where there are none the longer first."""
    keys = [columns[name] for name in ties] or [-columns["dur_ns"]]
    order = time_order(columns["start_ns"], *keys)
    for name in columns:  # one after another, to free what was
        columns[name] = columns[name][order]
    return columns


def running_at(moments: Array, columns: Columns) -> Columns:
    """Return the rows that began no later than one of these moments, which are in order, and ended no earlier.

    >>> rows = {"start_ns": np.array([0, 2, 4]), "dur_ns": np.array([3, 1, 1])}
    >>> running_at(np.array([1]), rows)["start_ns"].tolist(), running_at(np.array([5]), rows)["start_ns"].tolist()
    ([0], [4])
    """
    start = columns["start_ns"]
    asked = np.searchsorted(moments, start) < np.searchsorted(moments, start + columns["dur_ns"], "right")
    return {name: column[asked] for name, column in columns.items()}


def launches(gpu: Columns, host: Columns) -> Array:
    """Return for each activity the row of the host event with its device and correlation id, -1 where there is none
    (int32).

    Ids are counted on each device. Of several events the innermost, which stands last.
    """
    calls = np.flatnonzero(host["correlation"] > 0)
    if not len(calls) or not len(gpu["correlation"]):
        return np.full(len(gpu["correlation"]), -1, np.int32)
    device = host["device"][calls]
    # On the host AMD numbers devices otherwise, and old recordings have no number: there ids count over all devices.
    apart = bool(is_among(device, sorted_unique(gpu["device"])).all())
    of_gpu, device = gpu["device"] * apart, device * apart
    both = codes(np.concatenate((of_gpu, device)), np.concatenate((gpu["correlation"], host["correlation"][calls])))
    row_of = np.full(int(both.max()) + 1, -1, np.int32)
    row_of[both[len(of_gpu) :]] = calls
    return np.where(gpu["correlation"] > 0, row_of[both[: len(of_gpu)]], -1)
