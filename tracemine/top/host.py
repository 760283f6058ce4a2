"""Where the host's time goes: by line, module or operator, every nanosecond of a step once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from tracemine.columns import codes, examples, is_among, sorted_unique
from tracemine.findings.forwards import Forwards
from tracemine.findings.light import waits_ns
from tracemine.findings.record import Range
from tracemine.findings.steps import Fix, Steps
from tracemine.host import KINDS, SOMETIMES, HostTime, host_time, unseen
from tracemine.host.uses import USES, uses_of
from tracemine.host.waits import WAITS, Waits, waits_of
from tracemine.rows.ancestors import first_known, taken
from tracemine.rows.arrow import categories, joined, rows_of, take
from tracemine.rows.engines import PHASES as ENGINE_PHASES
from tracemine.rows.engines import Phases
from tracemine.rows.host import HostCalls, host_calls
from tracemine.rows.iterations import Iterations
from tracemine.rows.table import BoolArray, Categories, IntArray
from tracemine.timeline import Timeline
from tracemine.top.keys import OUTSIDE, module_paths, names_of_ranges
from tracemine.top.origin import NOT_KNOWN, Grouping, Origin, Path, by_path, line_paths
from tracemine.top.record import HostBy, HostKind, HostRow, WaitRow
from tracemine.top.words import KIND_WORDS

_PYTHON: Final = ("(in no operator)",)
_BESIDE: Final = "(in none)"
_WAITS: Final = "waiting for the device"
_SHORT_NS: Final = 500_000  # between two calls of one phase; for longer it may have been anything
_SUMS: Final = ("operator", "launch", "wait", "python")  # the others are added up

_MOST_ASKED = 64  # lines of which the step is run again without their waits; those that wait longest
_NOTHING = Range(0, 0, 0)


class HostOrigin:
    """Host time of steps, and where it comes from: of a backward pass the forward operator."""

    def __init__(self, origin: Origin, timeline: Timeline, begin_ns: IntArray, end_ns: IntArray) -> None:
        self._origin, self._steps = origin, (begin_ns, end_ns)
        self.timeline = timeline  # that of `origin`, with the times that are added up

    @property
    def engine_phases(self) -> Phases | None:
        return self._origin.engine_phases

    @cached_property
    def time(self) -> HostTime | None:
        """The segments of all steps; None where no thread of a host was recorded."""
        return host_time(self.timeline, *self._steps)

    def rows(self, by: HostBy) -> Iterator[HostRow]:
        """Yield rows, most time first, each before its parts."""
        if self.time is not None:
            yield from _rows(self.time, _GROUPINGS[by](self, self.time), of_kinds=by == "tree")

    def kinds(self) -> Iterator[HostKind]:
        """Yield what kinds of work there are, most time first, then those that there may be, with none or not known."""
        if self.time is None:
            return
        spent, critical = (self.time.by_kind(each) for each in (self.time.dur_ns, self.time.critical_ns))
        for kind in sorted(spent, key=lambda name: -spent[name]):
            yield HostKind(kind=kind, host_ns=spent[kind], critical_ns=critical[kind])
        not_seen = unseen(self.timeline)
        for kind in (each for each in SOMETIMES if each not in spent):
            none = None if kind in not_seen else 0
            yield HostKind(kind=kind, host_ns=none, critical_ns=none)

    def forward(self, op_row: IntArray) -> IntArray:
        """Return the forward operator of what is part of a backward pass, −1: it is of none, or that is not known."""
        asked = sorted_unique(op_row[op_row >= 0])
        if not len(asked):
            return np.full(len(op_row), -1, np.int64)
        forward = np.where(self._origin.recomputed[asked], -1, Forwards(self.timeline).of(asked))
        return np.where(op_row >= 0, forward[np.minimum(np.searchsorted(asked, op_row), len(asked) - 1)], -1)


def _lines(origin: HostOrigin, time: HostTime) -> Grouping:
    """Group by the user's own line; within it by the library's line that led on from there."""
    of, paths = _line_of(origin, time)
    return by_path(paths, of)


def _line_of(origin: HostOrigin, time: HostTime) -> tuple[IntArray, list[Path]]:
    """Return which of these paths of lines leads to each segment; of a backward pass, to its forward operator."""
    stacks, of_ops = origin.timeline.stacks, rows_of(origin.timeline.ops["stack_row"])
    paths, of_stack = line_paths(stacks)
    stack = first_known(taken(of_ops, origin.forward(time.op_row)), time.stack_row)
    return np.append(of_stack, len(paths))[stack], [*paths, NOT_KNOWN]


def _modules(origin: HostOrigin, time: HostTime) -> Grouping:
    """Group by module class within module class; what is in none by its operator."""
    module = _module_of(origin, time)
    inside, places = _module_paths(origin, module)
    operators, of_operators = _operator_paths(origin, time)
    outside = [(OUTSIDE, *path) for path in operators]
    of = np.where(module.codes >= 0, module.codes, len(inside) + of_operators)
    return by_path([*inside, *outside], of, [*places, *("" for _ in outside)])


def _trees(origin: HostOrigin, time: HostTime) -> Grouping:
    """Group by module within module, by the user's own line in it, and by the kind of work that the line does."""
    module, (line, lines) = _module_of(origin, time), _line_of(origin, time)
    inside, places = _module_paths(origin, module)
    code = codes(module.codes.astype(np.int64), line, time.kind)
    sample = examples(code)
    paths, told = [], []
    for of_module, of_line, kind in zip(
        *(each[sample].tolist() for each in (module.codes, line, time.kind)), strict=True
    ):
        outer = () if of_module < 0 else inside[of_module]
        within = lines[of_line] if not outer or lines[of_line] != NOT_KNOWN else ()
        paths.append((*outer, *within, KIND_WORDS[KINDS[kind]]))
        told.append("" if of_module < 0 else places[of_module])
    return by_path(paths, code, told)


def _module_paths(origin: HostOrigin, module: Categories) -> tuple[list[Path], list[str]]:
    return module_paths(
        module.values, names_of_ranges(origin.timeline) if origin.timeline.meta.format == "nsys" else ()
    )


def _module_of(origin: HostOrigin, time: HostTime) -> Categories:
    """Return the module of each segment: of its call, operator or function; of a backward pass the forward's."""
    timeline = origin.timeline
    of_ops, of_calls = (categories(table["module"]) for table in (timeline.ops, timeline.api))
    forward = take(of_ops, origin.forward(time.op_row))
    own = joined(take(of_calls, time.api_row), take(of_ops, np.where(time.api_row < 0, time.op_row, -1)))
    in_none = time.kind == KINDS.index("python")
    return joined(
        joined(forward, own), take(categories(timeline.stacks["module"]), np.where(in_none, time.stack_row, -1))
    )


def _operators(origin: HostOrigin, time: HostTime) -> Grouping:
    return by_path(*_operator_paths(origin, time))


def _operator_paths(origin: HostOrigin, time: HostTime) -> tuple[list[Path], IntArray]:
    """Return the operator of each segment; of a call in none the call's name, and of Python that it is in none."""
    ops, api = (categories(table["name"]) for table in (origin.timeline.ops, origin.timeline.api))
    outside = np.isin(time.kind, [KINDS.index("python"), KINDS.index("not_recorded")])
    op = np.where(outside | (time.op_row < 0), -1, ops.codes[time.op_row] if len(ops.codes) else -1)
    call = np.where((op < 0) & (time.api_row >= 0), api.codes[time.api_row] if len(api.codes) else -1, -1)
    pair = codes(op.astype(np.int64), call.astype(np.int64), outside.astype(np.int64))
    sample = examples(pair)
    paths: list[Path] = []
    for of_op, of_call in zip(op[sample].tolist(), call[sample].tolist(), strict=True):
        paths.append(
            (ops.values[of_op],) if of_op >= 0 else (*_PYTHON, api.values[of_call]) if of_call >= 0 else _PYTHON
        )
    return paths, pair


def _phases(origin: HostOrigin, time: HostTime) -> Grouping:
    """Group by the phase of an engine's iterations; what waits for the device within one apart.

    Python that makes no call is known by what it lies between: of functions that make none nothing is recorded.
    """
    phases = origin.engine_phases
    if phases is None:
        return by_path([NOT_KNOWN], np.zeros(len(time.kind), np.int64))
    own = _between(phases.of(time.stack_row, time.op_row, time.api_row), time.step, time.begin_ns, time.end_ns)
    waits = time.kind == KINDS.index("wait")
    names = [*ENGINE_PHASES, _BESIDE]
    paths: list[Path] = [*((name,) for name in names), *((name, _WAITS) for name in names)]
    return by_path(paths, np.where(own < 0, len(ENGINE_PHASES), own) + waits * len(names))


def _between(phase: IntArray, step: IntArray, begin_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return phases with what lies for a short time between two pieces of one, in one step, as part of it; −1: none.

    >>> begin = np.arange(6)
    >>> _between(np.array([1, -1, 1, -1, 2, -1]), np.zeros(6, np.int64), begin, begin + 1).tolist()
    [1, 1, 1, -1, 2, -1]
    """
    rows, known = np.arange(len(phase)), phase >= 0
    before = np.maximum.accumulate(np.where(known, rows, -1))
    after = np.minimum.accumulate(np.where(known, rows, len(rows))[::-1])[::-1]
    inside = (before >= 0) & (after < len(rows))
    after = np.minimum(after, len(rows) - 1)
    inside &= (phase[before] == phase[after]) & (step[before] == step[after])
    return np.where(inside & (begin_ns[after] - end_ns[before] <= _SHORT_NS), phase[before], phase)


_GROUPINGS: Final[Mapping[HostBy, Callable[[HostOrigin, HostTime], Grouping]]] = {
    "line": _lines,
    "module": _modules,
    "operator": _operators,
    "phase": _phases,
    "tree": _trees,
}


def _rows(time: HostTime, grouping: Grouping, *, of_kinds: bool) -> Iterator[HostRow]:
    """Yield a row for each group. of_kinds: the innermost groups hold one kind of work each."""
    count, spent = len(grouping.names), time.dur_ns

    def sums(values: IntArray, kind: str | None = None) -> IntArray:
        chosen = slice(None) if kind is None else time.kind == KINDS.index(kind)
        added = np.zeros(count, np.int64)
        np.add.at(added, grouping.of[chosen], values[chosen])
        return added

    own, critical = sums(spent), grouping.inclusive(sums(time.critical_ns))
    whole = grouping.inclusive(own)
    of_kind = {kind: grouping.inclusive(sums(spent, kind)) for kind in _SUMS}
    kind_of = np.full(count, -1)
    if of_kinds:
        kind_of[grouping.of] = time.kind
    place: dict[int, int] = {}
    for depth, at in grouping.in_order(whole, whole > 0):
        place[at] = len(place)
        parent = grouping.parents[at]
        told = {f"{kind}_ns": int(of_kind[kind][at]) for kind in _SUMS}
        yield HostRow(
            name=grouping.names[at],
            kind=None if kind_of[at] < 0 else KINDS[kind_of[at]],
            parent=None if parent < 0 else place[parent],
            depth=depth,
            instances=grouping.instances[at],
            host_ns=int(whole[at]),
            own_ns=int(own[at]),
            share=round(int(whole[at]) / max(int(own.sum()), 1), 6),
            critical_ns=int(critical[at]),
            other_ns=int(whole[at]) - sum(told.values()),
            **told,
        )


def wait_rows(timeline: Timeline, steps: Iterations | None, replayed: Steps) -> list[WaitRow]:
    """Return the waits of each line and use, what saves most first. replayed: the timeline as it can be run again."""
    calls, of_ops = host_calls(timeline)
    waits = waits_of(timeline, calls, of_ops)
    begin_ns = np.zeros(0, np.int64) if steps is None else np.sort(steps.begin_ns)
    use = uses_of(timeline, waits, begin_ns, of_ops)
    inside = np.flatnonzero(_inside(waits, steps))
    if not len(inside):
        return []
    waiting_ns = _waiting_ns(timeline, calls, waits)
    paths, of_stack = line_paths(timeline.stacks)
    line = np.append(of_stack, -1)[waits.stack_row]
    operator = np.append(categories(timeline.ops["name"]).codes, -1)[waits.op_row]
    told_by = np.where(line >= 0, -1, operator)  # an operator tells apart where no line does
    group = codes(*(column[inside].astype(np.int64) for column in (line, told_by, waits.kind, use)))
    members = [inside[group == at] for at in range(int(group.max()) + 1)]
    members.sort(key=lambda rows: -int(waiting_ns[rows].sum()))
    names = categories(timeline.ops["name"]).values
    rows = []
    for own, saving in zip(members, [*_savings(waits, members, replayed)], strict=True):
        of_line, of_operator, of_use = (int(each[own[0]]) for each in (line, operator, use))
        path = () if of_line < 0 else paths[of_line]
        rows.append(
            WaitRow(
                line=path[0] if path else None,
                operator=None if of_operator < 0 else names[of_operator],
                kind=WAITS[int(waits.kind[own[0]])],
                use=None if of_use < 0 else USES[of_use],
                waits=len(own),
                wait_ns=int(waiting_ns[own].sum()),
                saving_ns=saving,
            )
        )
    return sorted(rows, key=lambda row: (-(row.saving_ns or _NOTHING).mid, -row.wait_ns))


def _waiting_ns(timeline: Timeline, calls: HostCalls, waits: Waits) -> IntArray:
    """Return for how long the host is in the calls of each wait: in the light window where there is one."""
    lasted = (calls.end - calls.begin)[waits.call_row]
    waiting = np.zeros(len(waits), np.int64)
    np.add.at(waiting, waits.call_of, waits_ns(timeline, waits.call_row, lasted))
    return waiting


def _inside(waits: Waits, steps: Iterations | None) -> BoolArray:
    """Return which waits begin in a step; all where no steps are known."""
    if steps is None:
        return np.ones(len(waits), np.bool_)
    order = np.argsort(steps.begin_ns, kind="stable")
    begin, end = steps.begin_ns[order], np.maximum.accumulate(steps.end_ns[order])
    at = np.searchsorted(begin, waits.begin_ns, side="right") - 1
    inside: BoolArray = (at >= 0) & (waits.begin_ns < end[np.maximum(at, 0)])
    return inside


def _savings(waits: Waits, members: Sequence[IntArray], replayed: Steps) -> Iterator[Range | None]:
    """Yield what each group saves where the timeline is run again without it and those before; None: not asked."""
    asked = members[:_MOST_ASKED]
    calls = (waits.call_row[is_among(waits.call_of, rows)] for rows in asked)
    yield from replayed.gains([Fix([], [], "each", unwaited=call) for call in calls])
    yield from [None] * (len(members) - len(asked))
