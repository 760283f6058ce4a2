"""Functions and modules of the user's that launch much, and where each of their calls begins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import codes, numbers, sorted_unique
from tracemine.findings.accounting import Accounts
from tracemine.findings.forwards import Forwards
from tracemine.patterns import deferred
from tracemine.rows.ancestors import engine_of, first_known, nearest, outermost, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import threads
from tracemine.rows.table import BoolArray, IntArray, Rows
from tracemine.rows.user_frames import is_own, written_name
from tracemine.timeline import Timeline

_SHARE: Final = 0.05  # of all launches
_MOST_SPANS: Final = 24
_MODULE: Final = deferred(r"^nn\.Module: (.+)$")


class SpanCandidate(Struct, frozen=True):
    """The step, or a function or module that launches much in it."""

    kind: Literal["step", "module", "function"]
    name: str
    line: str | None
    calls: IntArray  # of each forward operator the call that it is part of, −1: none
    paths: BoolArray | None = None  # of each row of `stacks` whether it leads through it; one more for −1
    share: float = 1.0  # of all launches


class Program:
    """What the host called, in order, and what that launched: of the steps that count, else of all."""

    def __init__(self, timeline: Timeline, activities: Rows, accounts: Accounts) -> None:
        self.timeline, self.graph = timeline, activities.graph
        ops, table = timeline.ops, timeline.activities
        launch, op = (rows_of(table[name]) for name in ("launch_row", "op_row"))
        self.launched_ns = taken(rows_of(timeline.api["start_ns"]), launch)
        self.begin_ns: IntArray = np.zeros(1, np.int64)
        self.end_ns: IntArray = np.full(1, np.iinfo(np.int64).max)
        steps, self.marked = accounts.counted, False
        if steps is not None:
            order = np.argsort(steps.begin_ns, kind="stable")
            whole = self.begin_ns, self.end_ns
            self.begin_ns, self.end_ns = steps.begin_ns[order], steps.end_ns[order]
            known = self.launched_ns[accounts.in_step & (launch >= 0)]
            self.marked = 2 * int((self.step_at(known) >= 0).sum()) > len(
                known
            )  # else they are the device's, not the host's
            self.begin_ns, self.end_ns = (self.begin_ns, self.end_ns) if self.marked else whole
        self.op_begin, parent = rows_of(ops["start_ns"]), rows_of(ops["parent_row"])
        self.engine = engine_of(timeline)
        is_op = categories(ops["kind"]).among("op")
        top = outermost(nearest(parent, is_op), parent)
        self.top = top  # of each operator the outermost around it
        stack, self.thread = rows_of(ops["stack_row"]), threads(timeline)[1]
        rows = np.flatnonzero((top == np.arange(len(top))) & (self.engine < 0))
        rows = rows[self.step_at(self.op_begin[rows]) >= 0]
        self.rows = rows[np.lexsort((self.op_begin[rows], self.thread[rows]))]  # forward operators, in order
        self.stack = stack[self.rows]
        self.step = self.step_at(self.op_begin[self.rows])
        self.activity = np.flatnonzero((launch >= 0) & (accounts.in_step | (not self.marked)))
        order = np.lexsort((self.activity, self.launched_ns[self.activity]))
        self.activity = self.activity[order]  # what counts, as it was launched
        self.forward = first_known(
            Forwards(timeline).of(op), op
        )  # of each activity; of a backward pass the forward one
        self.backward = taken(self.engine, op) >= 0
        self.path = first_known(taken(stack, self.forward), taken(rows_of(timeline.api["stack_row"]), launch))

    @property
    def steps(self) -> int:
        """How many steps count, 1 where none is known."""
        return len(self.begin_ns)

    def step_at(self, moment: IntArray) -> IntArray:
        """Return the step that each moment lies in, −1: none."""
        at = np.searchsorted(self.begin_ns, moment, side="right") - 1
        return np.where((at >= 0) & (moment < self.end_ns[at]), at, -1)

    @cached_property
    def place(self) -> IntArray:
        """Where each row of `ops` stands among the forward operators, by the outermost around it; −1: nowhere."""
        place = np.full(len(self.top), -1, np.int64)
        place[self.rows] = np.arange(len(self.rows))
        return taken(place, self.top)

    def calls_of(self, member: BoolArray, paths: BoolArray) -> IntArray:
        """Return the call that each forward operator is part of. paths: call paths that lead through what is called.

        Where nothing says when frames begin, what runs between them distinguishes calls.
        """
        count = len(member)
        edge = (self.step[1:] != self.step[:-1]) | (self.thread[self.rows[1:]] != self.thread[self.rows[:-1]])
        since = rows_of(self.timeline.ops["since_stack_row"])
        if (since >= 0).any():
            order = np.argsort(self.thread, kind="stable")
            begun = np.zeros(len(since), np.int64)
            begun[order] = np.cumsum(~paths[since[order]])
            edge |= np.diff(begun[self.rows]) > 0
        begins = member & np.concatenate(([True], ~member[:-1] | edge))[:count]
        return np.where(member, np.cumsum(begins) - 1, -1)


def candidates(program: Program) -> Iterator[SpanCandidate]:
    """Yield functions and modules on the paths of a twentieth of all launches or more, those of most first."""
    stacks = program.timeline.stacks
    if not stacks.num_rows or not len(program.activity):
        return
    parent = rows_of(stacks["parent_row"])
    identity, names = _identities(program)
    launches = np.bincount(program.path[program.activity] + 1, minlength=stacks.num_rows + 1)[1:]
    for row in range(stacks.num_rows - 1, 0, -1):  # callers stand before callees
        if 0 <= parent[row] < row:
            launches[parent[row]] += launches[row]
    sums = np.bincount(identity + 1, weights=launches, minlength=len(names) + 1)[1:]
    around = _around_steps(program, parent)
    found: dict[tuple[str, bytes], SpanCandidate] = {}
    first = np.full(len(names), len(identity))
    np.minimum.at(first, identity[identity >= 0], np.flatnonzero(identity >= 0))
    for number in np.lexsort((first, -sums))[: 4 * _MOST_SPANS].tolist():  # callers before callees
        own = identity == number
        if sums[number] < _SHARE * len(program.activity) or around[own].any():
            continue
        kind, name, line = names[number]
        paths = np.append(nearest(parent, own) >= 0, False)
        member = paths[program.path[program.activity]]
        key = np.packbits(member).tobytes()
        share = float(member.mean())
        if share < _SHARE:
            continue
        _add(found, key, SpanCandidate(kind, name, line, program.calls_of(paths[program.stack], paths), paths, share))
        if len(found) == _MOST_SPANS:
            break
    yield from found.values()


def _add(found: dict[tuple[str, bytes], SpanCandidate], launched: bytes, candidate: SpanCandidate) -> None:
    """Add a candidate: of modules that launch the same the outermost, with the line of its forward function."""
    module = found.get(("", launched))
    if candidate.kind == "module":
        found.setdefault(("", launched), candidate)
    elif module is not None and candidate.name == "forward":
        found["", launched] = replace(module, line=module.line or candidate.line)
    else:
        found[candidate.name, launched] = candidate


def _identities(program: Program) -> tuple[IntArray, list[tuple[Literal["module", "function"], str, str | None]]]:
    """Return a number for the function or module of each row of `stacks`, −1: it is neither; and what each is."""
    stacks = program.timeline.stacks
    frame, file, function = (categories(stacks[name]) for name in ("frame", "file", "function"))
    own = file.that(is_own) & (function.codes >= 0)
    line = numbers(stacks["line"], 0)
    module = frame.that(_MODULE.match)
    pair = codes(
        np.where(module, frame.codes, -1).astype(np.int64),
        *(np.where(own, each, -1).astype(np.int64) for each in (file.codes, function.codes, line)),
    )
    identity = np.where(module | own, pair, -1)
    names: list[tuple[Literal["module", "function"], str, str | None]] = [("function", "", None)] * (
        int(pair.max()) + 1
    )
    for row in np.unique(identity, return_index=True)[1].tolist():
        if module[row]:
            names[identity[row]] = ("module", frame.values[frame.codes[row]].removeprefix("nn.Module: "), None)
        elif own[row]:
            name = written_name(function.values[function.codes[row]])
            names[identity[row]] = ("function", name, f"{file.values[file.codes[row]]}:{line[row]} {name}")
    return identity, names


def _around_steps(program: Program, parent: IntArray) -> BoolArray:
    """Return which call paths lead to the marks of steps: they are around more than one."""
    ops = program.timeline.ops
    around = np.zeros(len(parent), np.bool_)
    if program.timeline.steps.num_rows:
        names = categories(ops["name"]).among(*categories(program.timeline.steps["name"]).values)
        for row in sorted_unique(rows_of(ops["stack_row"])[names]).tolist():
            while row >= 0 and not around[row]:
                around[row] = True
                row = int(parent[row])
    return around


def lines_of(timeline: Timeline, rows: IntArray) -> list[str | None]:
    """Return the user's own line of each call path, `file:line function`; None: none is known."""
    stacks = timeline.stacks
    file, function = categories(stacks["file"]), categories(stacks["function"])
    own = nearest(rows_of(stacks["parent_row"]), file.that(is_own) & (function.codes >= 0))
    line = numbers(stacks["line"], 0)
    found = []
    for row in taken(own, rows).tolist():
        known = row >= 0
        text = (
            f"{file.values[file.codes[row]]}:{line[row]} {written_name(function.values[function.codes[row]])}"
            if known
            else ""
        )
        found.append(text or None)
    return found
