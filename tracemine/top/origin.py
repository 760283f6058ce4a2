"""Where activities come from in the program: the operator or annotation around each, its phase, module and call path.

What a backward pass launches counts for the module and the line of its forward operator.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from tracemine.columns import numbers as integers
from tracemine.columns import sorted_unique
from tracemine.findings.forwards import Forwards
from tracemine.patterns import deferred
from tracemine.rows.ancestors import first_known, last_begun, nearest, taken
from tracemine.rows.arrow import categories, joined, rows_of, take
from tracemine.rows.engines import Phases, ServingEngine, engine_of, phases_of
from tracemine.rows.host import threads
from tracemine.rows.iterations.annotations import marks
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows, category, flags
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
