"""Least traffic of an optimizer's step, or a loop over tensors, in one pass: bytes, tensors, lists.

Where an execution trace names the tensors each is counted once. Otherwise shapes tell how many elements each operator
goes over, and the optimizer's class how many states it has.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from tracemine.calls import Call as Recorded
from tracemine.calls import calls_of
from tracemine.calls.call import sizes
from tracemine.calls.text import Extents
from tracemine.columns import booleans, numbers, string_ids
from tracemine.ops import Overload, dtype, lookup
from tracemine.ops.dtypes import itemsize
from tracemine.perfmodel import Pass, Traffic
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

# States that torch.optim's classes keep of each parameter, at most one more with the option in brackets.
STATES: Final = {
    "SGD": 0, "Adam": 2, "AdamW": 2, "Adagrad": 1, "RMSprop": 1, "Rprop": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2,
    "Adadelta": 2, "ASGD": 1, "Lion": 1,
}  # fmt: skip
_MORE: Final = {
    "SGD": ("mul_", "_foreach_mul_"),
    "Adam": ("maximum", "_foreach_maximum_"),
    "AdamW": ("maximum", "_foreach_maximum_"),
}
_GUESSED_STATES = 2
_ELEMENT = re.compile(r"Functor<(?:[^<>,]*, )?(c10::BFloat16|c10::Half|float|double)\b")
_SMALL = 0.05  # of the elements that the busiest operator goes over: less is a count of steps
LONGEST = 1 << 44  # elements: more is damage


class ListWork(Struct, frozen=True, kw_only=True):
    """Traffic of passes over lists, and of what runs now."""

    passes: tuple[Pass, ...]
    before: int | None  # bytes
    sure: bool  # tensors were recorded

    @property
    def traffic(self) -> Traffic | None:
        after = sum(one.reads + one.writes for one in self.passes)
        return None if self.before is None else Traffic(before=max(self.before, after), after=after)


class Call(Struct, frozen=True):
    """A call: its operator, and the sizes in elements of each tensor, or list of tensors, that it takes."""

    row: int
    name: str  # without aten::
    sizes: tuple[tuple[int, ...], ...] | None  # None: not recorded
    item_bytes: int | None

    @property
    def writes(self) -> bool:
        """Return whether its first tensors are written in place."""
        return self.name.endswith("_")

    @property
    def overload(self) -> Overload | None:
        """Return the first overload of its operator; None where the operator is not known."""
        operator = lookup(f"aten::{self.name}")
        return None if operator is None else next(iter(operator.overloads), None)

    @property
    def moved(self) -> int:
        """Return how often it reads or writes a tensor, of each member of its lists."""
        overload = self.overload
        taken = 1 if overload is None else sum(each.type.startswith("Tensor") for each in overload.arguments)
        if self.sizes is not None:
            taken = sum(bool(each) and max(each) > 1 for each in self.sizes)
        overwrites = overload is not None and bool(overload.overwrites)
        return max(taken, 1) + 1 - overwrites  # what is overwritten is among the taken


class _Tensor(NamedTuple):
    """A tensor that a call takes or gives."""

    is_output: bool
    position: int  # which argument it is
    memory: tuple[int, int]  # storage and offset
    numel: int
    item_bytes: int

    @property
    def nbytes(self) -> int:
        return self.numel * self.item_bytes


class Lists:
    """The calls of a timeline and their tensors; both are looked at when the first is asked for."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._calls = calls_of(timeline)

    def calls(self, op_row: IntArray, kernels: Sequence[str]) -> list[Call]:
        """Return the calls of activities, each once, in their order. `kernels`: names of the activities' kernels."""
        found = dict.fromkeys(op_row.tolist())
        name_of = dict(zip(op_row.tolist(), kernels, strict=True))
        return [self._call(row, name_of[row]) for row in found if row >= 0]

    def _call(self, row: int, kernel: str) -> Call:
        call = self.recorded(row)
        known = map(call.dtype, range(len(call.dtypes or ())))
        item = next((itemsize(each) for each in known if each is not None), None)
        if item is None and (element := _ELEMENT.search(kernel)):
            item = itemsize(dtype(element[1]) or "")
        return Call(row, call.name.removeprefix("aten::"), _sizes(call), item)

    def recorded(self, row: int) -> Recorded:
        """Return the call of a row of `ops`."""
        return self._calls[int(self._calls.number[row])]

    def name(self, row: int) -> str:
        """Return the operator that was called; "" where none is named."""
        return self.recorded(row).name

    def shapes(self, row: int) -> tuple[Extents, ...]:
        """Return the recorded shapes of a call's inputs."""
        return self.recorded(row).shapes or ()

    def types(self, row: int) -> tuple[str, ...]:
        """Return the recorded types of a call's inputs."""
        return self.recorded(row).dtypes or ()

    @cached_property
    def _tensors(self) -> tuple[IntArray, dict[str, IntArray]]:
        """Rows of `tensors` on a device, and where each operator's begin."""
        table = self._timeline.tensors
        columns = {name: numbers(table.column(name), -1) for name in _NUMBERS}
        columns["is_output"] = booleans(table.column("is_output")).astype(np.int64)
        device, texts = string_ids(table.column("device"))
        on_device = np.array([*(text is not None and not text.startswith("cpu") for text in texts), False], np.bool_)
        kept = on_device[device] & (columns["numel"] >= 0) & (columns["itemsize_bytes"] > 0)
        rows = np.flatnonzero(kept)
        rows = rows[np.argsort(columns["op_row"][rows], kind="stable")]
        return columns["op_row"][rows], {name: column[rows] for name, column in columns.items()}

    def tensors(self, row: int) -> Iterator[_Tensor]:
        """Yield one operator's tensors that were recorded."""
        of, columns = self._tensors
        begin, end = np.searchsorted(of, [row, row + 1]).tolist()
        own = [columns[name][begin:end].tolist() for name in ("is_output", "position", *_MEMORY, *_SIZES)]
        for is_output, position, storage, offset, numel, item in zip(*own, strict=True):
            yield _Tensor(bool(is_output), position, (storage, offset), numel, item)


_MEMORY, _SIZES = ("storage_id", "offset_elements"), ("numel", "itemsize_bytes")
_NUMBERS = ("op_row", "position", *_MEMORY, *_SIZES)


def step_work(lists: Lists, calls: Sequence[Call], optimizer: str) -> ListWork | None:
    """Return what an optimizer's step must move in one pass; None where no sizes are known."""
    return _recorded(lists, calls) or _guessed(calls, optimizer)


def step_share(calls: Sequence[Call], optimizer: str) -> tuple[int, int]:
    """Return how often each element is moved in one pass, and how often it is now, by operators alone."""
    counted = Counter(call.name for call in calls)
    turns = min(counted.values(), default=1)
    return 3 + 2 * _states(calls, optimizer), max(sum(call.moved for call in calls) // max(turns, 1), 1)


def loop_work(lists: Lists, calls: Sequence[Call], kind: str) -> ListWork | None:
    """Return what is left of a loop over tensors in passes over lists; None where no sizes are known."""
    if any(call.sizes is None or not call.sizes or call.item_bytes is None for call in calls):
        return None
    before = sum(_moved_bytes(call) for call in calls)
    turns: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        turns[call.name].append(call)
    last = turns[calls[-1].name]
    own, item = _firsts(last), last[0].item_bytes or 4
    if kind == "average":
        nbytes = item * sum(own)
        return ListWork(passes=(Pass(reads=2 * nbytes, writes=nbytes, sizes=own, lists=2),), before=before, sure=True)
    if kind == "norm":
        return ListWork(passes=(Pass(reads=item * sum(own), writes=0, sizes=own, lists=1),), before=before, sure=True)
    passes = []
    for each in turns.values():
        sizes, item = _firsts(each), each[0].item_bytes or 4
        taken = each[0].moved - 1
        nbytes = item * sum(sizes)
        one = Pass(reads=taken * nbytes, writes=nbytes, sizes=sizes, lists=max(taken, 1))
        passes += [one] * _operators_over_lists(lists, each[0])
    return ListWork(passes=tuple(passes), before=before, sure=True)


def _operators_over_lists(lists: Lists, call: Call) -> int:
    """Return how many list operators replace a loop over such calls: clamping has one for each bound."""
    return max(lists.types(call.row).count("Scalar"), 1) if call.name in ("clamp", "clamp_") else 1


# --- tensors that were recorded --------------------------------------------------------------------------------------


class _Moved:
    """Tensors that calls take, by their memory, and the bytes that all calls move."""

    def __init__(self) -> None:
        self.largest: dict[tuple[int, int], tuple[int, int]] = {}  # elements, and bytes of one
        self.made, self.read, self.written = set[tuple[int, int]](), set[tuple[int, int]](), set[tuple[int, int]]()
        self.nbytes = 0

    def add(self, call: Call, tensors: Sequence[_Tensor]) -> bool:
        """Add a call; return whether its inputs were recorded."""
        inputs = [each for each in tensors if not each.is_output]
        overload = call.overload
        for each in inputs:
            reads = overload is None or each.position not in overload.overwrites
            self._take(each, reads=reads, writes=overload is not None and each.position in overload.mutates)
        own = {each.memory for each in inputs}
        for each in tensors:
            if each.is_output and each.memory not in own:
                self.nbytes += each.nbytes
                self.made.add(each.memory)
                self._enlarge(each)
        return bool(inputs)

    def _take(self, tensor: _Tensor, *, reads: bool, writes: bool) -> None:
        """Add an input. What calls have made or written before is not read from outside."""
        self._enlarge(tensor)
        self.nbytes += tensor.nbytes * (reads + writes)
        if tensor.memory in self.made:
            return
        if reads and tensor.memory not in self.written:
            self.read.add(tensor.memory)
        if writes:
            self.written.add(tensor.memory)

    def _enlarge(self, tensor: _Tensor) -> None:
        before = self.largest.get(tensor.memory, (0, tensor.item_bytes))
        self.largest[tensor.memory] = max(before, (tensor.numel, tensor.item_bytes))


def _recorded(lists: Lists, calls: Sequence[Call]) -> ListWork | None:
    """Return the work by recorded tensors: each that is there before is read once, and once written if at all."""
    moved = _Moved()
    if not all(moved.add(call, list(lists.tensors(call.row))) for call in calls):
        return None
    reads, writes = (sum(prod(moved.largest[memory]) for memory in part) for part in (moved.read, moved.written))
    sizes = sorted((moved.largest[memory][0] for memory in moved.read | moved.written), reverse=True)
    count = max(round(len(sizes) / max(_lists(sizes), 1)), 1)
    if not writes:
        return None
    step = max(len(sizes) // count, 1)
    one = Pass(reads=reads, writes=writes, sizes=tuple(sizes[::step]), lists=min(step, 5))
    return ListWork(passes=(one,), before=moved.nbytes, sure=True)


def _lists(sizes: Sequence[int]) -> int:
    """Return how many lists have the same sizes: what divides the number of tensors of each size, 5 at most.

    >>> _lists([4, 4, 4, 4, 9, 9, 9, 9]), _lists([4, 4, 9])
    (4, 1)
    """
    counted = Counter(size for size in sizes if size > 1)
    return int(min(np.gcd.reduce([*counted.values()]), 5)) if counted else 1


# --- shapes alone ----------------------------------------------------------------------------------------------------


def _guessed(calls: Sequence[Call], optimizer: str) -> ListWork | None:
    if any(call.sizes is None for call in calls):
        return None
    own: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.writes:
            own[call.name].append(call)
    counts = {name: sum(_firsts(each)) for name, each in own.items()}
    most = max(counts.values(), default=0)
    if not most:
        return None
    # The operator that goes over each parameter once.
    name = min((name for name, count in counts.items() if count > _SMALL * most), key=lambda name: (counts[name], name))
    sizes, item = _firsts(own[name]), own[name][0].item_bytes or 4
    states = _states(calls, optimizer)
    nbytes = item * sum(sizes)
    one = Pass(reads=(2 + states) * nbytes, writes=(1 + states) * nbytes, sizes=sizes, lists=2 + states)
    return ListWork(passes=(one,), before=sum(_moved_bytes(call) for call in calls), sure=False)


def _states(calls: Iterable[Call], optimizer: str) -> int:
    names = {call.name for call in calls}
    return STATES.get(optimizer, _GUESSED_STATES) + (not names.isdisjoint(_MORE.get(optimizer, ())))


def _firsts(calls: Sequence[Call]) -> tuple[int, ...]:
    """Return the sizes of what the calls take first, all lists' members."""
    return tuple(size for call in calls for size in ((call.sizes or ((),))[0]))


def _moved_bytes(call: Call) -> int:
    sizes = call.sizes or ()
    return (call.item_bytes or 4) * (sum(map(sum, sizes)) + (sum(sizes[0]) if sizes and call.moved > 1 else 0))


def _sizes(call: Recorded) -> tuple[tuple[int, ...], ...] | None:
    """Return elements of each tensor, or of each member of a list; None where a list's members were not recorded."""
    found = []
    for given, kind in zip(call.shapes or (), call.dtypes or (), strict=False):
        if kind == "TensorList":
            counts = [_elements(each) for each in given]
            if not counts:
                return None
        elif dtype(kind) is not None:
            counts = [_elements(given)]
        else:
            continue
        if any(count is None for count in counts):
            return None
        found.append(tuple(count for count in counts if count is not None))
    return tuple(found) or None


def _elements(given: Extents | int) -> int | None:
    """Return elements of a tensor of this shape; None where that is damaged.

    >>> _elements((2, 3)), _elements(()), _elements((-1,)), _elements(5)
    (6, 1, None, None)
    """
    shape = sizes(given)
    if shape is None:
        return None
    count = prod(shape)
    return count if count < LONGEST else None
