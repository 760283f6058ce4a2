"""Where activities come from in the program: the operator or annotation around each, its phase, module and call path.

What a backward pass launches counts for the module and the line of its forward operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tracemine.columns import codes, examples, sorted_unique
from tracemine.columns import numbers as integers
from tracemine.findings.forwards import Forwards
from tracemine.patterns import deferred
from tracemine.rows.ancestors import first_known, last_begun, nearest, taken
from tracemine.rows.arrow import categories, joined, rows_of, take
from tracemine.rows.engines import Phases, ServingEngine, engine_of, phases_of
from tracemine.rows.host import threads
from tracemine.rows.iterations.annotations import marks
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows, category, flags
from tracemine.rows.user_frames import is_own, own_frames, written_name
from tracemine.timeline import Timeline

FORWARD, RECOMPUTE, BACKWARD, OPTIMIZER = "forward", "recomputed forward", "backward", "optimizer"
BETWEEN: Final = "between backward and optimizer"
_ZEROING, _PREFILL, _DECODE, _BOTH = "zeroing of gradients", "prefill", "decode", "prefill and decode"
PHASES: Final = (FORWARD, RECOMPUTE, BACKWARD, BETWEEN, OPTIMIZER, _ZEROING, _PREFILL, _DECODE, _BOTH)

_LONGEST_NAME = 512  # characters that are looked at: names come from strangers
_NAMED: Final = tuple(
    (deferred(pattern), phase)
    for pattern, phase in (
        (r"^autograd::engine::", BACKWARD),
        (r"^Optimizer\.step#|^## optimizer ##$|^DeepSpeedEngine\.step$|^(?i:optimizer([_. ]step)?)$", OPTIMIZER),
        (r"^Optimizer\.zero_grad#|^## zero_grad ##$|^(?i:zero_grad)$", _ZEROING),
        (r"^## backward ##$|^DeepSpeedEngine\.backward$|^(?i:backward([_ ](pass|step))?)$", BACKWARD),
        (r"^## forward ##$|^\w{1,60}(Parallel|Engine)\.forward$|^(?i:forward([_ ](pass|step))?)$", FORWARD),
        (r"^(?i:prefill)([^a-zA-Z]|_?step|$)", _PREFILL),
        (r"^(?i:decode)([^a-zA-Z]|_?step|$)", _DECODE),
    )
)
_MODES: Final = {"EXTEND": _PREFILL, "PREFILL": _PREFILL, "DECODE": _DECODE, "MIXED": _BOTH}  # of SGLang

# Standard modules that call whoever calls the user's code, and capture's own.
_STANDARD: Final = deferred(
    r"^(threading|contextlib|functools|runpy|socketserver|asyncio[/\\]\w+|concurrent[/\\]futures[/\\]\w+"
    r"|multiprocessing[/\\]\w+)\.py$|(^|[/\\])tracemine[/\\]recording[/\\]|(^|[/\\])bin[/\\](torchrun|accelerate)$"
)
_CALLS_FORWARD: Final = deferred(r"(^|[/\\])torch[/\\]nn[/\\]modules[/\\]module\.py$")

_Number = TypeVar("_Number", np.int64, np.float64)
Path = tuple[str | None, ...]  # names from the outermost group inwards; (None,): not known
NOT_KNOWN: Path = (None,)


def phase_of(name: str) -> str | None:
    """Return the phase that an annotation's or operator's name tells; None: it tells none.

    >>> phase_of("Optimizer.step#AdamW.step"), phase_of("aten::add"), phase_of("step[DECODE bs=32]")
    ('optimizer', None, 'decode')
    >>> phase_of("execute_context_1(888)_generation_0(0)"), phase_of("execute_context_2(9)_generation_3(3)")
    ('prefill', 'prefill and decode')
    """
    name = name[:_LONGEST_NAME]
    found = next((phase for pattern, phase in _NAMED if pattern.search(name)), None)
    return found or _of_batch(name)


def _of_batch(name: str) -> str | None:
    """Return the phase of a serving engine's batch."""
    for mark in marks():
        said = mark.kinds.search(name) if mark.kinds is not None and mark.pattern.search(name) else None
        if said is None:
            continue
        groups = said.groupdict()
        if mode := groups.get("mode"):
            return _MODES.get(mode)
        prefill, decode = (int(groups.get(each) or 0) > 0 for each in ("prefill", "decode"))
        return _BOTH if prefill and decode else _PREFILL if prefill else _DECODE if decode else None
    return None


_MOST_NESTED = 10_000  # operators around one another


class Origin:
    """Where each activity of a timeline comes from; −1, and code −1: not known."""

    def __init__(self, timeline: Timeline, activities: Rows) -> None:
        self.timeline, self.activities = timeline, activities

    @cached_property
    def around(self) -> IntArray:
        """The row of `ops` of the innermost operator or annotation around each activity's launch."""
        op_row, launch = (rows_of(self.timeline.activities[name]) for name in ("op_row", "launch_row"))
        asked = np.flatnonzero((op_row < 0) & (launch >= 0))
        if not len(asked) or not self.timeline.ops.num_rows:
            return op_row
        found = op_row.copy()
        calls, of = np.unique(launch[asked], return_inverse=True)
        found[asked] = self._around(calls)[of.reshape(-1)]
        return found

    def _around(self, calls: IntArray) -> IntArray:
        """Return the innermost row of `ops` that holds the begin of each of these rows of `api`."""
        ops, api = self.timeline.ops, self.timeline.api
        of_api, of_ops = threads(self.timeline)
        begin, parent = rows_of(ops["start_ns"]), rows_of(ops["parent_row"])
        end, at = begin + rows_of(ops["dur_ns"]), rows_of(api["start_ns"])[calls]
        around = last_begun(of_ops, begin, of_api[calls], at)
        for _ in range(_MOST_NESTED):
            over = (around >= 0) & (taken(end, around) <= at)
            if not over.any():
                return around
            up = taken(parent, around)
            around = np.where(over, np.where(up < around, up, -1), around)
        return np.where(taken(end, around) > at, around, -1)

    @cached_property
    def _marks(self) -> tuple[IntArray, IntArray]:
        """For each row of `ops`, the nearest row at or above it that names a phase; and the phase of each row, −1."""
        names = categories(self.timeline.ops["name"])
        phase = np.array([*(_position(phase_of(name)) for name in names.values), -1], np.int64)[names.codes]
        return nearest(rows_of(self.timeline.ops["parent_row"]), phase >= 0), phase

    @cached_property
    def recomputed(self) -> BoolArray:
        """Which rows of `ops` run again in a backward pass what the forward pass did: autograd records them anew."""
        ops = self.timeline.ops
        parent = rows_of(ops["parent_row"])
        names = categories(ops["name"])
        engine = nearest(parent, names.that(lambda name: name.startswith("autograd::engine::")))
        anew = (integers(ops["sequence_number"], -1) >= 0) & (integers(ops["forward_thread_id"], -1) == 0)
        recorded = nearest(parent, anew)
        found: BoolArray = (engine >= 0) & (recorded > engine)
        return found

    @cached_property
    def differentiates_twice(self) -> bool:
        """Whether autograd records a backward pass itself, so that what it records there is not all computed again."""
        ops = self.timeline.ops
        names = categories(ops["name"])
        own = (integers(ops["sequence_number"], -1) >= 0) & (integers(ops["forward_thread_id"], -1) == 0)
        return bool((own & names.that(lambda name: name.startswith("aten::") and "_backward" in name)).any())

    @cached_property
    def phase(self) -> Categories:
        """Each activity's phase. Null: nothing around its launch is known."""
        nearest_mark, phase = self._marks
        code = taken(phase, taken(nearest_mark, self.around))
        again = np.append(self.recomputed, False)[self.around]
        code = np.where(again & np.isin(code, [_position(BACKWARD), _position(FORWARD)]), _position(RECOMPUTE), code)
        code = np.where(category(self.activities, "optimizer").codes >= 0, _position(OPTIMIZER), code)
        unmarked = (code < 0) & self._of_program
        code[unmarked] = np.where(self._precede_update(code)[unmarked], _position(BETWEEN), _position(FORWARD))
        return Categories(code.astype(np.int32), PHASES)

    @cached_property
    def engine(self) -> ServingEngine | None:
        """The engine that generates text with a model, where one does."""
        trains = (self._marks[1] == _position(BACKWARD)).any() or (self._marks[1] == _position(OPTIMIZER)).any()
        return None if trains else engine_of(self.timeline)

    @cached_property
    def engine_phases(self) -> Phases | None:
        """Which phase of the engine's iterations each call path, operator and call is part of."""
        return None if self.engine is None else phases_of(self.timeline, self.engine)

    @cached_property
    def engine_phase(self) -> IntArray:
        """The phase of the engine's iterations in which each activity was launched, a position in its PHASES."""
        launch = rows_of(self.timeline.activities["launch_row"])
        if self.engine_phases is None:
            return np.full(len(launch), -1, np.int64)
        stack_row = taken(rows_of(self.timeline.api["stack_row"]), launch)
        return self.engine_phases.of(first_known(stack_row, self.stack_row), self.around, launch)

    @property
    def _of_program(self) -> BoolArray:
        """Which activities an operator launched; where nothing is trained, what the program launched itself too.

        A replayed graph may hold anything, and where no operators were recorded nothing is known of what ran between.
        """
        op_row = rows_of(self.timeline.activities["op_row"])
        trains = (self._marks[1] == _position(BACKWARD)).any() or (self._marks[1] == _position(OPTIMIZER)).any()
        if trains or not categories(self.timeline.ops["kind"]).among("op").any():
            return op_row >= 0
        return (op_row >= 0) | ((self.around >= 0) & ~flags(self.activities, "graph"))

    def _precede_update(self, code: IntArray) -> BoolArray:
        """Return which activities are launched after a backward pass and before the optimizer's step that follows."""
        launch = rows_of(self.timeline.activities["launch_row"])
        moment = taken(rows_of(self.timeline.api["start_ns"]), launch)
        marked = np.flatnonzero((code >= 0) & (launch >= 0))
        if not len(marked):
            return np.zeros(len(code), np.bool_)
        marked = marked[np.argsort(moment[marked], kind="stable")]
        after = np.searchsorted(moment[marked], moment, side="right")
        kinds = np.concatenate(([-1], code[marked], [-1]))
        backwards = np.isin(kinds[after], [_position(BACKWARD), _position(RECOMPUTE)])
        found: BoolArray = backwards & (kinds[after + 1] == _position(OPTIMIZER))
        return found & (launch >= 0)

    @cached_property
    def _forward(self) -> IntArray:
        """The forward operator of what is part of a backward pass; −1: it is none, or not known."""
        op_row = rows_of(self.timeline.activities["op_row"])
        found = np.full(len(op_row), -1, np.int64)
        of_backward = np.flatnonzero((self.phase.codes == _position(BACKWARD)) & (op_row >= 0))
        if len(of_backward):
            rows = sorted_unique(op_row[of_backward])
            found[of_backward] = Forwards(self.timeline).of(rows)[np.searchsorted(rows, op_row[of_backward])]
        return found

    @cached_property
    def module(self) -> Categories:
        """The modules around each activity's operator, of a backward pass around the forward one; null: none."""
        own = category(self.activities, "module")
        return joined(take(categories(self.timeline.ops["module"]), self._forward), own)

    @cached_property
    def stack_row(self) -> IntArray:
        """The row of `stacks` that led to each activity, of a backward pass to the forward operator."""
        ops, api, activities = self.timeline.ops, self.timeline.api, self.timeline.activities
        of_ops = rows_of(ops["stack_row"])
        own = first_known(
            taken(of_ops, rows_of(activities["op_row"])),
            taken(rows_of(api["stack_row"]), rows_of(activities["launch_row"])),
        )
        return first_known(rows_of(activities["stack_row"]), first_known(taken(of_ops, self._forward), own))


def _position(phase: str | None) -> int:
    return -1 if phase is None else PHASES.index(phase)


def line_paths(stacks: pa.Table) -> tuple[list[Path], IntArray]:
    """Return the lines that call paths lead through, the user's own and within it a library's; and which of them each
    row of `stacks` has.

    Where none is the user's, a library's alone; where all are the framework's, or none has a file: not known.
    """
    parent = rows_of(stacks["parent_row"])
    file = categories(stacks["file"])
    has_file = file.codes >= 0
    library = own_frames(stacks) & has_file & ~file.that(_STANDARD.search)
    of_user = library & file.that(is_own)
    inner, own = nearest(parent, library), nearest(parent, of_user)
    text, texts = _texts(stacks)
    outer_text, inner_text = (taken(text, rows) for rows in (own, inner))
    pair = codes(outer_text, inner_text)
    sample = examples(pair)
    values: list[Path] = []
    for outer, within in zip(outer_text[sample].tolist(), inner_text[sample].tolist(), strict=True):
        names = [texts[each] for each in dict.fromkeys((outer, within)) if each >= 0]
        values.append(tuple(names) or NOT_KNOWN)
    return values, pair


def _texts(stacks: pa.Table) -> tuple[IntArray, list[str]]:
    """Return `file:line function` of each frame that has a file, as codes; −1: it has none."""
    file, function = categories(stacks["file"]), categories(stacks["function"])
    line, module = integers(stacks["line"], 0), categories(stacks["module"])
    called = taken(file.that(_CALLS_FORWARD.search).astype(np.int64), rows_of(stacks["parent_row"])) == 1
    is_forward = called & function.among("forward")
    of_module = np.where(is_forward, module.codes, -1)
    code = codes(*(each.astype(np.int64) for each in (file.codes, function.codes, line, of_module)))
    sample = examples(code)
    columns = (each[sample].tolist() for each in (file.codes, function.codes, line, of_module))
    texts = []
    for of_file, of_function, number, of in zip(*columns, strict=True):
        name = written_name(function.values[of_function]) if of_function >= 0 else ""
        owner = "" if of < 0 else module.values[of].rpartition(".")[2].rpartition("_")[0] + "."
        texts.append(f"{file.values[of_file]}:{number} {owner}{name}".rstrip() if of_file >= 0 else "")
    distinct = {text: at for at, text in enumerate(dict.fromkeys(texts))}
    number_of = np.array([distinct[text] if text else -1 for text in texts], np.int64)
    return (number_of[code] if len(code) else code), list(distinct)


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups, each behind the one that it is part of, and the innermost group of each activity."""

    names: Sequence[str | None]
    parents: Sequence[int]  # −1: part of no other
    of: IntArray
    instances: Sequence[int] = ()  # of each group, where that is more than one

    def inclusive(self, sums: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Return sums over groups (along the first axis) with those of all their parts added."""
        found = sums.copy()
        for at in range(len(self.parents) - 1, -1, -1):
            if self.parents[at] >= 0:
                found[self.parents[at]] += found[at]
        return found

    def in_order(self, spent: IntArray, shown: BoolArray) -> Iterator[tuple[int, int]]:
        """Yield depth and number of each group that is shown: most is spent first, each before its parts."""
        parts: dict[int, list[int]] = {}
        for at in np.argsort(-spent, kind="stable").tolist():
            if shown[at]:
                parts.setdefault(self.parents[at], []).append(at)
        left = [(0, at) for at in reversed(parts.get(-1, []))]
        while left:
            depth, at = left.pop()
            yield depth, at
            left += [(depth + 1, part) for part in reversed(parts.get(at, []))]


def by_category(column: Categories) -> Grouping:
    """Group by one category; null is a group without a name."""
    paths: list[Path] = [*((name,) for name in column.values), NOT_KNOWN]
    return by_path(paths, np.where(column.codes >= 0, column.codes, len(column.values)).astype(np.int64))


def by_path(paths: Sequence[Path], of: IntArray, places: Sequence[str] = ()) -> Grouping:
    """Group by paths, of which each activity has one: equal beginnings are one group.

    of: each activity's path. places: what tells paths of one name from each other, a dotted text for each: a group
    has as many instances as its paths have different beginnings there.

    >>> found = by_path([("a", "b"), ("a",), ("a", "b")], np.array([0, 1, 2]), ["a_0.b_0", "a_0", "a_0.b_1"])
    >>> found.names, found.parents, found.of.tolist(), found.instances
    (['a', 'b'], [-1, 0], [1, 0, 1], [1, 2])
    """
    made = _Made()
    used = np.zeros(len(paths), np.bool_)
    used[of] = True
    innermost = np.full(len(paths), -1, np.int64)
    for at in np.flatnonzero(used).tolist():
        innermost[at] = made.add(paths[at], places[at].split(".") if places else ())
    return Grouping(made.names, made.parents, innermost[of], [max(len(each), 1) for each in made.seen])


class _Made:
    """Groups as they are made."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self.parents: list[int] = []
        self.seen: list[set[str]] = []
        self.known: dict[tuple[int, str | None], int] = {}

    def add(self, path: Path, place: Sequence[str]) -> int:
        """Return the group of a path, which is made where it is not there."""
        at = -1
        for depth, name in enumerate(path):
            key = (at, name)
            if key not in self.known:
                self.known[key] = len(self.names)
                self.names.append(name)
                self.parents.append(at)
                self.seen.append(set())
            at = self.known[key]
            if depth < len(place):
                self.seen[at].add(".".join(place[: depth + 1]))
        return at
