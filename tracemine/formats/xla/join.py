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

from tracemine.columns import Array, codes, is_among, ranges
from tracemine.formats.xla.hlo import HloInstruction, HloModule
from tracemine.formats.xla.host import EqualRuns, equal_segments, first_of
from tracemine.formats.xla.instructions import LIBRARY, ScheduledInstruction, items_of
from tracemine.formats.xla.recording import Columns

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


class Joined(Struct, frozen=True, kw_only=True):
    """Executions of instructions, in the order of launches; and of each activity which it is part of, −1: not known."""

    item: Array  # position among the items of all programs
    execution: Array  # number of the module's execution
    turn: Array  # iteration of the loop around it
    device: Array
    owner: Array  # of each activity, its position in the arrays above
    apart: int  # launches of command buffers whose kernels are not distinguished


class HloProgram(Struct, frozen=True, dict=True):
    """A module, with what its instructions are."""

    module: HloModule
    items: list[ScheduledInstruction]  # what starts work, in order
    first: int  # position of the first of these among those of all programs

    @cached_property
    def place(self) -> dict[str, int]:
        """Return the position of each of these by its instruction's name."""
        return {item.instruction.name: at for at, item in enumerate(self.items, self.first)}

    def placed(self, nodes: dict[int, str], commands: int, since: int) -> int:
        """Return the first place from which on as many instructions can be a command buffer's; −1: there is none."""
        count = len(self.items)
        order = [*range(since, count - commands + 1), *range(min(since, count - commands + 1))]
        return next((at for at in order if self._fits(nodes, commands, at)), -1)

    def _fits(self, nodes: dict[int, str], commands: int, at: int) -> bool:
        loop = self.items[at].loop
        for number in range(commands):
            item = self.items[at + number]
            body = item.body
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
        instruction, moves = self.items[at].instruction, self.items[at].body.kind == "movement"
        if instruction.opcode != "fusion" or _SETS.search(name) or (moves and _COPIES.search(name)):
            return True
        group = instruction.origin.kernel or instruction.name
        return any(
            (other.origin.kernel or other.name) == group or self._written(other) == self._written(instruction)
            for other in self._named.get(name.removesuffix(".kd"), ())
        )

    def _written(self, fusion: HloInstruction) -> str:
        """Return what a fusion does as text: its instructions, shapes and layouts, and what takes what."""
        known = self._texts.get(fusion.id)
        if known is None:
            body = self.module.called(fusion)
            inside = () if body is None else body.instructions
            number = {inner.id: at for at, inner in enumerate(inside)}
            wired = ((inner.opcode, inner.shape, [number.get(given) for given in inner.operands]) for inner in inside)
            known = self._texts[fusion.id] = repr([*wired])
        return known

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {}

    @cached_property
    def _named(self) -> dict[str, list[HloInstruction]]:
        """Return the instructions by what their kernels may be called."""
        found: dict[str, list[HloInstruction]] = {}
        for one in (item.instruction for item in self.items):
            for name in {one.name, one.origin.kernel or one.name}:
                found.setdefault(_kernel_name(name), []).append(one)
        return found


def programs_of(modules: dict[int, HloModule]) -> tuple[dict[int, HloProgram], list[ScheduledInstruction]]:
    """Return the modules with what their instructions are, by their numbers, and the items of all."""
    programs, items = dict[int, HloProgram](), list[ScheduledInstruction]()
    for number, module in modules.items():
        programs[number] = HloProgram(module, items_of(module, number), len(items))
        items += programs[number].items
    return programs, items


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


def repeated(found: Joined) -> EqualRuns:
    """Return which executions are equal."""
    return EqualRuns.of(found.execution, codes(found.item, found.turn, found.device))


class _GraphLaunch(Struct, frozen=True):
    """What launches of one command buffer have in common whose nodes are named the same."""

    program: HloProgram
    buffer: tuple[int, int, int]  # program, name, how many commands
    names: dict[int, str]  # of nodes
    nodes: list[int]  # of its rows

    def begin(self, since: int) -> int:
        """Return the item that the first command is, −1 where none fits."""
        commands = self.buffer[-1]
        if not 0 < commands <= len(self.program.items):
            return -1
        return self.program.placed({k: v for k, v in self.names.items() if k < commands}, commands, since)

    def items(self, begin: int) -> list[int] | None:
        """Return the item of each row; None where those of libraries cannot be distinguished."""
        of_nodes = _of_nodes(self.program, self.names, self.buffer[-1], begin)
        return None if of_nodes is None else [self.program.first + of_nodes[node] for node in self.nodes]


def joined(programs: dict[int, HloProgram], kernels: Columns, strings: Sequence[str]) -> Joined:
    """Return the executions of instructions, and which activities are part of each.

    `kernels` has of each activity: program; hlo_op and name, ids in `strings`; device; launch, in order of time; node,
    its number in the graph (−1: of none); commands, how many the graph of its launch has; and execution, of a module.
    """
    item = np.full(len(kernels["program"]), -1, np.int32)
    # What no call launched has no place in order.
    known = is_among(kernels["program"], np.array([*programs], np.int64)) & (kernels["launch"] >= 0)
    plain, rows = np.flatnonzero(known & (kernels["node"] < 0)), np.flatnonzero(known & (kernels["node"] >= 0))
    if len(plain):
        code = codes(kernels["program"][plain], kernels["hlo_op"][plain])
        facts = (kernels[name][plain[first_of(code)]].tolist() for name in ("program", "hlo_op"))
        places = [
            programs[number].place.get(strings[at], -1) if at >= 0 else -1 for number, at in zip(*facts, strict=True)
        ]
        item[plain] = np.array(places)[code]
    rows = rows[_order(kernels["launch"][rows], kernels["node"][rows])]
    item[rows], apart = _graph_items(programs, kernels, strings, rows)
    items = [each for program in programs.values() for each in program.items]
    return _executions(items, kernels, item, apart)


def _order(launch: Array, number: Array) -> Array:
    """Return the rows by launch, and those of one launch by another number (int32)."""
    return np.argsort((launch.astype(np.int64) << 32) + number, kind="stable").astype(np.int32)


def _graph_items(
    programs: dict[int, HloProgram], kernels: Columns, strings: Sequence[str], rows: Array
) -> tuple[Array, int]:
    """Return the item of each row of command buffers, by launch and node; and how many launches are not known."""
    if not len(rows):
        return rows, 0
    launch = kernels["launch"][rows]
    first = np.flatnonzero(np.append(True, launch[1:] != launch[:-1]))
    count = np.diff(first, append=len(rows))
    told = [kernels[name] for name in ("program", "hlo_op", "commands", "node", "name")]
    kinds, example = equal_segments(codes(*(column[rows] for column in told)), first)
    launches = []
    for at in example.tolist():
        own = rows[first[at] : first[at] + count[at]]
        program, name, commands = (int(column[own[0]]) for column in told[:3])
        nodes, names = kernels["node"][own].tolist(), [strings[at] for at in kernels["name"][own].tolist()]
        by_node = dict(zip(nodes, names, strict=True))
        launches.append(_GraphLaunch(programs[program], (program, name, commands), by_node, nodes))
    items, placed = _placed(launches, kinds.tolist(), kernels["device"][rows[first]].tolist())
    size = np.array([len(each) for each in items], np.int64)
    flat = np.array([at for each in items for at in each], np.int64)
    found = np.full(len(rows), -1, np.int32)
    found[ranges(first[placed], count[placed])] = flat[ranges((np.cumsum(size) - size)[kinds[placed]], count[placed])]
    return found, int((~placed).sum())


def _placed(launches: list[_GraphLaunch], kinds: list[int], devices: list[int]) -> tuple[list[list[int]], Array]:
    """Return the items of each kind of launch, and which launches, in order of time, are known to have them.

    A command buffer is looked for behind the one that its device launched before it.
    """
    ends: dict[tuple[int, int], int] = {}  # of a device and module: where its last command buffer ended
    begins: dict[tuple[int, int, int], int] = {}  # of a command buffer
    items: dict[int, list[int] | None] = {}
    tried = set[tuple[int, int]]()
    placed = np.zeros(len(kinds), np.bool_)
    for at, (kind, device) in enumerate(zip(kinds, devices, strict=True)):
        launch = launches[kind]
        where = (device, launch.buffer[0])
        since = (kind, ends.get(where, 0))
        if launch.buffer not in begins and since not in tried:
            tried.add(since)
            begin = launch.begin(since[1])
            if begin >= 0:
                begins[launch.buffer] = begin
        if kind not in items and launch.buffer in begins:
            items[kind] = launch.items(begins[launch.buffer])
        if items.get(kind) is not None:
            placed[at] = True
            ends[where] = begins[launch.buffer] + launch.buffer[-1]
    return [items.get(kind) or [] for kind in range(len(launches))], placed


def _of_nodes(program: HloProgram, nodes: dict[int, str], commands: int, begin: int) -> dict[int, int] | None:
    """Return the item of each node of a command buffer; None where those of libraries cannot be distinguished."""
    own = {number: begin + number for number in nodes if number < commands}
    calls = [at for at in range(begin, begin + commands) if at - begin not in nodes]
    rest = sorted(number for number in nodes if number >= commands)
    letters = "".join(_letter(nodes[number]) for number in rest)
    kinds = [program.items[at].body.kind for at in calls]
    shared = _shared_out(letters, kinds)
    if shared is None:
        return None
    return own | {number: calls[call] for number, call in zip(rest, shared, strict=True)}


def _executions(items: Sequence[ScheduledInstruction], kernels: Columns, item: Array, apart: int) -> Joined:
    """Number executions of modules, iterations of loops, and runs of instructions."""
    rows = np.flatnonzero(item >= 0).astype(np.int32)
    rows = rows[_order(kernels["launch"][rows], item[rows])]
    group = codes(kernels["device"][rows], kernels["program"][rows]).astype(np.int32)
    order = np.argsort(group, kind="stable").astype(np.int32)  # what a device ran of a module, in order of time
    rows, group = rows[order], group[order]
    within, at = kernels["execution"][rows], item[rows]
    loop = np.array([each.loop for each in items], np.int64)[at]
    library = np.array([bool(each.body.library) for each in items], np.bool_)[at]
    # One more activity of a run: of the same launch of a graph, or of the same call of a library.
    again = np.where(kernels["node"][rows] >= 0, _as_before(kernels["launch"][rows]), library) & _as_before(
        group, within, at
    )
    head = np.flatnonzero(~again).astype(np.int32)
    run_of = np.cumsum(~again, dtype=np.int32) - 1
    group, within, at, loop = group[head], within[head], at[head], loop[head]
    alike, back = _as_before(group, within), np.append(False, at[1:] <= at[:-1])[: len(at)]
    looped = alike & (loop != 0) & _as_before(loop)
    begins = ~alike | (~looped & back & (within < 0))  # an execution
    turn = np.cumsum(looped & back, dtype=np.int32)
    turn -= turn[_last_that(~looped)]
    # From the order of devices and modules to that of time.
    place = np.argsort(order[head], kind="stable")
    number, rank, owner = (np.full(count, -1, np.int32) for count in (len(head), len(head), len(item)))
    number[place] = np.cumsum(begins[place]) - 1
    number = number[_last_that(begins)]
    rank[place] = np.arange(len(head))
    owner[rows] = rank[run_of]
    first = rows[head[place]]
    return Joined(
        item=item[first], execution=number[place], turn=turn[place], device=kernels["device"][first], owner=owner,
        apart=apart,
    )  # fmt: skip


def _as_before(*keys: Array) -> Array:
    """Return which entries have the keys of the one before."""
    same = np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        same &= key[1:] == key[:-1]
    return np.append(False, same)[: len(keys[0])]


def _last_that(holds: Array) -> Array:
    """Return for each entry the last one up to it of which something holds, 0 before there is one."""
    found: Array = np.maximum.accumulate(np.where(holds, np.arange(len(holds), dtype=np.int32), 0))
    return found
