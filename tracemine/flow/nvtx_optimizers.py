"""Reads and writes of optimizers in NVTX ranges, whose texts name no producer of a parameter, a state or a list.

An optimizer whose operators are one of the sequences of `inferred/optimizers.toml`, all that it launches, is taken to
read and write what that sequence does. Which of the tensors that others read are its parameters is unknown: what comes
before it and after it may be any of them (`fusion/barriers.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.calls import Call, calls_of
from tracemine.calls.call import Extents
from tracemine.columns import booleans, numbers, string_ids, texts
from tracemine.flow.inferred.optimizers import Chain, Update, matched
from tracemine.flow.inferred.tables import table_of_tensors
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.ops import lookup
from tracemine.timeline import Timeline
from tracemine.timeline.arrow import lists_of, row_numbers

_Shape = tuple[int, ...]
_Sizes = tuple[_Shape, ...]
_MOST = 1 << 44  # elements, and storages: more is damage


def of_nvtx(timeline: Timeline) -> bool:
    """Return whether NVTX texts said who made which tensor: only they give no size of an element."""
    sizes = timeline.tensors.column("itemsize_bytes")
    return 0 < int(sizes.null_count) == len(sizes)


def optimizers_told(timeline: Timeline, order: Order) -> tuple[Timeline, Order, BoolArray]:
    """Return the timeline with what its optimizers read and write, where that is known, as `joined` of the order says;
    and the rows of its `tensors` that say what was not recorded.

    >>> from tracemine.flow.order import order_of
    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.sqlite", format="nsys"))
    >>> optimizers_told(empty, order_of(empty))[2].tolist()
    []
    """
    unchanged = (timeline, order, np.zeros(timeline.tensors.num_rows, np.bool_))
    if not of_nvtx(timeline):
        return unchanged
    calls = _Calls(timeline, order)
    if calls.next_storage > _MOST:
        return unchanged
    chains = [chain for turn in _turns(calls) if (chain := _bound(turn, calls)) is not None]
    bound = [call for turn in chains for call in turn]
    return _with(timeline, order, calls, bound) if bound else unchanged


class _Calls:
    """The outermost operators that launch work: what they are called, and what sizes and storages were recorded."""

    def __init__(self, timeline: Timeline, order: Order) -> None:
        self.timeline, self.order = timeline, order
        self.root_of = order.inherited(np.where(order.parent < 0, np.arange(len(order.row)), -1))
        owner = np.append(order.position, -1)[numbers(timeline.activities.column("op_row"), -1)]
        works = np.zeros(len(order.row), np.bool_)
        works[self.root_of[owner[owner >= 0]]] = True
        self.roots = np.flatnonzero(works)
        self._calls = calls_of(timeline)
        table = timeline.tensors
        self.op_row, storage = numbers(table.column("op_row")), numbers(table.column("storage_id"))
        gives, numel = booleans(table.column("is_output")), numbers(table.column("numel"))
        self.next_storage = int(storage.max()) + 1
        # Of which some take a part only, that may have been written through that part; an expanded one is larger.
        number, first, of_row = np.unique(storage, return_index=True, return_inverse=True)
        least = np.full(len(number), np.iinfo(np.int64).max)
        np.minimum.at(least, of_row, numel)
        self.whole = set(number[least == numel[first]].tolist())
        self.made = set(storage[gives].tolist())
        device, self.devices = string_ids(table.column("device"))
        position, index = numbers(table.column("position")), numbers(table.column("list_index"), 0)
        self._given: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by row of `ops`: entry → storage
        self.device_of: dict[int, int] = {}
        wanted = np.isin(self.op_row, order.row[self.roots]) & ~gives
        columns = (self.op_row, position + index, storage, device)
        for row, entry, one, on in zip(*(column[wanted].tolist() for column in columns), strict=True):
            self._given[row][entry] = one
            self.device_of[row] = on

    def name(self, root: int) -> str:
        """Return the operator's name."""
        return self._call(root).name

    def sizes(self, root: int) -> _Sizes | None:
        """Return the sizes of all that it takes, the members of lists one after the other."""
        return _flat(self._call(root).shapes)

    def _call(self, root: int) -> Call:
        return self._calls[int(self._calls.number[self.order.row[root]])]

    def given(self, root: int) -> dict[int, int]:
        """Return the storages of what it takes, by their place among the sizes."""
        return self._given.get(int(self.order.row[root]), {})


@lru_cache(maxsize=1 << 12)
def _flat(shapes: tuple[Extents, ...] | None) -> _Sizes | None:
    flat: list[_Shape] = []
    for one in shapes or ():
        members = [each for each in one if isinstance(each, tuple)]
        if members and len(members) < len(one):
            return None
        flat += members or [tuple(each for each in one if isinstance(each, int))]
    return (
        tuple(flat)
        if shapes is not None and all(min(size, default=0) >= 0 and prod(size) < _MOST for size in flat)
        else None
    )


def _turns(calls: _Calls) -> Iterator[list[list[tuple[int, Update]]]]:
    """Yield the chains of each step of an optimizer that consists of chains alone."""

    def fits(chain: Chain, roots: Sequence[int]) -> bool:
        if tuple(calls.name(root) for root in roots) != chain.names:
            return False
        return (
            _members(chain.names, chain.sources, [calls.sizes(root) for root in roots], lists=chain.lists) is not None
        )

    turns: defaultdict[int, defaultdict[tuple[int, int], list[tuple[int, Update]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for root, update in matched(calls.timeline, calls.order, calls.roots, fits).items():
        if update.whole:
            turns[update.turn][update.instance].append((root, update))
    for chains in turns.values():
        yield [sorted(chain, key=lambda each: each[0]) for chain in chains.values()]


def _members(
    names: Sequence[str], sources: Sequence[Sequence[str]], sizes: Sequence[_Sizes | None], *, lists: bool
) -> _Sizes | None:
    """Return the shapes of a chain's list members, equal in all of its lists; None where they are not.

    >>> names = ["aten::_foreach_mul_", "aten::_foreach_add_"]
    >>> _members(names, ["b", "bg"], [((4,), ()), ((4,), (4,), ())], lists=True)
    ((4,),)
    """
    found: set[_Sizes] | None = None
    for name, taken, given in zip(names, sources, sizes, strict=True):
        fit = set[_Sizes]() if given is None else _fitting(name, len(taken), given, lists=lists)
        found = fit if found is None else found & fit
    return next(iter(found)) if found is not None and len(found) == 1 else None


def _fitting(name: str, count: int, sizes: _Sizes, *, lists: bool) -> set[_Sizes]:
    """Return the members that so many lists of an operator can have; without lists, what each tensor can be."""
    if not lists:
        shapes = [size for size in sizes if size]
        return {(shapes[0],)} if len(shapes) == count and len(set(shapes)) == 1 else set()
    return _fitting_lists(name, count, sizes)


def _fitting_lists(name: str, count: int, sizes: _Sizes) -> set[_Sizes]:
    found = set()
    operator = lookup(name)
    for overload in () if operator is None else operator.overloads:
        tensors = [at for at, argument in enumerate(overload.arguments) if argument.is_tensor and argument.is_list]
        length, left = divmod(len(sizes) - len(overload.arguments) + len(tensors), max(len(tensors), 1))
        if tensors != list(range(count)) or left or length < 1:
            continue
        members = {sizes[at * length : (at + 1) * length] for at in range(count)}
        if len(members) == 1 and not any(sizes[count * length :]):
            found |= members
    return found


class _OptimizerCall(msgspec.Struct, frozen=True):
    """One operator of an optimizer, and the storages of the members of the lists that it takes and gives."""

    root: int
    members: _Sizes
    takes: tuple[tuple[int, ...], ...]
    gives: tuple[int, ...]
    lists: bool


def _takes(
    update: Update, recorded: Sequence[int | None], count: int, storages: dict[tuple[str, int], int], calls: _Calls
) -> list[tuple[int, ...]] | None:
    """Return the storages that each input's members lie in; None where what is recorded speaks against them."""
    takes = []
    for at, letter in enumerate(update.sources):
        if not _agree(storages, letter, recorded[at * count : (at + 1) * count], calls):
            return None
        takes.append(_storages_of(storages, letter, count))
    return takes


def _entries(sizes: Sequence[Sequence[int]] | None, *, lists: bool) -> list[int]:
    """Return which entries of a text are tensors: of lists all, else those with a size."""
    return [at for at, size in enumerate(sizes or ()) if lists or size]


def _storages_of(storages: Mapping[tuple[str, int], int], letter: str, count: int) -> tuple[int, ...]:
    return tuple(storages[letter, index] for index in range(count))


def _bound(turn: Sequence[Sequence[tuple[int, Update]]], calls: _Calls) -> list[_OptimizerCall] | None:
    """Return the operators of one step of an optimizer; None where what is recorded speaks against them."""
    chains = [_bound_chain(chain, calls) for chain in turn]
    if any(chain is None for chain in chains):
        return None
    return [call for chain in chains if chain is not None for call in chain]


def _bound_chain(chain: Sequence[tuple[int, Update]], calls: _Calls) -> list[_OptimizerCall] | None:
    roots, updates = zip(*chain, strict=True)
    lists, sources = updates[0].lists, [update.sources for update in updates]
    names, sizes = [calls.name(root) for root in roots], [calls.sizes(root) for root in roots]
    members = _members(names, sources, sizes, lists=lists)
    if members is None or any(int(calls.order.row[root]) not in calls.device_of for root in roots):
        return None
    found: list[_OptimizerCall] = []
    storages: dict[tuple[str, int], int] = {}
    for root, update, given in zip(roots, updates, sizes, strict=True):
        recorded = [calls.given(root).get(entry) for entry in _entries(given, lists=lists)]
        takes = _takes(update, recorded, len(members), storages, calls)
        if takes is None:
            return None
        if update.gives:
            storages |= {(update.gives, index): _new(calls) for index in range(len(members))}
        gives = _storages_of(storages, update.gives, len(members)) if update.gives else takes[0]
        found.append(_OptimizerCall(root, members, tuple(takes), gives, lists))
    return found


def _agree(storages: dict[tuple[str, int], int], letter: str, recorded: Sequence[int | None], calls: _Calls) -> bool:
    """Return whether the tensors of a letter are those recorded; of which nothing was known yet, they become it."""
    for index, one in enumerate(recorded):
        if one is not None and one not in calls.whole:
            return False
        before = storages.setdefault((letter, index), _new(calls) if one is None else one)
        if one is not None and before != one and one in calls.made and before in calls.made:
            return False
    return True


def _new(calls: _Calls) -> int:
    calls.next_storage += 1
    return calls.next_storage - 1


def _with(
    timeline: Timeline, order: Order, calls: _Calls, bound: Sequence[_OptimizerCall]
) -> tuple[Timeline, Order, BoolArray]:
    """Return the timeline with these in place of all that is recorded of them and of the operators inside them."""
    roots = np.array([call.root for call in bound])
    replaced = np.isin(calls.root_of, roots)
    joined = order.joined.copy()
    joined[roots] = True
    inside = np.zeros(timeline.ops.num_rows, np.bool_)
    inside[order.row[replaced]] = True
    kept = timeline.tensors.take(row_numbers(np.flatnonzero(~inside[calls.op_row])))
    rows: list[tuple[int, ...]] = []
    shapes: dict[_Shape, int] = {}
    for call in bound:
        row = int(order.row[call.root])
        for is_output, lists in ((False, call.takes), (True, (call.gives,))):
            for position, members in enumerate(lists):
                for index, (storage, shape) in enumerate(zip(members, call.members, strict=True)):
                    spec = shapes.setdefault(shape, len(shapes))
                    at = index if call.lists else -1
                    recorded = calls.given(call.root).get(position * len(members) + index)
                    guess = not is_output and recorded != storage
                    device = calls.device_of[row]
                    rows.append((row, is_output, position, at, storage, prod(shape), spec, device, guess))
    told = np.array(rows, np.int64)
    table = pa.concat_tables([kept, _table(told, list(shapes), calls.devices)])
    guessed = np.append(np.zeros(kept.num_rows, np.bool_), told[:, -1] > 0)
    keys = (numbers(table.column("list_index"), -1), numbers(table.column("position")))
    in_order = np.lexsort((*keys, booleans(table.column("is_output")), numbers(table.column("op_row"))))
    told_of = replace(timeline, tensors=table.take(row_numbers(in_order)))
    return told_of, replace(order, joined=joined), guessed[in_order]


def _table(rows: IntArray, shapes: Sequence[_Shape], devices: Sequence[str]) -> pa.Table:
    op_row, is_output, position, list_index, storage, numel, shape, device, _ = rows.T
    nothing = np.full(len(rows), -1)
    return table_of_tensors(
        op_row=op_row,
        is_output=is_output > 0,
        position=position,
        list_index=list_index,
        storage=storage,
        offset=np.zeros(len(rows), np.int64),
        numel=numel,
        itemsize_bytes=nothing,
        device=texts(device, devices),
        dtype=texts(nothing, []),
        shape=lists_of(shapes, shape),
        strides=lists_of([None], np.zeros(len(rows), np.int64)),
    )
