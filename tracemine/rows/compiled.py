"""torch.compile in a timeline: which activities a compiled graph launched, where graphs broke, what broke them.

PyTorch marks each run of a compiled function (`Torch-Compiled Region: 0/0`, the frame and how often it was compiled)
and, inside, each call of the graph that Inductor made of it (`## Call CompiledFxGraph … ##`). A function whose graph
broke runs on in Python and enters a region of its own for the rest (`torch_dynamo_resume_in_forward_at_69`), *inside*
the first one. So two calls of graphs that follow each other in one outermost region, from different regions, have a
graph break between them: that is no guess. The rest begins at the line that broke the graph, which is the line that
its frame is recorded with.

Regions that do not lie in a common one (two models, two layers compiled one by one) have no break between them, and so
have calls from one region (DistributedDataParallel cuts a graph on purpose).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tracemine.ops import lookup
from tracemine.rows.arrow import categories, coded, mapped, numbers, rows_of, take
from tracemine.rows.source import source_lines
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Numbers, Rows
from tracemine.timeline import Timeline

_REGION = "Torch-Compiled Region: "
_GRAPH_CALL = "## Call CompiledFxGraph "
_C_NAME = re.compile(r"[A-Za-z_]\w*$")
_COMPILING = " (dynamo_timed)"  # what dynamo and Inductor time of themselves, all of it while they compile

# What broke a graph, told from what ran until the next graph: the first whose operator or Python frame is there.
_REASONS: tuple[tuple[str, frozenset[str], str | None], ...] = (
    ("print", frozenset(), r"_tensor_str\.py|built-in function print>|(^|[/\\])logging[/\\]__init__\.py"),
    ("numpy", frozenset(), r"built-in method numpy of|_tensor\.py\(\d+\): __array__"),
    ("disabled", frozenset(), r"_dynamo[/\\]eval_frame\.py\(\d+\): _fn$"),
    (
        "size",
        frozenset(
            {
                "aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique_dim",
                "aten::unique_consecutive", "aten::repeat_interleave", "aten::bincount",
            }
        ),
        None,
    ),
    ("value", frozenset({"aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"}), None),
)  # fmt: skip
REASONS = (*(reason for reason, _, _ in _REASONS), "other")


@dataclass(frozen=True, slots=True)
class Breaks:
    """One entry a graph break, in order of time. Times are the host's, nanoseconds."""

    begin_ns: IntArray  # the call of the graph before has returned
    end_ns: IntArray  # the graph after is called
    thread: IntArray  # code of the host thread
    stack_row: IntArray  # row of `stacks`: the path to the graph after, by the function that resumes; −1: not recorded
    reason: IntArray  # position in REASONS


@dataclass(frozen=True, slots=True)
class Compiled:
    """What each activity has to do with torch.compile; row numbers and codes are −1 where there is none."""

    region: Categories  # of the innermost region that it was launched in: `0/0`
    compiled: BoolArray  # a compiled graph launched it, or it is Inductor's own kernel
    island: IntArray  # the break in which it was launched
    resumed: IntArray  # the break that ended with the graph call of which it is the first activity
    breaks: Breaks


def compiled(timeline: Timeline) -> Compiled:
    """Regions and graph breaks of a timeline.

    >>> from tracemine.timeline import Meta
    >>> found = compiled(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> len(found.compiled), len(found.breaks.begin_ns)
    (0, 0)
    """
    ops, api = timeline.ops, timeline.api
    name = categories(ops.column("name"))
    is_region, is_call = (_begins(name, prefix) for prefix in (_REGION, _GRAPH_CALL))
    thread, api_thread = _threads(timeline)
    launch = rows_of(timeline.activities.column("launch_row"))
    if not (is_region | is_call).any():
        none = np.full(len(launch), -1, np.int64)
        nothing = np.zeros(0, np.int64)
        unknown = Categories(none.astype(np.int32), ())
        return Compiled(unknown, none >= 0, none, none, Breaks(nothing, nothing, nothing, nothing, nothing))
    parent = rows_of(ops.column("parent_row"))
    begin = numbers(ops.column("start_ns")).values.astype(np.int64)
    end = begin + numbers(ops.column("dur_ns")).values.astype(np.int64)
    region = _nearest(parent, is_region)
    calls = np.flatnonzero(is_call & (_above(_nearest(parent, is_call), parent) < 0))
    calls = calls[np.lexsort((begin[calls], thread[calls]))]
    before, after = _broken(calls, region, _outermost(region, parent), thread)
    busy = _compiling(timeline, thread, begin, end)
    kept = ~_overlaps(busy, thread[before], end[before], begin[after])
    before, after = before[kept], after[kept]
    order = np.argsort(begin[after], kind="stable")
    before, after = before[order], after[order]
    stack = rows_of(ops.column("stack_row"))
    breaks = Breaks(
        begin_ns=end[before],
        end_ns=begin[after],
        thread=thread[after],
        stack_row=stack[after],
        reason=_reasons(timeline, _within(thread[after], end[before], begin[after], thread, begin), region, after),
    )
    launched = launch >= 0
    at = np.where(launched, numbers(api.column("start_ns")).values.astype(np.int64)[launch] if api.num_rows else 0, 0)
    on = np.where(launched, api_thread[launch], -2) if api.num_rows else np.full(len(launch), -2, np.int64)
    call = _within(thread[calls], begin[calls], end[calls], on, at)
    around = _first_known(_at(rows_of(api.column("op_row")), launch), rows_of(timeline.activities.column("op_row")))
    innermost = _at(region, around)
    return Compiled(
        region=mapped(take(name, innermost), lambda text: text.removeprefix(_REGION)),
        compiled=(call >= 0) | (_at(_codes(ops.column("kernel_backend")), around) >= 0),
        island=_within(breaks.thread, breaks.begin_ns, breaks.end_ns, on, at),
        resumed=_first_of_call(calls, call, at, after),
        breaks=breaks,
    )


def compilations(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Begin and end, host nanoseconds, of each stretch in which torch.compile compiled within the recording.

    In order of begin; stretches on several threads may overlap. Told from what dynamo and Inductor time of themselves
    (`… (dynamo_timed)`); a torch that does not record that compiles unseen.
    """
    begin = numbers(timeline.ops.column("start_ns")).values.astype(np.int64)
    end = begin + numbers(timeline.ops.column("dur_ns")).values.astype(np.int64)
    rows = _compiling(timeline, _threads(timeline)[0], begin, end)
    return rows[1], rows[2]


# --- breaks ----------------------------------------------------------------------------------------------------------


def _broken(calls: IntArray, region: IntArray, root: IntArray, thread: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of the graph calls before and after each break. `calls` are in order of thread and time."""
    before, after = calls[:-1], calls[1:]
    broken = (thread[before] == thread[after]) & (root[before] >= 0) & (root[before] == root[after])
    broken &= region[before] != region[after]
    return before[broken], after[broken]


def _reasons(timeline: Timeline, inside: IntArray, region: IntArray, after: IntArray) -> IntArray:
    """For each break, the first of REASONS that shows in it. `inside` is the break that each operator lies in.

    What runs in the region after the break belongs to that, and of a call path only what lies below the function that
    broke: the rest of the path is common to all of it.
    """
    rows = np.flatnonzero(inside >= 0)
    rows = rows[region[rows] != region[after][inside[rows]]]
    name = categories(timeline.ops.column("name"))
    stack = rows_of(timeline.ops.column("stack_row"))
    path, base = stack[rows], _at(stack, region[after])[inside[rows]]
    frame = categories(timeline.stacks.column("frame"))
    caller = rows_of(timeline.stacks.column("parent_row"))
    holds = []
    for _, operators, frames in _REASONS:
        shown = np.array([*(each in operators for each in name.values), False], np.bool_)[name.codes[rows]]
        if frames is not None:
            pattern = re.compile(frames)
            found = np.array([*(pattern.search(each) is not None for each in frame.values), False], np.bool_)
            nearest = _nearest(caller, found[frame.codes])
            shown |= (_at(nearest, path) >= 0) & (_at(nearest, path) != _at(nearest, base))
        holds.append(np.bincount(inside[rows[shown]], minlength=len(after)) > 0)
    return np.select(holds, list(range(len(holds))), default=len(holds)).astype(np.int64)


def _first_of_call(calls: IntArray, call: IntArray, at: IntArray, after: IntArray) -> IntArray:
    """For each activity that is the first launched by a graph call after a break, that break; else −1."""
    resumed = np.full(len(call), -1, np.int64)
    rows = np.flatnonzero(call >= 0)
    rows = rows[np.lexsort((rows, at[rows], call[rows]))]
    firsts = rows[np.r_[True, call[rows][1:] != call[rows][:-1]][: len(rows)]]
    number = np.full(int(calls.max(initial=-1)) + 1, -1, np.int64)
    number[after] = np.arange(len(after))
    resumed[firsts] = number[calls[call[firsts]]]
    return resumed


def _compiling(timeline: Timeline, thread: IntArray, begin: IntArray, end: IntArray) -> tuple[IntArray, ...]:
    """Thread, begin and end of the outermost stretches of compilation, in order of begin."""
    name = categories(timeline.ops.column("name"))
    found = np.array([*(each.endswith(_COMPILING) for each in name.values), False], np.bool_)[name.codes]
    parent = rows_of(timeline.ops.column("parent_row"))
    rows = np.flatnonzero(found)
    rows = rows[_above(_nearest(parent, found), parent)[rows] < 0] if len(rows) else rows
    return thread[rows], begin[rows], end[rows]


def _overlaps(busy: tuple[IntArray, ...], thread: IntArray, begin: IntArray, end: IntArray) -> BoolArray:
    """Whether each interval has a stretch of compilation on its thread."""
    if not len(busy[0]):
        return np.zeros(len(begin), np.bool_)
    return np.array(
        [
            bool(((busy[0] == one) & (busy[1] < until) & (busy[2] > since)).any())
            for one, since, until in zip(thread.tolist(), begin.tolist(), end.tolist(), strict=True)
        ],
        np.bool_,
    )


# --- trees and intervals ---------------------------------------------------------------------------------------------


def _begins(name: Categories, prefix: str) -> BoolArray:
    return np.array([*(each.startswith(prefix) for each in name.values), False], np.bool_)[name.codes]


def _threads(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """A code for the thread of each row of `ops` and of `api`, the same in both; −1 where none is recorded."""
    pairs = [
        np.stack([rows_of(table.column("pid")), rows_of(table.column("tid"))], axis=1)
        for table in (timeline.ops, timeline.api)
    ]
    both = np.concatenate(pairs)
    _, code = np.unique(both, axis=0, return_inverse=True)
    code = np.where(both[:, 1] >= 0, code.reshape(-1), -1).astype(np.int64)
    return code[: len(pairs[0])], code[len(pairs[0]) :]


def _nearest(parent: IntArray, marked: BoolArray) -> IntArray:
    """For each row of a tree the nearest marked row at or above it; −1 where there is none.

    Paths are halved until all have ended, so that depth costs its logarithm. Parents stand before children; a damaged
    row that says otherwise has none.

    >>> _nearest(np.array([-1, 0, 1, 2]), np.array([False, True, False, False])).tolist()
    [-1, 1, 1, 1]
    """
    rows = np.arange(len(parent))
    jump = np.where(marked, rows, np.where(parent < rows, parent, -1))
    while True:
        further = np.where(jump >= 0, jump[jump], -1)
        if (further == jump).all():
            return np.where((jump >= 0) & marked[jump], jump, -1)
        jump = further


def _above(nearest: IntArray, parent: IntArray) -> IntArray:
    """For each row the nearest marked row above it, itself not counted."""
    return _at(nearest, parent)


def _outermost(region: IntArray, parent: IntArray) -> IntArray:
    """For each row the outermost of the regions around it; −1 outside."""
    up = _at(_above(region, parent), region)
    top = np.where((up >= 0) & (up < region), up, region)
    while True:
        further = _at(top, top)
        if (further == top).all():
            return top
        top = further


def _within(thread: IntArray, begin: IntArray, end: IntArray, on: IntArray, at: IntArray) -> IntArray:
    """For each moment `at` on a thread the interval that holds it, its end left out; −1: none.

    Intervals of one thread do not overlap.

    >>> one = np.zeros(2, np.int64)
    >>> _within(one, np.array([0, 20]), np.array([10, 30]), np.zeros(3, np.int64), np.array([9, 10, 20])).tolist()
    [0, -1, 1]
    """
    if not len(begin):
        return np.full(len(at), -1, np.int64)
    order = np.lexsort((begin, thread))
    moments, moment = np.unique(np.concatenate((begin, at)), return_inverse=True)
    key = (np.concatenate((thread, on)) + 2) * len(moments) + moment.reshape(-1)
    place = np.searchsorted(key[: len(begin)][order], key[len(begin) :], side="right") - 1
    found = order[np.maximum(place, 0)]
    holds = (place >= 0) & (thread[found] == on) & (begin[found] <= at) & (at < end[found])
    return np.where(holds, found, -1)


def _at(values: IntArray, rows: IntArray) -> IntArray:
    """`values[rows]`, −1 where the row is −1."""
    return np.where(rows >= 0, values[rows], -1) if len(values) else np.full(len(rows), -1, np.int64)


def _codes(column: pa.ChunkedArray) -> IntArray:
    return categories(column).codes.astype(np.int64)


def _first_known(one: IntArray, other: IntArray) -> IntArray:
    return np.where(one >= 0, one, other)


# --- columns ---------------------------------------------------------------------------------------------------------


def activity_columns(timeline: Timeline, found: Compiled) -> dict[str, Column]:
    """What the row set "activities" says of torch.compile."""
    return {
        "region": found.region,
        "compiled": Flags(found.compiled),
        "handwritten": Flags(_handwritten(timeline)),
        "island": Numbers(np.maximum(found.island, 0), found.island >= 0),
    }


def gap_columns(timeline: Timeline, found: Compiled, gaps: Rows) -> dict[str, Column]:
    """What the row set "gaps" says of torch.compile. A gap is a break's if what the break did ends it.

    That is an activity launched in the break, or the first of the graph after it; and some of the gap must have passed
    while the host was in the break.
    """
    begin, dur, following = (_int(gaps, name) for name in ("start_ns", "dur_ns", "next_row"))
    broken = _first_known(_at(found.island, following), _at(found.resumed, following))
    breaks = found.breaks
    shared = np.minimum(begin + dur, _at(breaks.end_ns, broken)) - np.maximum(begin, _at(breaks.begin_ns, broken))
    broken = np.where(shared > 0, broken, -1)
    stack = _at(breaks.stack_row, broken)
    return {
        "graph_break": Numbers(np.maximum(broken, 0), broken >= 0),
        "break_reason": coded(REASONS, _at(breaks.reason, broken)),
        "break_ns": Numbers(np.where(broken >= 0, shared, 0), broken >= 0),
        "break_source": take(source_lines(timeline.stacks), stack),
        "break_stack_row": Numbers(np.maximum(stack, 0), stack >= 0),
    }


def _handwritten(timeline: Timeline) -> BoolArray:
    """Kernels that are nobody's operator's: with a plain C name, as Triton's have, and launched outside every operator
    that the operator table knows, although operators were recorded.
    """
    activities = timeline.activities
    kernel = _in(categories(activities.column("kind")), "kernel")
    name = categories(activities.column("name"))
    plain = np.array([*(_C_NAME.match(each) is not None for each in name.values), False], np.bool_)[name.codes]
    op_row = rows_of(activities.column("op_row"))
    op = mapped(take(categories(timeline.ops.column("name")), op_row), lambda each: None if lookup(each) else each)
    reason = categories(activities.column("unowned_reason"))
    return kernel & plain & ((op.codes >= 0) | _in(reason, "outside_any_op"))


def _in(column: Categories, wanted: str) -> BoolArray:
    return np.array([*(value == wanted for value in column.values), False], np.bool_)[column.codes]


def _int(rows: Rows, name: str) -> IntArray:
    column = rows.columns[name]
    assert isinstance(column, Numbers)  # noqa: S101 - the row set's documented kind
    return column.values.astype(np.int64)
