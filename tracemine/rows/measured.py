"""Counters of Nsight Compute as columns of each activity, and the modelled columns that they replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracemine.counters import Counters, ProfiledKernel
from tracemine.counters.match import EXACT, NAME_AND_GRID
from tracemine.devices import Device, find_device
from tracemine.rows.table import BoolArray, Categories, Column, Flags, Numbers, Rows
from tracemine.timeline import Timeline

_BOUNDS = ("memory", "compute", "latency", "neither")
_SOURCES = ("counters", "rate", "throughput")

# One column each; null where the report does not have it.
_NUMBERS: dict[str, Callable[[ProfiledKernel], float | None]] = {
    "dram_bytes": lambda kernel: kernel.dram_bytes,
    "dram_read_bytes": lambda kernel: kernel.dram_read_bytes,
    "dram_written_bytes": lambda kernel: kernel.dram_written_bytes,
    "flops": lambda kernel: kernel.total_flops,
    "intensity": lambda kernel: kernel.intensity,
    "achieved_occupancy_percent": lambda kernel: kernel.occupancy_percent,
    "spill_requests": lambda kernel: kernel.spill_requests,
    "l2_hit_percent": lambda kernel: kernel.l2_hit_percent,
    "compute_percent": lambda kernel: kernel.compute_percent,
    "memory_percent": lambda kernel: kernel.memory_percent,
}
# Vector units do half precision at least as fast as single; a lower peak makes a kernel look nearer to its limit.
_PEAK_OF = {"half": "fp32"}


def measured_columns(timeline: Timeline, activities: Rows, counters: Counters | None) -> dict[str, Column]:
    """Return the columns of the counters, all null without them; and `bytes_read`, `bytes_written`, `bytes` and
    `bound`, in which what was measured replaces the model.

    >>> from tracemine.timeline import Meta
    >>> from tracemine.rows.activities import activity_rows
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> "intensity" in measured_columns(empty, activity_rows(empty), None)
    True
    """
    if counters is None:
        return _nothing(activities.count)
    of, exact, kernels = counters.of, counters.exact, counters.kernels
    ridges = [ridge_of(kernel, device_of(timeline, kernel)) for kernel in kernels]
    columns: dict[str, Column] = {
        "counters": Categories(np.where(of < 0, -1, np.where(exact, 0, 1)).astype(np.int32), (EXACT, NAME_AND_GRID)),
        "measured_bound": _categories(
            [kernel.bound(ridge) for kernel, ridge in zip(kernels, ridges, strict=True)], of, _BOUNDS
        ),
        "dram_bytes_from": _categories([kernel.dram_bytes_from for kernel in kernels], of, _SOURCES),
    }
    for name, value in _NUMBERS.items():
        columns[name] = _numbers([value(kernel) for kernel in kernels], of)
    columns["ridge"] = _numbers(ridges, of)
    return columns | _replaced(activities, columns)


def _nothing(count: int) -> dict[str, Column]:
    """Return every column all null, in the room of one row."""
    codes = np.broadcast_to(np.full(1, -1, np.int32), count)
    zeros, nowhere = np.broadcast_to(np.zeros(1, np.int64), count), np.broadcast_to(np.zeros(1, np.bool_), count)
    columns: dict[str, Column] = {
        "counters": Categories(codes, (EXACT, NAME_AND_GRID)),
        "measured_bound": Categories(codes, _BOUNDS),
        "dram_bytes_from": Categories(codes, _SOURCES),
    }
    return columns | dict.fromkeys((*_NUMBERS, "ridge"), Numbers(zeros, nowhere))


def _replaced(activities: Rows, measured: dict[str, Column]) -> dict[str, Column]:
    """Return modelled columns with what was measured in its place."""
    read = _first(_of(measured, "dram_read_bytes"), _of(activities.columns, "bytes_read"))
    modelled, counted = _of(activities.columns, "bytes_written"), _of(measured, "dram_written_bytes")
    # The counter misses what still lay in L2 when the kernel ended, which is most of it for results of a few megabytes:
    # it raises what must be written, it never lowers it.
    both = _valid(modelled) & _valid(counted)
    written = Numbers(np.where(both, np.maximum(modelled.values, counted.values), modelled.values), modelled.valid)
    known = _valid(read) & _valid(written)
    bound, found = activities.columns["bound"], measured["measured_bound"]
    assert isinstance(bound, Categories), "bound"  # noqa: S101 - the row sets' documented kinds
    assert isinstance(found, Categories), "measured_bound"  # noqa: S101
    values = bound.values if "compute" in bound.values else (*bound.values, "compute")
    compute = found.codes == _BOUNDS.index("compute")
    codes = np.where(compute, values.index("compute"), bound.codes).astype(np.int32)
    return {
        "bytes_read": read,
        "bytes_written": written,
        "bytes": Numbers(np.where(known, read.values + written.values, 0), known),
        "bound": Categories(codes, values),
    }


def ungrouped_columns(activities: Rows) -> dict[str, Column]:
    """Return `chain` and `grouped` without the fusion groups in which compute limits a member. What saves traffic saves
    no time there, and the rest of a group is not known to be one: each activity is a chain of its own.

    >>> rows = Rows("activities", 3, {"chain": Numbers(np.array([4, 4, 5])), "grouped": Flags(np.array([True] * 3)),
    ...     "measured_bound": Categories(np.array([1, 0, 0], np.int32), ("memory", "compute"))})
    >>> columns = ungrouped_columns(rows)
    >>> columns["chain"].values.tolist(), columns["grouped"].values.tolist()
    ([6, 7, 5], [False, False, True])
    """
    chain, grouped = _of(activities.columns, "chain").values, activities.columns["grouped"]
    found = activities.columns["measured_bound"]
    assert isinstance(grouped, Flags), "grouped"  # noqa: S101 - the row sets' documented kinds
    assert isinstance(found, Categories), "measured_bound"  # noqa: S101
    compute = (found.codes == found.values.index("compute")) & grouped.values
    if not compute.any():
        return {}
    apart = grouped.values & np.isin(chain, chain[compute])
    alone = int(chain.max()) + 1 + np.arange(activities.count)
    return {"chain": Numbers(np.where(apart, alone, chain)), "grouped": Flags(grouped.values & ~apart)}


# --- roofline --------------------------------------------------------------------------------------------------------


def ridge_of(kernel: ProfiledKernel, device: Device | None) -> float | None:
    """Return the FLOP per byte from which arithmetic limits a kernel: the data sheet's peaks, divided.

    The peak is that of the data types that the kernel computes in, weighed by their FLOPs: Σ flops ÷ Σ (flops ÷ peak),
    single precision where it does none. S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52 (2009).
    """
    if device is None or kernel.total_flops is None:
        return None
    flops = kernel.flops or {"fp32": 1}
    peaks = [device.flops_per_s.get(_PEAK_OF.get(dtype, dtype)) for dtype in flops]
    known = [peak for peak in peaks if peak]
    if len(known) < len(peaks):
        return None
    seconds = sum(count / peak for count, peak in zip(flops.values(), known, strict=True))
    return sum(flops.values()) / seconds / device.bandwidth_bytes_per_s if seconds else None


def device_of(timeline: Timeline, kernel: ProfiledKernel) -> Device | None:
    """Return the GPU that was profiled, by the report, else by the timeline where it has but one kind."""
    if kernel.gpu is not None:
        return find_device(kernel.gpu)
    found = [find_device(device.name, device.sm_count, device.memory_bytes) for device in timeline.meta.devices]
    return found[0] if found and all(each is found[0] for each in found) else None


# --- columns ---------------------------------------------------------------------------------------------------------


def _numbers(values: Sequence[float | None], of: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Numbers:
    filled = [*(value or 0 for value in values), 0]
    known = np.array([*(value is not None for value in values), False], np.bool_)
    if all(isinstance(value, int) for value in filled):
        return Numbers(np.array(filled, np.int64)[of], known[of])
    return Numbers(np.array(filled, np.float64)[of], known[of])


def _categories(
    values: Sequence[str | None], of: np.ndarray[tuple[int], np.dtype[np.int64]], names: tuple[str, ...]
) -> Categories:
    codes = np.array([*(-1 if value is None else names.index(value) for value in values), -1], np.int32)
    return Categories(codes[of], names)


def _of(columns: dict[str, Column], name: str) -> Numbers:
    column = columns[name]
    assert isinstance(column, Numbers), name  # noqa: S101 - the row sets' documented kinds
    return column


def _valid(column: Numbers) -> BoolArray:
    return np.ones(len(column.values), np.bool_) if column.valid is None else column.valid


def _first(one: Numbers, other: Numbers) -> Numbers:
    known = _valid(one)
    return Numbers(np.where(known, one.values, other.values), known | _valid(other))
