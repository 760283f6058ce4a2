"""Least traffic of an optimizer's step in one pass: bytes, tensors, lists.

Where an execution trace names the tensors each is counted once. Otherwise shapes tell how many elements each operator
goes over, and the optimizer's class how many states it has.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.findings.lists import ListedCall, Lists, Tensor
from tracemine.perfmodel import Pass, Traffic

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
_SMALL = 0.05  # of the elements that the busiest operator goes over: less is a count of steps


class ListWork(Struct, frozen=True, kw_only=True):
    """Traffic of passes over lists, and of what runs now."""

    passes: tuple[Pass, ...]
    before: int | None  # bytes
    sure: bool  # tensors were recorded

    @property
    def traffic(self) -> Traffic | None:
        after = sum(one.reads + one.writes for one in self.passes)
        return None if self.before is None else Traffic(before=max(self.before, after), after=after)


def firsts(calls: Sequence[ListedCall]) -> tuple[int, ...]:
    """Return the sizes of what the calls take first, all lists' members."""
    return tuple(size for call in calls for size in ((call.sizes or ((),))[0]))


def moved_bytes(call: ListedCall) -> int:
    """Return what a call reads and writes, by its sizes."""
    sizes = call.sizes or ()
    return (call.item_bytes or 4) * (sum(map(sum, sizes)) + (sum(sizes[0]) if sizes and call.moved > 1 else 0))


def step_work(lists: Lists, calls: Sequence[ListedCall], optimizer: str) -> ListWork | None:
    """Return what an optimizer's step must move in one pass; None where no sizes are known."""
    return _recorded(lists, calls) or _guessed(calls, optimizer)


def step_share(calls: Sequence[ListedCall], optimizer: str) -> tuple[int, int]:
    """Return how often each element is moved in one pass, and how often it is now, by operators alone."""
    counted = Counter(call.name for call in calls)
    turns = min(counted.values(), default=1)
    return 3 + 2 * _states(calls, optimizer), max(sum(call.moved for call in calls) // max(turns, 1), 1)


# --- tensors that were recorded --------------------------------------------------------------------------------------


class _Moved:
    """Tensors that calls take, by their memory, and the bytes that all calls move."""

    def __init__(self) -> None:
        self.largest: dict[tuple[int, int], tuple[int, int]] = {}  # elements, and bytes of one
        self.made, self.read, self.written = set[tuple[int, int]](), set[tuple[int, int]](), set[tuple[int, int]]()
        self.nbytes = 0

    def add(self, call: ListedCall, tensors: Sequence[Tensor]) -> bool:
        """Add a call; return whether its inputs were recorded."""
        inputs = [tensor for tensor in tensors if not tensor.is_output]
        overload = call.overload
        for each in inputs:
            reads = overload is None or each.position not in overload.overwrites
            self._take(each, reads=reads, writes=overload is not None and each.position in overload.mutates)
        own = {given.memory for given in inputs}
        for each in tensors:
            if each.is_output and each.memory not in own:
                self.nbytes += each.nbytes
                self.made.add(each.memory)
                self._enlarge(each)
        return bool(inputs)

    def _take(self, tensor: Tensor, *, reads: bool, writes: bool) -> None:
        """Add an input. What calls have made or written before is not read from outside."""
        self._enlarge(tensor)
        self.nbytes += tensor.nbytes * (reads + writes)
        if tensor.memory in self.made:
            return
        if reads and tensor.memory not in self.written:
            self.read.add(tensor.memory)
        if writes:
            self.written.add(tensor.memory)

    def _enlarge(self, tensor: Tensor) -> None:
        before = self.largest.get(tensor.memory, (0, tensor.item_bytes))
        self.largest[tensor.memory] = max(before, (tensor.numel, tensor.item_bytes))


def _recorded(lists: Lists, calls: Sequence[ListedCall]) -> ListWork | None:
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


def _guessed(calls: Sequence[ListedCall], optimizer: str) -> ListWork | None:
    if any(call.sizes is None for call in calls):
        return None
    own: dict[str, list[ListedCall]] = defaultdict(list)
    for call in calls:
        if call.writes:
            own[call.name].append(call)
    counts = {name: sum(firsts(each)) for name, each in own.items()}
    most = max(counts.values(), default=0)
    if not most:
        return None
    # The operator that goes over each parameter once.
    name = min((name for name, count in counts.items() if count > _SMALL * most), key=lambda name: (counts[name], name))
    sizes, item = firsts(own[name]), own[name][0].item_bytes or 4
    states = _states(calls, optimizer)
    nbytes = item * sum(sizes)
    one = Pass(reads=(2 + states) * nbytes, writes=(1 + states) * nbytes, sizes=sizes, lists=2 + states)
    return ListWork(passes=(one,), before=sum(moved_bytes(call) for call in calls), sure=False)


def _states(calls: Iterable[ListedCall], optimizer: str) -> int:
    names = {call.name for call in calls}
    return STATES.get(optimizer, _GUESSED_STATES) + (not names.isdisjoint(_MORE.get(optimizer, ())))
