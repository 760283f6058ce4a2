"""Which activities of a timeline are the kernels of a report? The two are of different runs of one program.

A class is a kernel's name, grid and block. Three steps, the surest first; time is never compared:

1. order: the classes as the report has them in a row occur in the same row on a device of the timeline, once or step
   after step, looking only at classes that both have (a report may be of some kernels only). Each activity there gets
   the kernel in its place.
2. name and grid: else all activities of a class get the counters of that class, where its profiled launches agree
   among each other and its activities took equal inputs.
3. else none, and the profiled kernels are counted with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from tracemine.calls import DTYPES, NAME, SHAPES, STRIDES, calls_of
from tracemine.columns import fixed_width, is_present, numbers, sorted_unique, string_ids
from tracemine.counters.record import CounterReport, ProfiledKernel
from tracemine.ops.kernel_names import canonical, is_short, short
from tracemine.timeline import Timeline

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

EXACT, NAME_AND_GRID = "exact", "name_and_grid"
# Why a profiled kernel is of no activity.
NO_GRID = "no_grid"  # the report does not say its grid and block
OTHER_GPU = "other_gpu"  # the report is of another GPU: what it measured does not hold here
NOT_IN_TIMELINE = "not_in_timeline"
OTHER_GRID = "other_grid"  # the timeline has the name, with other grids or blocks
SEVERAL_NAMES = "several_names"  # the report's bare name fits several of the timeline's kernels
SEVERAL_INPUTS = "several_inputs"  # activities with equal name, grid and block took different inputs
SEVERAL_COUNTERS = "several_counters"  # profiled launches with equal name, grid and block differ
REASON_TEXTS = {
    NO_GRID: "the report does not say its grid and block",
    OTHER_GPU: "it ran on another kind of GPU than the trace",
    NOT_IN_TIMELINE: "no activity has its name",
    OTHER_GRID: "activities of its name have another grid or block",
    SEVERAL_NAMES: "its bare name fits several kernels, and the order does not tell",
    SEVERAL_INPUTS: "activities of its name and grid took different inputs, and the order does not tell",
    SEVERAL_COUNTERS: "launches of its name and grid differ in counters, and the order does not tell",
}
_AGREE = 0.1  # share by which the counters of launches of one class may differ
_AGREE_BYTES = 65_536  # and what of bytes is noise: the counters see the whole GPU

# name (canonical or bare), grid, block
_Class = tuple[str, tuple[int, ...], tuple[int, ...]]


class Counters(Struct, frozen=True):
    """The kernels of all reports, and which one each activity is."""

    kernels: tuple[ProfiledKernel, ...]
    of: IntArray  # per activity: position in `kernels`, −1: none
    exact: BoolArray  # per activity: name, grid, block and order agree
    matched: dict[str, int]  # profiled kernels by how sure: `exact`, `name_and_grid`
    unmatched: dict[str, int]  # profiled kernels that are of no activity, by reason
    sources: tuple[str, ...] = ()
    how: tuple[str, ...] = ()  # per kernel: `exact`, `name_and_grid`, or why it is of no activity


def match(timeline: Timeline, reports: Sequence[CounterReport]) -> Counters:
    """Join reports to the activities of a timeline; where two reports know an activity, the first is believed.

    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> report = CounterReport(source="r.csv", page="raw", kernels=(ProfiledKernel(name="k", order=0),))
    >>> match(empty, [report]).unmatched
    {'no_grid': 1}
    """
    count = timeline.activities.num_rows
    of, exact = np.full(count, -1, np.int64), np.zeros(count, np.bool_)
    reasons: list[str] = []
    kernels: list[ProfiledKernel] = []
    for report in reports:
        found, sure, said = _join(timeline, report)
        new = (of < 0) & (found >= 0)
        of[new], exact[new] = found[new] + len(kernels), sure[new]
        kernels += report.kernels
        reasons += said
    how = Counter(reasons)
    matched = {each: how[each] for each in (EXACT, NAME_AND_GRID) if how[each]}
    unmatched = {each: how[each] for each in REASON_TEXTS if how[each]}
    sources = tuple(report.source for report in reports)
    return Counters(tuple(kernels), of, exact, matched, unmatched, sources, tuple(reasons))


def _join(timeline: Timeline, report: CounterReport) -> tuple[IntArray, BoolArray, list[str]]:
    """Return for each activity its kernel and whether that is exact; for each kernel how it was matched, or why not."""
    table = timeline.activities
    of, exact = np.full(table.num_rows, -1, np.int64), np.zeros(table.num_rows, np.bool_)
    if _of_another_gpu(timeline, report):
        return of, exact, [OTHER_GPU] * len(report.kernels)
    classes, named = _classes(table, report)
    codes = {each: code for code, each in enumerate(sorted({each for each in classes if each is not None}))}
    of_activity = _classes_of_activities(table, named, codes)
    here = set(of_activity[of_activity >= 0].tolist())
    inputs = _inputs(timeline)
    code_of = [None if each is None else codes[each] for each in classes]
    profiled = [(i, code) for i, code in enumerate(code_of) if code is not None and code in here]
    for rows in _launched_in_order(timeline, of_activity):
        places = in_order([code for _, code in profiled], of_activity[rows].tolist())
        placed = (places >= 0) & _alike(places, inputs[rows])
        of[rows[placed]] = np.array([i for i, _ in profiled], np.int64)[places[placed]]
        # Where most of what was profiled is not here, it is another program, and the order of the rest is chance.
        exact[rows[placed]] = named.whole[rows[placed]] & (2 * len(profiled) >= len(report.kernels))
    problems = _by_class(report.kernels, profiled, of_activity, named, inputs, of)
    return of, exact, [*_how(code_of, problems, of, exact, {codes[each] for each in codes if each[0] in named.found})]


def _classes(table: pa.Table, report: CounterReport) -> tuple[list[_Class | None], _Names]:
    """Return the class of each kernel, and the names of activities, spelled as in the report."""
    bare = all(is_short(kernel.name) for kernel in report.kernels)  # as --kernel-name-base function or mangled prints
    spell = short if bare else canonical
    classes = [_class_of(kernel, spell(kernel.name)) for kernel in report.kernels]
    return classes, _Names(table, {each[0] for each in classes if each is not None}, bare)


def _how(
    code_of: Sequence[int | None], problems: dict[int, str], of: IntArray, exact: BoolArray, named: set[int]
) -> Iterator[str]:
    """Yield how each profiled kernel was matched, or why not. `named`: classes of which the timeline has the name."""
    used_exactly = set(of[exact].tolist())
    used = {code_of[i] for i in sorted_unique(of[of >= 0]).tolist()}
    for i, code in enumerate(code_of):
        if code is None:
            yield NO_GRID
        elif i in used_exactly:
            yield EXACT
        elif code in problems:
            yield problems[code]
        elif code in used:
            yield NAME_AND_GRID
        else:
            yield OTHER_GRID if code in named else NOT_IN_TIMELINE


def _of_another_gpu(timeline: Timeline, report: CounterReport) -> bool:
    """Return whether the two say that they ran on GPUs of different names."""
    recorded = {" ".join(device.name.casefold().split()) for device in timeline.meta.devices if device.name}
    profiled = {" ".join(kernel.gpu.casefold().split()) for kernel in report.kernels if kernel.gpu}
    return bool(recorded and profiled) and not recorded & profiled


def _class_of(kernel: ProfiledKernel, name: str) -> _Class | None:
    return None if kernel.grid is None or kernel.block is None else (name, kernel.grid, kernel.block)


# --- the timeline's side ---------------------------------------------------------------------------------------------


class _Names:
    """The spelling of each activity's name that a report's names are compared with; what a report lacks has none."""

    def __init__(self, table: pa.Table, wanted: set[str], bare: bool) -> None:
        codes, values = string_ids(table.column("name"))
        spelled = [short(name) if bare else canonical(name) for name in values]
        number = {name: i for i, name in enumerate(sorted(wanted))}
        self.values = sorted(wanted)
        self.found = wanted & set(spelled)
        self.text = codes  # of the whole name, as the timeline has it
        self.codes = np.array([*(number.get(name, -1) for name in spelled), -1], np.int64)[codes]
        # Whether the spelling is the whole name, not a bare one that others may share.
        self.whole = np.array([*(not bare or is_short(name) for name in values), False], np.bool_)[codes]


def _classes_of_activities(table: pa.Table, names: _Names, codes: dict[_Class, int]) -> IntArray:
    """Return the class of each activity among `codes`; −1: none of them."""
    of = np.full(table.num_rows, -1, np.int64)
    (grids, has_grid), (blocks, has_block) = (_triples(table.column(each)) for each in ("grid", "block"))
    rows = np.flatnonzero((names.codes >= 0) & has_grid & has_block)
    if not len(rows):
        return of
    distinct, inverse = np.unique(
        np.column_stack((names.codes[rows], grids[rows], blocks[rows])), axis=0, return_inverse=True
    )
    known = [codes.get((names.values[row[0]], tuple(row[1:4]), tuple(row[4:7])), -1) for row in distinct.tolist()]
    of[rows] = np.array(known, np.int64)[inverse.reshape(-1)]
    return of


def _triples(column: pa.ChunkedArray) -> tuple[IntArray, BoolArray]:
    """Return a column of three int32 a row, 0 where null; and which rows are there."""
    values, present = [np.empty((0, 3), np.int64)], [np.empty(0, np.bool_)]
    for chunk in column.chunks:
        begin = 3 * chunk.offset
        flat = fixed_width(chunk.values, np.int32)[begin : begin + 3 * len(chunk)]
        values.append(flat.reshape(-1, 3).astype(np.int64))
        present.append(is_present(chunk))
    return np.concatenate(values), np.concatenate(present)


def _launched_in_order(timeline: Timeline, of_activity: IntArray) -> list[IntArray]:
    """Return for each device its activities that have a class, in the order in which the host launched them."""
    table = timeline.activities
    rows = np.flatnonzero(of_activity >= 0)
    start = numbers(table.column("start_ns"))[rows]
    launch = numbers(table.column("launch_row"), null=-1)[rows]
    if len(rows) and (launch >= 0).all():
        start = numbers(timeline.api.column("start_ns"))[launch]  # several streams run out of that order
    rows = rows[np.argsort(start, kind="stable")]
    device = numbers(table.column("device"), null=-1)[rows]
    return [rows[device == each] for each in sorted_unique(device)]


# --- order -----------------------------------------------------------------------------------------------------------


def in_order(pattern: list[int], text: list[int]) -> IntArray:
    """Return for each position of `text` the one of `pattern` whose place it has; −1 where the order says nothing.

    One class in a row is no order: it fits anywhere.

    >>> in_order([1, 2, 3], [3, 1, 2, 3, 1, 2, 3, 1]).tolist()
    [2, 0, 1, 2, 0, 1, 2, 0]
    >>> in_order([1, 2, 3, 1, 2, 3], [2, 3]).tolist(), in_order([1, 2], [2, 1]).tolist()
    ([1, 2], [-1, -1])
    """
    places = np.full(len(text), -1, np.int64)
    if not text or (len(set(pattern)) < 2 and len(pattern) != len(text)):
        return places
    if len(text) < len(pattern):
        begins = occurrences(text, pattern)
        return places if not begins else np.arange(begins[0], begins[0] + len(text))
    covered = 0
    for begin in occurrences(pattern, text):
        first = max(begin, covered)
        end = begin + len(pattern)
        places[first:end] = np.arange(first - begin, len(pattern))
        if not covered and begin <= len(pattern) and text[:begin] == pattern[len(pattern) - begin :]:
            places[:begin] = np.arange(len(pattern) - begin, len(pattern))  # the window begins within a step
        covered = end
    rest = len(text) - covered
    if covered and rest and rest <= len(pattern) and text[covered:] == pattern[:rest]:
        places[covered:] = np.arange(rest)  # and ends within one
    return places


def _alike(places: IntArray, inputs: IntArray) -> BoolArray:
    """Return where all that have the same place took the same inputs, as in step after step.

    >>> _alike(np.array([0, 1, 0, 1]), np.array([7, 8, 7, 9])).tolist()
    [True, False, True, False]
    """
    if not len(places):
        return np.zeros(0, np.bool_)
    order = np.lexsort((inputs, places))
    differs = (np.diff(places[order]) == 0) & (np.diff(inputs[order]) != 0)
    return ~np.isin(places, places[order][1:][differs])


def occurrences(pattern: Sequence[int], text: Sequence[int]) -> list[int]:
    """Return where `pattern` begins in `text`, in a time linear in both (Knuth, Morris, Pratt 1977).

    >>> occurrences([1, 1], [1, 1, 1, 2, 1, 1])
    [0, 1, 4]
    """
    border = [0] * len(pattern)  # length of the longest proper prefix that is a suffix of pattern[: i + 1]
    for i in range(1, len(pattern)):
        length = border[i - 1]
        while length and pattern[i] != pattern[length]:
            length = border[length - 1]
        border[i] = length + (pattern[i] == pattern[length])
    begins, length = [], 0
    for at, item in enumerate(text):
        while length and (length == len(pattern) or item != pattern[length]):
            length = border[length - 1]
        length += item == pattern[length]
        if length == len(pattern):
            begins.append(at - length + 1)
    return begins


# --- name and grid ---------------------------------------------------------------------------------------------------


def _by_class(
    kernels: Sequence[ProfiledKernel],
    profiled: Sequence[tuple[int, int]],
    of_activity: IntArray,
    names: _Names,
    inputs: IntArray,
    of: IntArray,
) -> dict[int, str]:
    """Fill `of` for what the order left open, class by class; the classes for which that is not known, and why."""
    launches: dict[int, list[int]] = {}
    for i, code in profiled:
        launches.setdefault(code, []).append(i)
    classed = np.flatnonzero(of_activity >= 0)
    order = classed[np.argsort(of_activity[classed], kind="stable")]
    problems: dict[int, str] = {}
    for rows in np.split(order, np.flatnonzero(np.diff(of_activity[order])) + 1) if len(order) else []:
        left = rows[of[rows] < 0]
        code = int(of_activity[rows[0]])
        if not len(left):
            continue
        if len(sorted_unique(names.text[rows])) > 1:
            problems[code] = SEVERAL_NAMES
        elif len(sorted_unique(inputs[rows])) > 1:
            problems[code] = SEVERAL_INPUTS
        elif not _agree([kernels[i] for i in launches[code]]):
            problems[code] = SEVERAL_COUNTERS
        else:
            of[left] = _middle(kernels, launches[code])
    return problems


def _inputs(timeline: Timeline) -> IntArray:
    """Return a number for what each activity's operator was called with; those without one share theirs."""
    op_row = numbers(timeline.activities.column("op_row"), null=-1)
    return calls_of(timeline).alike(op_row, NAME, SHAPES, DTYPES, STRIDES)


def _agree(kernels: Sequence[ProfiledKernel]) -> bool:
    traffic = [kernel.dram_bytes for kernel in kernels if kernel.dram_bytes is not None]
    flops = [kernel.total_flops for kernel in kernels if kernel.total_flops is not None]
    bounds = {kernel.bound() for kernel in kernels}
    return _close(traffic, _AGREE_BYTES) and _close(flops, 0) and len(bounds) == 1


def _close(values: Sequence[int], noise: int) -> bool:
    return not values or max(values) - min(values) <= max(noise, _AGREE * max(values))


def _middle(kernels: Sequence[ProfiledKernel], launches: Sequence[int]) -> int:
    """Return the launch with the median traffic."""
    ranked = sorted(launches, key=lambda i: (kernels[i].dram_bytes or 0, i))
    return ranked[(len(ranked) - 1) // 2]
