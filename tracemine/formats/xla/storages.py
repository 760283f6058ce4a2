"""In which memory each execution of an instruction reads and writes, as execution traces name it: by storage.

A storage is a value's, and is used again once nothing more reads it, so that what is gone is known to be gone. What is
written where it lies shares the storage of what lay there, and counts as large as what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracemine.columns import Array
from tracemine.formats.xla.hlo import Index, Shape
from tracemine.formats.xla.host import EqualRuns
from tracemine.formats.xla.instructions import ScheduledInstruction
from tracemine.formats.xla.join import Joined
from tracemine.formats.xla.values import ArrayPart, GivenArray, Value, Values

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

    values: Values
    constants: dict[Value, int]
    held: dict[Value, int] = field(default_factory=dict)
    turns: dict[int, int] = field(default_factory=dict)  # of each loop the iteration that it is in
    filled: dict[int, int] = field(default_factory=dict)  # of each storage, how far updates have filled it


class Storages:
    """Storages of runs, given in order."""

    def __init__(self, items: Sequence[ScheduledInstruction]) -> None:
        self._items = items
        self._executions: dict[int, _Execution] = {}
        self._constants: dict[tuple[int, int], dict[Value, int]] = {}  # of a module on a device
        self.last: list[int] = []  # of each storage the last run that takes it
        self.tensors: list[ArrayOfRun] = []
        self.unknown: list[int] = []  # runs in a loop in a loop, of which iterations are not distinguished

    def add(self, run: int, joined: Joined) -> None:
        """Note what one run takes and gives."""
        item, number = self._items[joined.item[run]], int(joined.execution[run])
        state = self._executions.get(number)
        if state is None:
            constants = self._constants.setdefault((item.program, int(joined.device[run])), {})
            state = self._executions[number] = _Execution(item.values, constants)
        if item.loop:
            one = item.values.loops.get(item.loop)
            if one is None or one.nested:
                self.unknown.append(run)
                return
            self._turn(state, item.loop, int(joined.turn[run]))
        taken = [self._held(state, read.value) for read in item.reads]
        members = [read.position for read in item.reads]
        for at, (read, storage) in enumerate(zip(item.reads, taken, strict=True)):
            self.last[storage] = max(self.last[storage], run)
            index = -1 if members.count(read.position) == 1 else at - members.index(read.position)
            target = any(result.into == read.position for result in item.results)
            part = _updated(state, storage, read.shape, read.part) if target else read.part
            self.tensors.append(ArrayOfRun(run, False, read.position, index, storage, read.shape, part))
        for at, result in enumerate(item.results):
            storage = self._new(run) if result.into < 0 else taken[members.index(result.into)]
            self._give(state, ArrayOfRun(run, True, at, -1, storage, result.shape, None), result)

    def _give(self, state: _Execution, tensor: ArrayOfRun, result: GivenArray) -> None:
        """Note what one run gives."""
        run, storage = tensor.run, tensor.storage
        if result.into >= 0:
            part = _updated(state, storage, result.shape, ArrayPart(0, (result.updates,), (1,)))
            state.filled[storage] = (0 if part is None else part.offset) + result.updates
            tensor = replace(tensor, part=part)
        state.held[result.value] = storage
        self.last[storage] = LASTING if result.value in state.values.kept else max(self.last[storage], run)
        self.tensors.append(tensor)

    def _turn(self, state: _Execution, loop: int, turn: int) -> None:
        """Hand a loop's body what it carries, where an iteration begins."""
        if state.turns.get(loop, -1) == turn:
            return
        values = state.values
        one = values.loops[loop]
        begins = turn == 0 or loop not in state.turns
        start = values.module.instructions[loop].operands[0] if begins else one.root
        leaves = [index for index, _ in one.carried.leaves]
        carried = [self._held(state, values.origin(start, index)) for index in leaves]
        state.held.update(zip([(one.parameter, index) for index in leaves], carried, strict=True))
        state.turns[loop] = turn

    def _held(self, state: _Execution, value: Value) -> int:
        """Return the storage that holds a value now; a new one where nothing recorded has made it."""
        values = state.values
        loop = values.loops.get(value[0])
        if loop is not None and value not in state.held:
            value = values.origin(loop.root, value[1])
        storage = state.held.get(value)
        if storage is not None:
            return storage
        made = values.module.instructions.get(value[0])
        among = state.constants if made is not None and made.opcode == "constant" else state.held
        if value not in among:
            among[value] = self._new(LASTING)
        return among[value]

    def _new(self, last: int) -> int:
        self.last.append(last)
        return len(self.last) - 1

    @property
    def constants(self) -> frozenset[int]:
        """Return the storages of constants, which executions share."""
        return frozenset(storage for each in self._constants.values() for storage in each.values())


def tensor_rows(storages: Storages, runs: EqualRuns) -> tuple[list[ArrayOfRun], Array, Array]:
    """Return what runs take and give, by run, given, position and place in a tuple: what the examples do, which
    `storages` has; how many that is of each example; and of all runs, in order, the number of each one's storage.
    """
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
    return tensors, count, storage


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
    numbers = np.full(len(run), -1, np.int32)
    numbers[own] = numbered(run[own], given[which[own]] > 0, until[own])
    return numbers


def numbered(run: Array, given: Array, last: Array) -> Array:
    """Number storages in the order in which they appear (int32): of those that no run takes any more the latest is used
    again. What lies there from the start has a number of its own.

    >>> numbered(np.array([0, 1, 2]), np.array([True, True, True]), np.array([1, 2, LASTING])).tolist()
    [0, 1, 0]
    """
    taken, freed = (np.flatnonzero(each).astype(np.int32) for each in (given, last != LASTING))
    order = np.argsort(np.concatenate((2 * run[taken], 2 * last[freed] + 1)), kind="stable")
    storage, frees = np.append(taken, freed)[order], (order >= len(taken))
    free = np.cumsum(np.where(frees, 1, -1), dtype=np.int32)  # and one is made where there is none
    free -= np.minimum(np.minimum.accumulate(free), 0) if len(free) else free
    before = np.append(np.int32(0), free)[: len(free)]
    known = np.flatnonzero(frees | (before > 0)).astype(np.int32)
    height = np.maximum(free, before)[known]
    height = height.astype(np.min_scalar_type(int(height.max(initial=0))))
    by_height = known[np.argsort(height, kind="stable")]  # freed and taken alternately
    again = np.flatnonzero(~frees[by_height])
    source = np.arange(len(run), dtype=np.int32)
    source[storage[by_height[again]]] = storage[by_height[again - 1]]
    while ((first := source[source]) != source).any():
        source = first
    return (np.cumsum(source == np.arange(len(run)), dtype=np.int32) - 1)[source]


def _updated(state: _Execution, storage: int, whole: Shape, part: ArrayPart | None) -> ArrayPart | None:
    """Return where an update is: updates of one storage are taken to lie behind each other."""
    if part is None:
        return None
    offset = state.filled.get(storage, 0)
    fits = offset + sum(part.dims[:1]) <= whole.elements
    return ArrayPart(offset if fits else 0, part.dims, part.strides)


def depends(items: Sequence[ScheduledInstruction]) -> list[bool]:
    """Return of each item in a loop whether it needs what the iteration before made; outside of loops it does not."""
    carried: dict[tuple[int, int], frozenset[Index]] = {}
    needs, needing = dict[tuple[int, int], bool](), list[bool]()
    for item in items:
        loop, where, needed = item.values.loops.get(item.loop), (item.program, item.loop), False
        if loop is not None and where not in carried:
            carried[where] = item.values.carried(item.loop)
        for maker, index in () if loop is None else (read.value for read in item.reads):
            is_carried = loop is not None and maker == loop.parameter and index in carried[where]
            needed |= is_carried or needs.get((item.program, maker), False)
        needs[item.program, item.instruction.id] = needed
        needing.append(needed)
    return needing
