"""Profiled kernels, a line each: what was counted, what is modelled, and where it stands on the roofline."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tracemine.counters import Counters, ProfiledKernel
from tracemine.ops.kernel_names import canonical, short_name
from tracemine.rows import Rows, row_sets
from tracemine.rows.measured import device_of, ridge_of
from tracemine.rows.table import category, numbers_of
from tracemine.timeline import Timeline


class KernelLine(msgspec.Struct, frozen=True, kw_only=True):
    """Launches with equal name, grid, block, operator and modelled traffic. Null: not recorded, or in no trace."""

    name: str  # the function's, with the operation that the whole name shows
    op: str | None  # operator that owns the activities
    launches: int
    activities: int  # of the timeline, that they are
    kernel: ProfiledKernel  # the launch with the middle traffic
    bound: str | None
    arithmetic_intensity: float | None  # FLOP per byte of DRAM traffic
    ridge: float | None  # FLOP per byte from which on arithmetic is the limit
    modelled_read_bytes: int | None  # what the kernel must read, from shapes
    modelled_written_bytes: int | None


def kernel_lines(timeline: Timeline, counters: Counters) -> list[KernelLine]:
    """Return all profiled kernels, those that took most time first.

    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> none = np.empty(0, np.int64)
    >>> kernel_lines(empty, Counters((ProfiledKernel(name="f<1>(int)", order=0),), none, none > 0, {}, {}))[0].name
    'f'
    """
    modelled = row_sets(timeline)["activities"]
    rows_of = _activities(counters)
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, kernel in enumerate(counters.kernels):
        rows = rows_of.get(i)
        model = _op(modelled, rows), _number(modelled, "bytes_read", rows), _number(modelled, "bytes_written", rows)
        groups.setdefault((canonical(kernel.name), kernel.grid, kernel.block, *model), []).append(i)
    lines = [_line(timeline, counters, members, modelled, rows_of) for members in groups.values()]
    return sorted(lines, key=lambda each: -(each.kernel.dur_ns or 0) * each.launches)


def _activities(counters: Counters) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(counters.of >= 0).tolist():
        rows.setdefault(int(counters.of[row]), []).append(row)
    return rows


def _line(
    timeline: Timeline, counters: Counters, members: Sequence[int], modelled: Rows, rows_of: dict[int, list[int]]
) -> KernelLine:
    ranked = sorted(members, key=lambda i: counters.kernels[i].dram_bytes or 0)
    middle = ranked[(len(ranked) - 1) // 2]
    kernel = counters.kernels[middle]
    rows = rows_of.get(middle)
    ridge = ridge_of(kernel, device_of(timeline, kernel))
    return KernelLine(
        name=short_name(kernel.name),
        op=_op(modelled, rows),
        launches=len(members),
        activities=sum(len(rows_of.get(i, ())) for i in members),
        kernel=kernel,
        bound=kernel.bound(ridge),
        arithmetic_intensity=kernel.intensity,
        ridge=ridge,
        modelled_read_bytes=_number(modelled, "bytes_read", rows),
        modelled_written_bytes=_number(modelled, "bytes_written", rows),
    )


def _op(modelled: Rows, rows: Sequence[int] | None) -> str | None:
    ops = category(modelled, "op")
    code = -1 if not rows else int(ops.codes[rows[0]])
    return ops.values[code] if code >= 0 else None


def _number(modelled: Rows, name: str, rows: Sequence[int] | None) -> int | None:
    column = numbers_of(modelled, name)
    known = bool(rows) and (column.valid is None or bool(column.valid[rows[0]])) if rows else False
    return int(column.values[rows[0]]) if rows and known else None
