"""Which instruction of a module each kernel computes: by what the compiler and the command buffers say.

Outside of command buffers a kernel says its instruction. Inside, the number of its node is its place among the
commands, which are consecutive instructions of the schedule; what was captured as a graph of its own (calls of
libraries, copies) has no number there, and its nodes are numbered behind the commands, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.columns import Array
from tracemine.formats.xla.hlo import HloInstruction, HloModule
from tracemine.formats.xla.instructions import LIBRARY, InstructionBody, ScheduledInstruction, body_of, items_of

_SETS: Final = re.compile(r"memset", re.IGNORECASE)
_COPIES: Final = re.compile(r"memcpy", re.IGNORECASE)
_OF_CUDNN: Final = re.compile(r"cudnn|flash|sdpa|fmha", re.IGNORECASE)
_RESULTS: Final = re.compile(r"splitKreduce|reduce_kernel", re.IGNORECASE)
# The nodes of a call of a library: s sets, c copies, d kernels of cuDNN, r sums up partial results, k others.
_NODES: Final = {
    "product": re.compile("s*[kd]r?"),
    "attention": re.compile("s*d+"),
    "convolution": re.compile("s*[kd]{1,6}"),
    "movement": re.compile("[cks]"),
}
_ANY: Final = re.compile("[cksdr]")


class RecordedKernels(Struct, frozen=True, kw_only=True):
    """What is known of each activity, aligned with the rows of `activities`. −1, or "": not recorded."""

    program: Array  # id of its module
    instruction: Sequence[str]  # `hlo_op`
    name: Sequence[str]
    device: Array
    launch: Array  # equal where one call launched them
    launch_ns: Array  # when that call began
    node: Array  # number of its node in the graph; −1: of none
    commands: Array  # how many commands the graph of its launch has
    execution: Array  # which execution of a module launched it; −1: not recorded


class Joined(Struct, frozen=True, kw_only=True):
    """Executions of instructions, in the order of launches; and of each activity which it is part of, −1: not known."""

    module: Array  # program's id
    item: Array  # position in the module's items
    execution: Array  # number of the module's execution
    turn: Array  # iteration of the loop around it
    device: Array
    launch_ns: Array
    owner: Array  # of each activity, its position in the arrays above
    apart: int  # launches of command buffers whose kernels are not distinguished


class HloProgram(Struct, frozen=True, dict=True):
    """A module, with what its instructions are."""

    module: HloModule

    @cached_property
    def items(self) -> list[ScheduledInstruction]:
        """Return what starts work, in order."""
        return items_of(self.module)

    @cached_property
    def bodies(self) -> list[InstructionBody]:
        """Return what each of these computes."""
        return [body_of(self.module, item.instruction) for item in self.items]

    @cached_property
    def place(self) -> dict[str, int]:
        """Return the position of each of these by its instruction's name."""
        return {item.instruction.name: at for at, item in enumerate(self.items)}

    def placed(self, nodes: dict[int, str], commands: int, since: int) -> int:
        """Return the first place from which on as many instructions can be a command buffer's; −1: there is none."""
        count = len(self.items)
        order = [*range(since, count - commands + 1), *range(min(since, count - commands + 1))]
        return next((at for at in order if self._fits(nodes, commands, at)), -1)

    def _fits(self, nodes: dict[int, str], commands: int, at: int) -> bool:
        loop = self.items[at].loop
        for number in range(commands):
            item, body = self.items[at + number], self.bodies[at + number]
            if item.loop != loop:
                return False
            name = nodes.get(number)
            if name is None:  # a call of a library, a copy, or what copies alone
                if not body.library.startswith(LIBRARY) and body.kind != "movement" and "scatter" not in body.opcodes:
                    return False
            elif not self._may_be(at + number, name):
                return False
        return True

    def _may_be(self, at: int, name: str) -> bool:
        """Return whether a kernel of this name can be an item's: equal bodies are compiled once, by one's name."""
        instruction, moves = self.items[at].instruction, self.bodies[at].kind == "movement"
        if instruction.opcode != "fusion" or _SETS.search(name) or (moves and _COPIES.search(name)):
            return True
        others = [self.items[at_other].instruction for at_other in self._named.get(name.removesuffix(".kd"), ())]
        group = instruction.kernel or instruction.name
        return any(
            (candidate.kernel or candidate.name) == group or self._equal(candidate, instruction) for candidate in others
        )

    def _equal(self, one: HloInstruction, other: HloInstruction) -> bool:
        """Return whether two fusions do the same: their instructions, shapes and layouts, and what takes what."""
        return self._written(one.id) == self._written(other.id)

    def _written(self, instruction: int) -> str:
        known = self._texts.get(instruction)
        if known is None:
            called = self.module.instructions[instruction].called
            body = self.module.computations.get(called[0]) if called else None
            inside = () if body is None else body.instructions
            number = {inner.id: at for at, inner in enumerate(inside)}
            wired = ((inner.opcode, inner.shape, [number.get(given) for given in inner.operands]) for inner in inside)
            known = self._texts[instruction] = repr([*wired])
        return known

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def _named(self) -> dict[str, list[int]]:
        """Return the positions of items by what their kernels may be called."""
        places: dict[str, list[int]] = {}
        for at, item in enumerate(self.items):
            places.setdefault(_kernel_name(item.instruction.name), []).append(at)
            if item.instruction.kernel:
                places.setdefault(_kernel_name(item.instruction.kernel), []).append(at)
        return places


@cache
def _kernel_name(name: str) -> str:
    return re.sub(r"[.\-]", "_", name)


def _letter(name: str) -> str:
    for letter, pattern in (("s", _SETS), ("c", _COPIES), ("d", _OF_CUDNN), ("r", _RESULTS)):
        if pattern.search(name):
            return letter
    return "k"


def _shared_out(letters: str, kinds: Sequence[str]) -> list[int] | None:
    """Return of each letter which of the calls it belongs to, where they can be all of them in this order.

    >>> _shared_out("skksd", ["product", "product", "attention"])
    [0, 0, 1, 2, 2]
    """
    reached: list[dict[int, int]] = [{0: -1}]  # of each call: where it may end, and where it begins then
    for kind in kinds:
        pattern, ends = _NODES.get(kind, _ANY), dict[int, int]()
        for begin in reached[-1]:
            for end in range(begin + 1, min(begin + 9, len(letters)) + 1):
                if pattern.fullmatch(letters, begin, end):
                    ends[end] = max(begin, ends.get(end, -1))
        reached.append(ends)
    if len(letters) not in reached[-1]:
        return None
    owner, end = [0] * len(letters), len(letters)
    for call in range(len(kinds), 0, -1):
        begin = reached[call][end]
        owner[begin:end] = [call - 1] * (end - begin)
        end = begin
    return owner


def joined(programs: dict[int, HloProgram], kernels: RecordedKernels) -> Joined:
    """Return the executions of instructions, and which activities are part of each."""
    item = np.full(len(kernels.program), -1)
    order = np.lexsort((np.arange(len(item)), kernels.launch, kernels.launch_ns))
    known = order[np.isin(kernels.program[order], [*programs])]
    apart = 0
    ends: dict[tuple[int, int], int] = {}  # of a device and program: where its last command buffer ended
    found: dict[tuple[int, str, int], int] = {}  # of a program and command buffer: where it begins
    for launch in _runs(known, kernels.launch):
        program = programs[int(kernels.program[launch[0]])]
        graph = launch[kernels.node[launch] >= 0]
        for row in launch[kernels.node[launch] < 0].tolist():
            item[row] = program.place.get(kernels.instruction[row], -1)
        if not len(graph):
            continue
        commands, where = int(kernels.commands[graph[0]]), (int(kernels.device[graph[0]]), program.module.id)
        nodes = {int(kernels.node[row]): kernels.name[row] for row in graph.tolist()}
        key = (program.module.id, kernels.instruction[graph[0]], commands)
        begin = found.get(key, -1)
        if begin < 0 and 0 < commands <= len(program.items):
            begin = found[key] = program.placed(
                {k: v for k, v in nodes.items() if k < commands}, commands, ends.get(where, 0)
            )
        of_nodes = None if begin < 0 else _of_nodes(program, nodes, commands, begin)
        if of_nodes is None:
            apart += 1
            continue
        ends[where] = begin + commands
        item[graph] = [of_nodes[int(number)] for number in kernels.node[graph].tolist()]
    return _executions(programs, kernels, item, apart)


def _runs(rows: Array, keys: Array) -> list[Array]:
    return np.split(rows, np.flatnonzero(np.diff(keys[rows])) + 1) if len(rows) else []


def _of_nodes(program: HloProgram, nodes: dict[int, str], commands: int, begin: int) -> dict[int, int] | None:
    """Return the item of each node of a command buffer; None where those of libraries cannot be distinguished."""
    own = {number: begin + number for number in nodes if number < commands}
    calls = [at for at in range(begin, begin + commands) if at - begin not in nodes]
    rest = sorted(number for number in nodes if number >= commands)
    letters = "".join(_letter(nodes[number]) for number in rest)
    kinds = [program.bodies[at].kind for at in calls]
    shared = _shared_out(letters, kinds)
    if shared is None:
        return None
    return own | {number: calls[call] for number, call in zip(rest, shared, strict=True)}


class _Run(Struct, frozen=True):
    """The last run of an instruction: its module's execution, the host's range of that, item, iteration, launch."""

    execution: int
    within: int
    item: int
    turn: int
    launch: int
    run: int

    def goes_on(self, program: HloProgram, at: int, within: int, launch: int, node: int) -> bool:
        """Return whether one more activity is of this run: of a graph's launch, or of a library's call."""
        same = at == self.item and within == self.within
        return same and (launch == self.launch if node >= 0 else bool(program.bodies[at].library))

    def turn_of(self, program: HloProgram, at: int, within: int) -> int:
        """Return the iteration that the next item is of; −1: it is of another execution of the module."""
        if within != self.within:
            return -1
        loop = program.items[at].loop
        if loop and program.items[self.item].loop == loop:
            return self.turn + (at <= self.item)
        return -1 if at <= self.item and within < 0 else 0


def _executions(programs: dict[int, HloProgram], kernels: RecordedKernels, item: Array, apart: int) -> Joined:
    """Number executions of modules, iterations of loops, and runs of instructions."""
    rows = np.flatnonzero(item >= 0)
    rows = rows[np.lexsort((rows, item[rows], kernels.launch[rows], kernels.launch_ns[rows]))]
    columns: list[tuple[int, int, int, int, int, int]] = []
    owner = np.full(len(item), -1)
    last: dict[tuple[int, int], _Run] = {}  # of a device and program
    executions = 0
    facts = zip(
        *(each[rows].tolist() for each in (kernels.program, kernels.device, kernels.execution, kernels.launch)),
        *(each[rows].tolist() for each in (kernels.launch_ns, item, kernels.node, np.arange(len(item)))),
        strict=True,
    )
    for program, device, within, launch, launch_ns, at, node, row in facts:
        before = last.get((device, program))
        if before is not None and before.goes_on(programs[program], at, within, launch, node):
            owner[row] = before.run
            continue
        turn = -1 if before is None else before.turn_of(programs[program], at, within)
        executions += turn < 0
        number = executions - 1 if turn < 0 or before is None else before.execution
        last[device, program] = _Run(number, within, at, max(turn, 0), launch, len(columns))
        owner[row] = len(columns)
        columns.append((program, at, number, max(turn, 0), device, launch_ns))
    table = np.array(columns, np.int64).reshape(-1, 6)
    module, place, execution, turns, device, begins = (table[:, at] for at in range(6))
    return Joined(
        module=module, item=place, execution=execution, turn=turns, device=device, launch_ns=begins, owner=owner,
        apart=apart,
    )  # fmt: skip
