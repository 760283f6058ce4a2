"""In which order calls may run when some of them become one: a fused kernel stands where the first of them stood, or as
soon after as all that it needs is there.

What must keep its order: who reads after who wrote, who writes after who read, who writes after who wrote, wherever two
touch the same bytes. Groups that would have to be both before and after another call stay apart.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracemine.verify.step.program import Buffer, StepCall, TensorRef

_GENERATOR = -1  # random numbers are drawn in the recorded order: a buffer that all who draw write


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes of a buffer that something reads or writes."""

    buffer: int
    begin: int
    end: int
    writes: bool


def touches(call: StepCall, buffers: Sequence[Buffer]) -> list[Touch]:
    """Return what a call reads and writes. A view reads nothing, but memory that it looks at must have been made."""

    def one(place: TensorRef, writes: bool) -> Touch:
        begin, end = place.layout.reach
        size = buffers[place.buffer].itemsize
        if call.is_view:
            return Touch(place.buffer, -1, 0, writes=False)
        return Touch(place.buffer, begin * size, max(end, begin + 1) * size, writes)

    found = [one(place, False) for place in call.reads]
    found += [one(place, True) for place in call.writes]
    # What a call makes is written whole, with a byte before its first, which everybody who looks at it touches.
    found += [Touch(b, -1, max(buffers[b].elements, 1) * buffers[b].itemsize, writes=True) for b in call.makes]
    if call.draws:
        found.append(Touch(_GENERATOR, 0, 1, writes=True))
    return found


def follows(touched: Sequence[Sequence[Touch]]) -> list[set[int]]:
    """Return for each item the earlier ones that must run before it.

    >>> write, read = Touch(0, 0, 8, writes=True), Touch(0, 4, 8, writes=False)
    >>> follows([[write], [read], [read], [write]])
    [set(), {0}, {0}, {0, 1, 2}]
    """
    readers: dict[int, list[tuple[int, Touch]]] = {}
    writers: dict[int, list[tuple[int, Touch]]] = {}
    found: list[set[int]] = []
    for item, mine in enumerate(touched):
        before: set[int] = set()
        for touch in mine:
            earlier = [*writers.get(touch.buffer, ()), *(readers.get(touch.buffer, ()) if touch.writes else ())]
            before.update(i for i, t in earlier if t.begin < touch.end and touch.begin < t.end)
        for touch in mine:
            if touch.writes:  # what it covers need not be looked at again: whoever touches it comes after this item
                for known in (readers, writers):
                    known[touch.buffer] = [
                        (i, t)
                        for i, t in known.get(touch.buffer, ())
                        if not (touch.begin <= t.begin and t.end <= touch.end)
                    ]
            (writers if touch.writes else readers).setdefault(touch.buffer, []).append((item, touch))
        before.discard(item)
        found.append(before)
    return found


def schedule(before: Sequence[set[int]], groups: Mapping[int, Sequence[int]]) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return an order that keeps all that `before` asks for, with as many groups in one piece as it allows: numbers of
    calls, and of groups as −1 − group; and which groups are placed, as the others' calls stay as they are.

    before: of each call the earlier ones that it must come after. groups: of each, its calls; no call is in two.
    """
    left = {number: tuple(sorted(members)) for number, members in groups.items() if members}
    while True:
        found = _sorted(before, left)
        if isinstance(found, tuple):
            return found, frozenset(left)
        del left[found]


def _needs(before: Sequence[set[int]], name: Mapping[int, int]) -> dict[int, set[int]]:
    """Return what each call or group comes after. name: of a group, by its members."""
    needs: dict[int, set[int]] = {name.get(call, call): set() for call in range(len(before))}
    for call, earlier in enumerate(before):
        mine = name.get(call, call)
        needs[mine].update(other for e in earlier if (other := name.get(e, e)) != mine)
    return needs


def _sorted(before: Sequence[set[int]], groups: Mapping[int, tuple[int, ...]]) -> tuple[int, ...] | int:
    """Return the order, or a group that is in its way."""
    name = {member: -1 - number for number, members in groups.items() for member in members}
    place = {-1 - number: members[0] for number, members in groups.items()}
    needs = _needs(before, name)
    gives: dict[int, list[int]] = {}
    for item, earlier in needs.items():
        for other in earlier:
            gives.setdefault(other, []).append(item)
    missing = {item: len(earlier) for item, earlier in needs.items()}
    ready = [(place.get(item, item), item) for item, count in missing.items() if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        order.append(item)
        for other in gives.get(item, ()):
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (place.get(other, other), other))
    if len(order) == len(needs):
        return tuple(order)
    return _in_the_way({item for item, count in missing.items() if count}, needs)


def _in_the_way(stuck: set[int], needs: Mapping[int, set[int]]) -> int:
    """Return a group on a circle. Without groups there is none, for calls follow earlier ones only."""
    for item in sorted(stuck):  # groups have negative numbers: the last one first
        if item >= 0:
            break
        todo, seen = [n for n in needs[item] if n in stuck], set[int]()
        while todo:
            at = todo.pop()
            if at == item:
                return -1 - item
            if at not in seen:
                seen.add(at)
                todo += [n for n in needs[at] if n in stuck]
    raise AssertionError("calls that follow each other")
