"""Graph breaks: where torch.compile left a function between two of its graphs, the line, and the reason.

PyTorch marks each run of a compiled function (`Torch-Compiled Region: 0/0`, the frame and how often it was compiled)
and, inside, each call of the graph that Inductor made of it (`## Call CompiledFxGraph … ##`). Between two such calls
that follow each other on a thread there is a break where either is certain:

  - They lie in one outermost region, and in different regions. A function whose graph broke runs on in Python and
    enters a region of its own for the rest (`torch_dynamo_resume_in_forward_at_69`) inside the first one. The rest
    begins at the line that broke the graph, which is the line that its frame is recorded with.
  - torch.compile gave up on a whole function, as it does where a graph breaks within a loop, and compiled only what
    that calls. Then both regions, and every operator in between, have that function on their call path, below the same
    entry into torch.compile. Which of its lines it was is not recorded.

So two models, layers that are compiled one by one, and a model that is called twice have no break between them. Nor
have two calls from one region: DistributedDataParallel cuts a graph on purpose.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from tracemine.patterns import deferred
from tracemine.rows.ancestors import last_begun, nearest, outermost, taken, within
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.table import BoolArray, Categories, IntArray
from tracemine.rows.user_frames import own_frames
from tracemine.timeline import Timeline

REGION = "Torch-Compiled Region: "
GRAPH_CALL = "## Call CompiledFxGraph "
_COMPILING = " (dynamo_timed)"  # what dynamo and Inductor time of themselves, all of it while they compile
_ENTRY = deferred(r"_dynamo[/\\]eval_frame\.py\(\d+\): compile_wrapper$")

# What broke a graph, inferred from what ran until the next graph: the first whose operator or Python frame is there.
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


class Breaks(Struct, frozen=True):
    """One entry a graph break, in order of time. Times are the host's, nanoseconds."""

    begin_ns: IntArray  # the call of the graph before has returned
    end_ns: IntArray  # the graph after is called
    thread: IntArray  # code of the host thread
    stack_row: IntArray  # row of `stacks`: the path to the line, or to the function that was given up; −1: not recorded
    reason: IntArray  # position in REASONS


class Marks(Struct, frozen=True):
    """Marks of torch.compile in the `ops` table: one entry a row of it, and the graph calls."""

    parent: IntArray
    begin_ns: IntArray
    end_ns: IntArray
    thread: IntArray
    region: IntArray  # row of the innermost region at or above; −1: none
    root: IntArray  # row of the outermost
    stack: IntArray  # row of `stacks`; −1: not recorded
    calls: IntArray  # rows of the graph calls that no other holds, in order of thread and time

    @staticmethod
    def of(timeline: Timeline, thread: IntArray) -> Marks:
        ops = timeline.ops
        name = categories(ops.column("name"))
        is_region, is_call = (_named(name, prefix) for prefix in (REGION, GRAPH_CALL))
        parent = rows_of(ops.column("parent_row"))
        begin = numbers(ops.column("start_ns")).values.astype(np.int64)
        region = nearest(parent, is_region)
        calls = np.flatnonzero(is_call & (taken(nearest(parent, is_call), parent) < 0))
        return Marks(
            parent=parent,
            begin_ns=begin,
            end_ns=begin + numbers(ops.column("dur_ns")).values.astype(np.int64),
            thread=thread,
            region=region,
            root=outermost(region, parent),
            stack=rows_of(ops.column("stack_row")),
            calls=calls[np.lexsort((begin[calls], thread[calls]))],
        )


def is_marked(timeline: Timeline) -> bool:
    """Return whether anything of torch.compile was recorded: most traces have nothing, and are done then."""
    names = categories(timeline.ops.column("name")).values
    return any(name.startswith((REGION, GRAPH_CALL)) for name in names)


def find_breaks(timeline: Timeline, marks: Marks) -> tuple[Breaks, IntArray]:
    """Return the breaks, and for each the row of the graph call that follows it.

    One during which something was compiled is left out: its time is the compiler's.
    """
    before, after = marks.calls[:-1], marks.calls[1:]
    same = (marks.thread[before] == marks.thread[after]) & (marks.root[before] >= 0) & (marks.root[after] >= 0)
    resumed = same & (marks.root[before] == marks.root[after]) & (marks.region[before] != marks.region[after])
    function = np.full(len(before), -1, np.int64)
    apart = np.flatnonzero(same & (marks.root[before] != marks.root[after]))
    function[apart] = _given_up(timeline, marks, before[apart], after[apart])
    path = np.where(resumed, marks.stack[after], function)
    rows, begin, end = compiling(timeline)
    compiled_meanwhile = _overlaps((marks.thread[rows], begin, end), marks, before, after)
    kept = np.flatnonzero((resumed | (function >= 0)) & ~compiled_meanwhile)
    kept = kept[np.argsort(marks.begin_ns[after[kept]], kind="stable")]
    before, after = before[kept], after[kept]
    breaks = Breaks(
        begin_ns=marks.end_ns[before],
        end_ns=marks.begin_ns[after],
        thread=marks.thread[after],
        stack_row=path[kept],
        reason=_reasons(timeline, marks, before, after),
    )
    return breaks, after


def compiling(timeline: Timeline) -> tuple[IntArray, IntArray, IntArray]:
    """Return the row of `ops`, begin and end of each outermost stretch of compilation, in order of begin."""
    ops = timeline.ops
    name = categories(ops.column("name"))
    found = name.that(lambda each: each.endswith(_COMPILING))
    rows = np.flatnonzero(found)
    if len(rows):
        parent = rows_of(ops.column("parent_row"))
        rows = rows[taken(nearest(parent, found), parent[rows]) < 0]
    begin = numbers(ops.column("start_ns")).values.astype(np.int64)[rows]
    return rows, begin, begin + numbers(ops.column("dur_ns")).values.astype(np.int64)[rows]


def _given_up(timeline: Timeline, marks: Marks, before: IntArray, after: IntArray) -> IntArray:
    """Return, for each pair of graph calls, the `stacks` row of the function that was given up on; −1: none."""
    stacks = timeline.stacks
    if not len(before) or not stacks.num_rows:
        return np.full(len(before), -1, np.int64)
    caller, frame = rows_of(stacks.column("parent_row")), categories(stacks.column("frame"))
    caller = np.where(caller < np.arange(len(caller)), caller, -1)  # callers stand before callees, or are damaged
    entry = nearest(caller, frame.that(_ENTRY.search))
    own = nearest(caller, own_frames(stacks))
    paths = np.stack((marks.stack[marks.root[before]], marks.stack[marks.root[after]]), axis=1)
    pairs, of = np.unique(paths, axis=0, return_inverse=True)
    common = np.array([_common(caller, one, other) for one, other in pairs.tolist()], np.int64)[of.reshape(-1)]
    function = taken(own, common)
    # Below the entry that led to both graphs: a function that calls a compiled one is not compiled itself.
    entries = [taken(entry, each) for each in (paths[:, 0], paths[:, 1], function)]
    likely = (entries[0] >= 0) & (entries[0] == entries[1]) & (entries[0] == entries[2])
    inside = within(marks.thread[after], marks.end_ns[before], marks.begin_ns[after], marks.thread, marks.begin_ns)
    between = np.flatnonzero((inside >= 0) & (marks.root < 0))
    between = between[likely[inside[between]]]
    marked = nearest(caller, np.isin(np.arange(len(caller)), function[likely]))
    wanted, passed = function[inside[between]], taken(marked, marks.stack[between])
    while (beyond := passed > wanted).any():
        passed[beyond] = taken(marked, caller[passed[beyond]])
    some, strangers = (
        np.bincount(inside[between[which]], minlength=len(before)) for which in (passed == wanted, passed != wanted)
    )
    return np.where(likely & (some > 0) & (strangers == 0), function, -1)


def _common(caller: IntArray, one: int, other: int) -> int:
    """Return the innermost row that two call paths share; −1: none."""
    while one != other and min(one, other) >= 0:
        low, high = sorted((one, other))
        one, other = low, int(caller[high])  # the later row cannot be a caller of the earlier one
    return one if one == other else -1


def _overlaps(busy: tuple[IntArray, IntArray, IntArray], marks: Marks, before: IntArray, after: IntArray) -> BoolArray:
    """Return whether something was compiled between two graph calls, on their thread."""
    thread, begin, end = busy
    last = last_begun(thread, begin, marks.thread[after], marks.begin_ns[after])
    return (last >= 0) & (taken(end, last) > marks.end_ns[before])


def _reasons(timeline: Timeline, marks: Marks, before: IntArray, after: IntArray) -> IntArray:
    """Return the first of REASONS that shows in each break.

    What runs in the region after the break belongs to that, and of a call path only what lies below the function that
    broke: the rest of the path is common to all of it.
    """
    region = marks.region
    inside = within(marks.thread[after], marks.end_ns[before], marks.begin_ns[after], marks.thread, marks.begin_ns)
    rows = np.flatnonzero(inside >= 0)
    rows = rows[region[rows] != region[after][inside[rows]]]
    name = categories(timeline.ops.column("name"))
    path, base = marks.stack[rows], taken(marks.stack, region[after])[inside[rows]]
    frame = categories(timeline.stacks.column("frame"))
    caller = rows_of(timeline.stacks.column("parent_row"))
    holds = []
    for _, operators, frames in _REASONS:
        shown = np.array([*(value in operators for value in name.values), False], np.bool_)[name.codes[rows]]
        if frames is not None:
            pattern = re.compile(frames)
            found = np.array([*(pattern.search(value) is not None for value in frame.values), False], np.bool_)
            marked = nearest(caller, found[frame.codes])
            shown |= (taken(marked, path) >= 0) & (taken(marked, path) != taken(marked, base))
        holds.append(np.bincount(inside[rows[shown]], minlength=len(after)) > 0)
    return np.select(holds, list(range(len(holds))), default=len(holds)).astype(np.int64)


def _named(name: Categories, prefix: str) -> BoolArray:
    return name.that(lambda each: each.startswith(prefix))
