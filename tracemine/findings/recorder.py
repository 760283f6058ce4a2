"""What a recorder adds: how much it slows the host, and idle time that exists only because something was recorded."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.calls import Call, calls_of
from tracemine.columns import numbers
from tracemine.perfmodel import JAX_EVENT_NS, SLOWDOWNS, Slowdown
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Rows, number
from tracemine.timeline import Timeline

_LIST, _FEWEST_TENSORS = "TensorList", 16
_BUFFERED = 5  # kernels of a module: one with fewer is no command buffer
OTHER_PROFILERS: Final = ("nsys", "proton", "rocpd")  # formats that other profilers than PyTorch's write
_HOST_EVENTS: Final = ("Python frames", "host events")  # as the reader of XLA counts them
_MEASURED: Final = ("kineto", "xla")  # formats of recorders whose cost for the host was measured


def slowdown_of(timeline: Timeline) -> Slowdown | None:
    """Return what recording does to the host, by what was recorded, in the light window where there is one. None
    without host events, and for recorders whose cost was not measured.
    """
    if timeline.light.num_rows:
        return SLOWDOWNS["light"]
    if timeline.meta.format not in _MEASURED or not timeline.ops.num_rows:
        return None
    if timeline.meta.format == "xla":
        return SLOWDOWNS["jax_loops"] if _replays_in_loops(timeline) else _of_events(timeline, SLOWDOWNS["jax"])
    # torch gives these ids out only while it writes an execution trace
    traced = timeline.ops["record_function_id"].null_count < timeline.ops.num_rows
    stacks = timeline.stacks.num_rows > 0
    kinds = {
        (True, True): "both",
        (True, False): "execution_trace",
        (False, True): "stacks",
        (False, False): "operators",
    }
    return SLOWDOWNS[kinds[traced, stacks]]


def _of_events(timeline: Timeline, usual: Slowdown) -> Slowdown:
    """Return what recording with JAX costs: what its events on the host take, where that is more than is usual."""
    start = numbers(timeline.steps["start_ns"])
    if not len(start):
        return usual
    tables = (timeline.steps, timeline.activities)
    ends = [numbers(table["start_ns"]) + numbers(table["dur_ns"]) for table in tables if table.num_rows]
    took_ns = max(int(end.max()) for end in ends) - int(start.min())
    events = sum(timeline.meta.ingest.events.get(name, 0) for name in _HOST_EVENTS)
    alone_ns = max(took_ns - events * JAX_EVENT_NS, took_ns / usual.most)
    times = round(took_ns / max(alone_ns, 1), 3)
    return replace(usual, usual=times) if times > usual.usual else usual


def _replays_in_loops(timeline: Timeline) -> bool:
    """Return whether most activities are of graphs that a loop of a compiled module replays, one an iteration."""
    turns, graphs = timeline.instructions["turn"], timeline.activities["graph_id"]
    return bool(2 * turns.null_count < len(turns) and 2 * graphs.null_count < len(graphs))


def of_recorder(timeline: Timeline, gaps: Rows) -> BoolArray:
    """Return the gaps that passed mostly within an operator on a list of many tensors, which an execution trace writes
    down one by one, where one was recorded.

    torch gives operators ids of their own only while it writes an execution trace.
    """
    ops = timeline.ops
    if timeline.instructions.num_rows:
        return _inside_modules(timeline, gaps)
    none = np.zeros(gaps.count, np.bool_)
    if not ops.num_rows or ops["record_function_id"].null_count == ops.num_rows or not gaps.count:
        return none
    op = rows_of(timeline.activities["op_row"])[number(gaps, "next_row")]
    begin, dur = number(gaps, "start_ns"), number(gaps, "dur_ns")
    known = calls_of(timeline).spread(op, _takes_many, False, np.bool_)
    started = rows_of(ops["start_ns"])[op]
    return known & (started <= begin + dur // 2)


def _inside_modules(timeline: Timeline, gaps: Rows) -> BoolArray:
    """Return the gaps inside modules that XLA ran kernel by kernel for the profiler: unrecorded they are one launch.

    Where anything was replayed as a graph, nothing was changed for the profiler.
    """
    graph = timeline.activities["graph_id"]
    table = timeline.instructions
    execution = np.full(timeline.ops.num_rows + 1, -1)
    number_of = numbers(table["execution"])
    execution[numbers(table["op_row"])] = np.where(np.bincount(number_of)[number_of] >= _BUFFERED, number_of, -1)
    after = number(gaps, "next_row")
    op = rows_of(timeline.activities["op_row"])
    own = execution[op]
    same: BoolArray = (own[after] >= 0) & (own[np.maximum(after - 1, 0)] == own[after]) & (after > 0)
    return same if graph.null_count == len(graph) else np.zeros_like(same)


def _takes_many(call: Call) -> bool:
    """Return whether one of the lists that a call takes is long.

    >>> [_takes_many(Call("mine::f", (((2,),) * count, ()), ("TensorList", "Scalar"))) for count in (16, 15)]
    [True, False]
    """
    given = call.shapes or ()
    longest = max((sum(isinstance(member, tuple) for member in each) for each in given), default=0)
    return _LIST in (call.dtypes or ()) and longest >= _FEWEST_TENSORS
