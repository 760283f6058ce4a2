"""What the operators of an optimizer take, by the sequences that optimizers.toml knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.columns import numbers, rows_that
from tracemine.flow.inferred.calls import CallTensors
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.tables import table_beside
from tracemine.timeline import Timeline

_MARK = "Optimizer.step#"
PARAMETER, GRADIENT, COUNT, UNUSED = "p", "g", "s", "-"


class Chain(Struct, frozen=True):
    """The operators of one update, one after the other."""

    names: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...]
    gives: tuple[str, ...]  # empty: what it takes first, in place
    lists: bool


class Update(Struct, frozen=True):
    """What one operator of an optimizer takes and gives."""

    turn: int  # which step of an optimizer, counted
    instance: tuple[int, int]  # which optimizer, and which sequence of its step
    sources: tuple[str, ...]  # by argument that is a tensor or a list of tensors
    gives: str
    lists: bool
    alone: bool  # the only sequence of its step
    last: bool  # of its step
    whole: bool  # all that the step launches is known


@cache
def _sequences() -> tuple[Chain, ...]:
    data = table_beside(__file__, "optimizers.toml")
    found = []
    for kind in ("single", "lists"):
        for line in filter(None, data[kind].splitlines()):
            parts = [part.partition(">") for part in line.split("|")]
            calls = [before.split() for before, _, _ in parts]
            names = tuple(f"aten::{name}" for name, *_ in calls)
            sources = tuple(tuple(taken) for _, *taken in calls)
            gives = tuple(given.strip() for _, _, given in parts)
            found.append(Chain(names, sources, gives, kind == "lists"))
    return tuple(sorted(found, key=lambda one: -len(one.names)))


def updates(
    timeline: Timeline, order: Order, roots: IntArray, works: BoolArray, call: Callable[[int], CallTensors]
) -> dict[int, Update]:
    """By root what it takes as part of an optimizer. works: whether each root launches anything.

    Of several optimizers whose calls alternate each has sequences of its own: what they take looks different.
    """
    found = matched(timeline, order, roots[works], lambda one, at: _fits(one, [call(root) for root in at]))
    looks: defaultdict[int, list[tuple[object, ...]]] = defaultdict(list)
    for root, update in found.items():
        looks[update.turn].append(tuple(slot.spec for slot in call(root).slots))
    numbers_of: dict[tuple[tuple[object, ...], ...], int] = {}
    which = {turn: numbers_of.setdefault(tuple(look), len(numbers_of)) for turn, look in looks.items()}
    return {root: replace(one, instance=(which[one.turn], one.instance)) for root, one in found.items()}


def matched(
    timeline: Timeline, order: Order, roots: IntArray, fits: Callable[[Chain, Sequence[int]], bool]
) -> dict[int, Update]:
    """By root, of those that launch anything, what it takes; fits: whether roots next to each other are a chain."""
    rows = order.row[roots]
    start, tid = (numbers(timeline.ops.column(name))[rows] for name in ("start_ns", "tid"))
    found: dict[int, Update] = {}
    for turn, (begin, end, thread) in enumerate(spans(timeline).tolist()):
        here = roots[(start >= begin) & (start < end) & (tid == thread)].tolist()
        found |= _matched(turn, here, fits)
    return found


def spans(timeline: Timeline) -> IntArray:
    """Start, end and thread of each step of an optimizer."""
    named = rows_that(timeline.ops.column("name"), lambda text: text.startswith(_MARK))
    start, dur, tid = (numbers(timeline.ops.column(name))[named] for name in ("start_ns", "dur_ns", "tid"))
    return np.stack((start, start + dur, tid), axis=1)


def _matched(turn: int, roots: list[int], fits: Callable[[Chain, Sequence[int]], bool]) -> dict[int, Update]:
    parts: list[tuple[int, Chain]] = []
    at, whole = 0, True
    while at < len(roots):
        one = next((one for one in _sequences() if fits(one, roots[at : at + len(one.names)])), None)
        if one is None:
            at, whole = at + 1, False
            continue
        parts.append((at, one))
        at += len(one.names)
    return {
        roots[begin + number]: Update(
            turn,
            (0, instance),
            one.sources[number],
            one.gives[number],
            one.lists,
            len(parts) == 1,
            begin + number + 1 == len(roots),
            whole,
        )
        for instance, (begin, one) in enumerate(parts)
        for number in range(len(one.names))
    }


def _fits(one: Chain, calls: Sequence[CallTensors]) -> bool:
    if tuple(call.name for call in calls) != one.names:
        return False
    return all(
        len(call.lists if one.lists else call.slots) == len(sources) and (one.lists or not call.lists)
        for call, sources in zip(calls, one.sources, strict=True)
    )
