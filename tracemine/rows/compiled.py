"""Activities that torch.compile's graphs launched, and those that ran eagerly between two; see graph_breaks.py."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.ops import classify, is_custom, lookup
from tracemine.patterns import deferred
from tracemine.rows.ancestors import first_known, taken, within
from tracemine.rows.arrow import categories, coded, mapped, numbers, rows_of, take
from tracemine.rows.graph_breaks import REASONS, REGION, Breaks, Marks, compiling, find_breaks, is_marked
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Numbers, Rows
from tracemine.rows.user_frames import source_lines
from tracemine.timeline import Timeline

# Families and namespaces of kernels that are fused by hand, where no operator says whose they are.
_LIBRARIES = frozenset({"fbgemm", "apex", "transformer_engine", "liger"})
_OF_LIBRARY = deferred(r"(?:void )?(?:vllm|flashinfer|sglang|sgl_kernel|tensorrt_llm|aiter)::|_ZN5aiter")
_ENGINES = frozenset({"moe", "kv_cache", "sampling", "batch_inputs"})  # families of kernels.toml, whoever launched them
_MANGLED = deferred("_Z")  # of C++, which is a C name as well
_C_NAME = deferred(r"[A-Za-z_]\w*$")


class Compiled(Struct, frozen=True):
    """Relation of each activity to torch.compile; row numbers and codes are −1 where there is none."""

    region: Categories  # of the innermost region that it was launched in: `0/0`
    compiled: BoolArray  # a compiled graph launched it, or it is Inductor's own kernel
    island: IntArray  # the break in which it was launched
    resumed: IntArray  # the break that ended with the graph call of which it is the first activity
    breaks: Breaks


def compiled(timeline: Timeline) -> Compiled:
    """Return regions and graph breaks of a timeline.

    >>> from tracemine.timeline import Meta
    >>> found = compiled(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))
    >>> len(found.compiled), len(found.breaks.begin_ns)
    (0, 0)
    """
    ops, api, activities = timeline.ops, timeline.api, timeline.activities
    if not is_marked(timeline):
        none = np.full(activities.num_rows, -1, np.int64)
        return Compiled(Categories(none.astype(np.int32), ()), none >= 0, none, none, Breaks(*[none[:0]] * 5))
    thread, api_thread = _threads(timeline)
    marks = Marks.of(timeline, thread)
    breaks, after = find_breaks(timeline, marks)
    launch = rows_of(activities.column("launch_row"))
    launched = taken(numbers(api.column("start_ns")).values.astype(np.int64), launch)
    on = np.where(launch >= 0, taken(api_thread, launch), -2)
    calls = marks.calls
    call = within(thread[calls], marks.begin_ns[calls], marks.end_ns[calls], on, launched)
    around = first_known(taken(rows_of(api.column("op_row")), launch), rows_of(activities.column("op_row")))
    region = take(categories(ops.column("name")), taken(marks.region, around))
    return Compiled(
        region=mapped(region, lambda text: text.removeprefix(REGION)),
        compiled=(call >= 0) | (taken(categories(ops.column("kernel_backend")).codes.astype(np.int64), around) >= 0),
        island=within(breaks.thread, breaks.begin_ns, breaks.end_ns, on, launched),
        resumed=_first_of_call(calls, call, launched, after),
        breaks=breaks,
    )


def compilations(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return begin and end, host nanoseconds, of each stretch in which torch.compile compiled within the recording.

    In order of begin; stretches on several threads may overlap. Known from what dynamo and Inductor time of themselves
    (`… (dynamo_timed)`); a torch that does not record that compiles unseen.
    """
    _, begin, end = compiling(timeline)
    return begin, end


def activity_columns(timeline: Timeline, found: Compiled) -> dict[str, Column]:
    """Return the columns of torch.compile for the row set "activities"."""
    return {
        "region": found.region,
        "compiled": Flags(found.compiled),
        "handwritten": Flags(_handwritten(timeline) | _of_engine(timeline)),
        "island": Numbers(np.maximum(found.island, 0), found.island >= 0),
    }


def gap_columns(timeline: Timeline, found: Compiled, gaps: Rows) -> dict[str, Column]:
    """Return the columns of torch.compile for the row set "gaps".

    A gap is a break's if an activity of the break, or the first of the graph after it, ends it; and if the host was in
    the break for part of it.
    """
    begin, dur, following = (_int(gaps, name) for name in ("start_ns", "dur_ns", "next_row"))
    broken = first_known(taken(found.island, following), taken(found.resumed, following))
    breaks = found.breaks
    shared = np.minimum(begin + dur, taken(breaks.end_ns, broken)) - np.maximum(begin, taken(breaks.begin_ns, broken))
    broken = np.where(shared > 0, broken, -1)
    stack = taken(breaks.stack_row, broken)
    return {
        "graph_break": Numbers(np.maximum(broken, 0), broken >= 0),
        "break_reason": coded(REASONS, taken(breaks.reason, broken)),
        "break_ns": Numbers(np.where(broken >= 0, shared, 0), broken >= 0),
        "break_source": take(source_lines(timeline.stacks), stack),
        "break_stack_row": Numbers(np.maximum(stack, 0), stack >= 0),
    }


def _of_engine(timeline: Timeline) -> BoolArray:
    """Return kernels that serving engines wrote by hand: for experts, caches, sampling and the next batch's inputs."""
    name = categories(timeline.activities.column("name"))
    return np.array([*(each.family in _ENGINES for each in classify(name.values)), False], np.bool_)[name.codes]


def _handwritten(timeline: Timeline) -> BoolArray:
    """Return which kernels were written for the purpose: by their family, or by the library's operator around them.

    Or they have a plain C name, as Triton's do, outside all known operators, although operators were recorded.
    """
    activities = timeline.activities
    kernel = categories(activities.column("kind")).among("kernel")
    name = categories(activities.column("name"))
    plain = name.that(_C_NAME.match)
    op_row = rows_of(activities.column("op_row"))
    owner = take(categories(timeline.ops.column("name")), op_row)
    op = mapped(owner, lambda each: None if lookup(each) else each)
    reason = categories(activities.column("unowned_reason"))
    families = [
        family.family in _LIBRARIES or _OF_LIBRARY.match(each) is not None
        for family, each in zip(classify(name.values), name.values, strict=True)
    ]
    library = np.array([*families, False], np.bool_)[name.codes]
    custom = owner.that(is_custom)
    # torch's own lists of tensors (`_foreach_*`) are not fused by hand; whose a kernel is, its operator says.
    library &= owner.codes < 0
    # Proton records no operators, and is the profiler of who writes Triton kernels.
    alone = reason.among("outside_any_op") | (timeline.meta.format == "proton") & ~name.that(_MANGLED.match)
    return kernel & (custom | library | (plain & ((op.codes >= 0) | alone)))


def _int(rows: Rows, name: str) -> IntArray:
    column = rows.columns[name]
    assert isinstance(column, Numbers)  # noqa: S101 - the row set's documented kind
    return column.values.astype(np.int64)


def _first_of_call(calls: IntArray, call: IntArray, launched: IntArray, after: IntArray) -> IntArray:
    """Return, for each activity that a graph call after a break launched first, that break; else −1."""
    resumed = np.full(len(call), -1, np.int64)
    rows = np.flatnonzero(call >= 0)
    rows = rows[np.lexsort((rows, launched[rows], call[rows]))]
    firsts = rows[np.r_[True, call[rows][1:] != call[rows][:-1]][: len(rows)]]
    number = np.full(int(calls.max(initial=-1)) + 1, -1, np.int64)
    number[after] = np.arange(len(after))
    resumed[firsts] = number[calls[call[firsts]]]
    return resumed


def _threads(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return a code for the thread of each row of `ops` and of `api`, the same in both; −1 where none is recorded."""
    tables = (timeline.ops, timeline.api)
    pid, tid = (np.concatenate([rows_of(table.column(name)) for table in tables]) for name in ("pid", "tid"))
    process, thread = (np.unique(each, return_inverse=True)[1].astype(np.int64) for each in (pid, tid))
    code = np.where(tid >= 0, process * (int(thread.max(initial=0)) + 1) + thread, -1)
    return code[: timeline.ops.num_rows], code[timeline.ops.num_rows :]
