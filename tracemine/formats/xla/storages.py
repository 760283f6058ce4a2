"""In which memory each execution of an instruction reads and writes, as execution traces name it: by storage.

A storage is a value's, and is used again once nothing more reads it, so that what is gone is known to be gone. What is
written where it lies shares the storage of what lay there, and counts as large as what it writes.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracemine.columns import Array
from tracemine.formats.xla.compiled import NUMBER
from tracemine.formats.xla.hlo import Index, Shape
from tracemine.formats.xla.join import HloProgram, Joined
from tracemine.formats.xla.repeats import EqualRuns
from tracemine.formats.xla.values import ArrayPart, GivenArray, TakenArray, Value, Values

COMPILED: Any = NUMBER
_BLOCK: Final = 1 << 14  # runs
LASTING: Final = int(np.iinfo(np.int32).max)  # to the end of the recording


class ArrayOfRun(Struct, frozen=True):
    """One array that a run of an instruction takes or gives."""

    run: int
    given: bool
    position: int
    list_index: int  # where an operand is a tuple; −1: it is none
    storage: int
    shape: Shape
    part: ArrayPart | None


class _Execution(Struct):
    """What is known of one execution of a module on one device."""

    held: dict[Value, int] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)  # of each loop the iteration that it is in
    filled: dict[int, int] = field(default_factory=dict)  # of each storage, how far updates have filled it


class Storages:
    """Storages of runs, given in order."""

    def __init__(self, programs: dict[int, HloProgram]) -> None:
        self._programs = programs
        self._values = {number: Values(program.module) for number, program in programs.items()}
        self._executions: dict[int, _Execution] = {}
        self._constants: dict[tuple[int, int, Value], int] = {}
        self.last: list[int] = []  # of each storage the last run that takes it
        self.tensors: list[ArrayOfRun] = []
        self.unknown: list[int] = []  # runs in a loop in a loop, of which iterations are not distinguished
        self._facts: dict[tuple[int, int], tuple[list[TakenArray], list[GivenArray]]] = {}

    def values(self, program: int) -> Values:
        """Return the values of a module."""
        return self._values[program]

    def reads_and_results(self, program: int, item: int) -> tuple[list[TakenArray], list[GivenArray]]:
        """Return what an item of a module takes and gives."""
        known = self._facts.get((program, item))
        if known is None:
            instruction, values = self._programs[program].items[item].instruction, self._values[program]
            known = self._facts[program, item] = (values.reads(instruction), values.results(instruction))
        return known

    def add(self, run: int, joined: Joined) -> None:
        """Note what one run takes and gives."""
        program, item, device = int(joined.module[run]), int(joined.item[run]), int(joined.device[run])
        state = self._executions.setdefault(int(joined.execution[run]), _Execution())
        loop = self._programs[program].items[item].loop
        if loop:
            one = self._values[program].loops.get(loop)
            if one is None or one.nested:
                self.unknown.append(run)
                return
            self._turn(state, program, device, loop, int(joined.turn[run]))
        reads, results = self.reads_and_results(program, item)
        taken = [self._held(state, program, device, read.value) for read in reads]
        members = [read.position for read in reads]
        for at, (read, storage) in enumerate(zip(reads, taken, strict=True)):
            self.last[storage] = max(self.last[storage], run)
            index = -1 if members.count(read.position) == 1 else at - members.index(read.position)
            target = any(result.into == read.position for result in results)
            part = _updated(state, storage, read.shape, read.part) if target else read.part
            self.tensors.append(ArrayOfRun(run, False, read.position, index, storage, read.shape, part))
        for at, result in enumerate(results):
            storage = self._new(run) if result.into < 0 else taken[members.index(result.into)]
            self._give(state, ArrayOfRun(run, True, at, -1, storage, result.shape, None), result, program)

    def _give(self, state: _Execution, tensor: ArrayOfRun, result: GivenArray, program: int) -> None:
        """Note what one run gives."""
        run, storage = tensor.run, tensor.storage
        if result.into >= 0:
            part = _updated(state, storage, result.shape, ArrayPart(0, (result.updates,), (1,)))
            state.filled[storage] = (0 if part is None else part.offset) + result.updates
            tensor = replace(tensor, part=part)
        state.held[result.value] = storage
        kept = result.value in self._values[program].kept
        self.last[storage] = LASTING if kept else max(self.last[storage], run)
        self.tensors.append(tensor)

    def _turn(self, state: _Execution, program: int, device: int, loop: int, turn: int) -> None:
        """Hand a loop's body what it carries, where an iteration begins."""
        if state.turns.get(loop, -1) == turn:
            return
        values = self._values[program]
        one = values.loops[loop]
        begins = turn == 0 or loop not in state.turns
        start = self._programs[program].module.instructions[loop].operands[0] if begins else one.root
        leaves = [index for index, _ in one.carried.leaves]
        carried = [self._held(state, program, device, values.origin(start, index)) for index in leaves]
        state.held.update(zip([(one.parameter, index) for index in leaves], carried, strict=True))
        state.turns[loop] = turn

    def _held(self, state: _Execution, program: int, device: int, value: Value) -> int:
        """Return the storage that holds a value now; a new one where nothing recorded has made it."""
        values = self._values[program]
        loop = values.loops.get(value[0])
        if loop is not None and value not in state.held:
            value = values.origin(loop.root, value[1])
        storage = state.held.get(value)
        if storage is not None:
            return storage
        made = self._programs[program].module.instructions.get(value[0])
        if made is not None and made.opcode == "constant":
            if (program, device, value) not in self._constants:
                self._constants[program, device, value] = self._new(LASTING)
            return self._constants[program, device, value]
        storage = state.held[value] = self._new(LASTING)
        return storage

    def _new(self, last: int) -> int:
        self.last.append(last)
        return len(self.last) - 1

    @property
    def constants(self) -> frozenset[int]:
        """Return the storages of constants, which executions share."""
        return frozenset(self._constants.values())


class TensorRows(Struct, frozen=True):
    """What runs take and give, from what their examples do: by run, given, position and place in a tuple."""

    tensors: list[ArrayOfRun]  # of the examples
    count: Array  # of each example, how many
    storage: Array  # of all runs, in order, the number of each one's storage


def tensor_rows(storages: Storages, runs: EqualRuns) -> TensorRows:
    """Return what all runs take and give; `storages` has what the examples do."""
    born: dict[int, ArrayOfRun] = {}
    for tensor in storages.tensors:
        born.setdefault(tensor.storage, tensor)
    shared = np.array([at in storages.constants for at in born], np.bool_)
    born_run = np.array([tensor.run for tensor in born.values()], np.int32)
    births = runs.count_of(born_run)
    numbers = _storage_numbers(storages, runs, born, shared, births)
    begin = runs.begins(births)[:-1]
    in_order = np.arange(len(born_run)) - np.searchsorted(born_run, born_run)
    tensors = sorted(storages.tensors, key=lambda each: (each.run, each.given, each.position, each.list_index))
    place = {storage: at for at, storage in enumerate(born)}
    births_of = np.array([place[each.storage] for each in tensors], np.int32)
    count = runs.count_of(np.array([each.run for each in tensors], np.int32))
    ends = runs.begins(count)
    storage = np.empty(ends[-1], np.int64)
    for first in range(0, len(runs.like), _BLOCK):  # some at a time, to need little memory
        run, like = runs.rows(count, first, first + _BLOCK)
        birth = births_of[like]
        run = np.where(shared[birth], born_run[birth], runs.same(run, born_run[birth]))
        storage[ends[first] : ends[first] + len(run)] = numbers[begin[run] + in_order[birth]]
    return TensorRows(tensors, count, storage)


def _storage_numbers(
    storages: Storages, runs: EqualRuns, born: dict[int, ArrayOfRun], shared: Array, births: Array
) -> Array:
    """Return the numbers of the storages that all runs name first, by run (int32; −1: a constant that is there)."""
    facts = np.array([(each.run, each.given, storages.last[at]) for at, each in born.items()], np.int32).reshape(-1, 3)
    born_run, given, last = facts.T
    run, which = runs.rows(births)
    until = runs.same(run, np.where(last == LASTING, born_run, last)[which])
    until[last[which] == LASTING] = LASTING
    own = ~shared[which] | (run == born_run[which])
    found = np.empty(int(own.sum()), np.int32)
    (COMPILED or number)(run[own], given[which[own]], until[own], found)
    numbers = np.full(len(run), -1, np.int32)
    numbers[own] = found
    return numbers


def number(run: Array, given: Array, last: Array, numbers: Array) -> None:
    """Number storages in the order in which they appear (all int32): one that is needed no more is used again.

    What lies there from the start has a number of its own.

    >>> numbers = np.empty(3, np.int32)
    >>> number(np.array([0, 1, 2]), np.array([1, 1, 1]), np.array([1, 2, LASTING]), numbers)
    >>> numbers.tolist()
    [0, 1, 0]
    """
    free, ends, fresh = list[int](), list[tuple[int, int]](), 0
    for at, (now, gives, end) in enumerate(zip(run.tolist(), given.tolist(), last.tolist(), strict=True)):
        while ends and ends[0][0] < now:
            free.append(heapq.heappop(ends)[1])
        used = free.pop() if free and gives else fresh
        fresh += used == fresh
        numbers[at] = used
        if end != LASTING:
            heapq.heappush(ends, (end, used))


def _updated(state: _Execution, storage: int, whole: Shape, part: ArrayPart | None) -> ArrayPart | None:
    """Return where an update is: updates of one storage are taken to lie behind each other."""
    if part is None:
        return None
    offset = state.filled.get(storage, 0)
    fits = offset + sum(part.dims[:1]) <= whole.elements
    return ArrayPart(offset if fits else 0, part.dims, part.strides)


def depends(values: Values, program: HloProgram) -> list[bool]:
    """Return of each item in a loop whether it needs what the iteration before made; outside of loops it does not."""
    carried: dict[int, frozenset[Index]] = {loop: values.carried(loop) for loop in values.loops}
    needs: dict[int, bool] = {}
    needing = []
    for item in program.items:
        one = values.loops.get(item.loop)
        needed = False
        for read in values.reads(item.instruction) if one is not None else ():
            maker, index = read.value
            needed |= needs.get(maker, False) or (
                one is not None and maker == one.parameter and index in carried[item.loop]
            )
        needs[item.instruction.id] = needed
        needing.append(needed)
    return needing
