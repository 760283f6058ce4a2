"""What host threads did, as spans by lane: lines of the user's Python, operators, and calls into the GPU's runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.columns import sorted_unique
from tracemine.rows.ancestors import above, nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import threads
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline
from tracemine.top.grouping import NOT_KNOWN
from tracemine.top.lines import line_paths

__all__ = ["HostLane", "host_lanes"]

_MOST_THREADS = 2  # those that launch most
_LEAST_SHARE = 0.02  # of all launches: a thread with fewer is not drawn


class HostLane(Struct, frozen=True, kw_only=True, eq=False):
    """Spans of one thread that do not overlap, in order of start. Nanoseconds on the trace's clock."""

    title: str
    start_ns: IntArray
    dur_ns: IntArray
    name: IntArray  # position in `names`
    names: tuple[str, ...]


def host_lanes(timeline: Timeline, begin_ns: int) -> tuple[HostLane, ...]:
    """Return the lanes of the threads that launch most, each from the user's lines down to what these call.

    begin_ns: the moment that counts as 0.

    >>> from tracemine.pipeline import analyse
    >>> [lane.title for lane in host_lanes(analyse("fixtures/captures/chain").timeline, 0)]
    ['Python', 'operators', 'within', 'GPU calls']
    """
    of_api, of_ops = threads(timeline)
    launch = rows_of(timeline.activities["launch_row"])
    launching = of_api[sorted_unique(launch[launch >= 0])]
    count = np.bincount(launching[launching >= 0], minlength=1)
    drawn = [at for at in np.argsort(-count, kind="stable")[:_MOST_THREADS] if count[at] > _LEAST_SHARE * count.sum()]
    depth, lanes = _depth(timeline), []
    for number, thread in enumerate(drawn, 1):
        behind = f" ({number})" if len(drawn) > 1 else ""
        outer, inner = (np.flatnonzero((of_ops == thread) & (depth == at)) for at in (0, 1))
        lanes += [
            _python(f"Python{behind}", timeline, outer, begin_ns),
            _lane(f"operators{behind}", timeline.ops, outer, begin_ns),
            _lane(f"within{behind}", timeline.ops, inner, begin_ns),
            _lane(f"GPU calls{behind}", timeline.api, np.flatnonzero(of_api == thread), begin_ns),
        ]
    return tuple(lane for lane in lanes if len(lane.start_ns))


def _depth(timeline: Timeline) -> IntArray:
    """Return how many operators are around each operator, 2 at most; −1 of annotations."""
    parent = rows_of(timeline.ops["parent_row"])
    is_op = categories(timeline.ops["kind"]).among("op")
    outer = above(nearest(parent, is_op), parent)
    depth = np.where(outer < 0, 0, np.where(taken(outer, outer) < 0, 1, 2))
    return np.where(is_op, depth, -1)


def _lane(title: str, table: pa.Table, rows: IntArray, begin_ns: int) -> HostLane:
    start, dur = rows_of(table["start_ns"])[rows], rows_of(table["dur_ns"])[rows]
    names = categories(table["name"])
    return _named(title, start - begin_ns, dur, names.codes[rows].astype(np.int64), names.values)


def _python(title: str, timeline: Timeline, rows: IntArray, begin_ns: int) -> HostLane:
    """Return the user's lines that operators come from: one span for as long as one leads to the next."""
    paths = line_paths(timeline.stacks)
    texts: dict[str, int] = {}
    of_path = [-1 if path == NOT_KNOWN else texts.setdefault(path[0] or "", len(texts)) for path in paths.values]
    of_stack = np.append(np.array(of_path, np.int64)[paths.codes], -1)
    name = of_stack[rows_of(timeline.ops["stack_row"])[rows]]
    known = name >= 0
    rows, name = rows[known], name[known]
    start = rows_of(timeline.ops["start_ns"])[rows] - begin_ns
    end = start + rows_of(timeline.ops["dur_ns"])[rows]
    first = np.append(True, name[1:] != name[:-1])[: len(name)]
    last = np.append(first[1:], True)[: len(name)]
    return _named(title, start[first], end[last] - start[first], name[first], tuple(texts))


def _named(title: str, start: IntArray, dur: IntArray, code: IntArray, values: Sequence[str]) -> HostLane:
    """Return a lane with those names alone that are in it."""
    used, name = np.unique(code, return_inverse=True)
    texts = tuple(values[each] if each >= 0 else "?" for each in used.tolist())
    return HostLane(title=title, start_ns=start, dur_ns=dur, name=name.reshape(-1), names=texts)
