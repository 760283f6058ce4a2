"""Tensors that the host makes of numbers that Python has, or of nothing, and then copies to the device."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import named
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_LISTS: Final = deferred(r"^aten::(lift_fresh|lift)$")  # what `torch.tensor` calls on what it has made
_DETACHED: Final = deferred(r"^aten::detach_$")  # what it calls last
_FACTORIES: Final = deferred(
    r"^aten::(ones|zeros|full|eye|arange|linspace|logspace|rand(int|perm|n)?|tri[lu]_indices|(hann|hamming)_window)$"
)
# What has one tensor to work on, the one that was made before.
_SHAPED: Final = deferred(
    r"^aten::(tri[lu]_?|fill_|zero_|normal_|uniform_|to|view|reshape|expand|repeat|flatten|(un)?squeeze|t|transpose"
    r"|permute|slice|flip|neg|cumsum|cos|sin|exp|(bitwise|logical)_not|contiguous|clone|type_as)$"
)


class Made(Struct, frozen=True):
    """What goes before an operator that copies to the device, of each row of `ops`."""

    of_list: BoolArray  # `torch.tensor(list)` goes before, or follows within the call
    host_ns: IntArray  # how long operators took that made what is copied of nothing, as recorded; 0: none did


def made_before(timeline: Timeline, thread: IntArray, launched: IntArray) -> Made:
    """Return what makes the tensors that outermost operators copy. thread: of each row of `ops`. launched: operators
    that make a call of the runtime, the outermost around each.
    """
    ops = timeline.ops
    is_op, above = categories(ops["kind"]).among("op"), rows_of(ops["parent_row"])
    top = np.flatnonzero(is_op & ((above < 0) | ~np.append(is_op, False)[above]))
    top = top[np.argsort(thread[top], kind="stable")]
    names = categories(ops["name"])
    lists, detached, factory, shaped = (
        np.append(named(names, each)[top], False) for each in (_LISTS, _DETACHED, _FACTORIES, _SHAPED)
    )
    place = np.arange(len(top))
    same = np.append(thread[top[1:]] == thread[top[:-1]], False) if len(top) else np.zeros(0, np.bool_)
    first = np.append(True, ~same[:-1])[: len(top)]  # of its thread
    of_list: BoolArray = np.zeros(ops.num_rows, np.bool_)
    before = lists | (detached & np.roll(lists, 1))
    of_list[top] = lists[1:] | (np.roll(before, 1)[:-1] & ~first)
    calls = np.zeros(ops.num_rows + 1, np.bool_)
    calls[launched] = True
    quiet = ~calls[:-1][top]
    other = ~(quiet & (factory | shaped)[:-1]) | first
    begun = np.maximum.accumulate(np.where(other, place, -1))  # the last operator that is no part of a chain
    began = _first_since(begun, quiet & factory[:-1], place)
    spent = np.append(0, np.cumsum(rows_of(ops["dur_ns"])[top]))
    host_ns = np.zeros(ops.num_rows, np.int64)
    known = np.flatnonzero((place > 0) & ~first)
    chain = np.append(-1, began)[known]  # of the operator before each
    host_ns[top[known]] = np.where(chain >= 0, spent[known] - spent[np.maximum(chain, 0)], 0)
    return Made(of_list=of_list, host_ns=host_ns)


def _first_since(begun: IntArray, factory: BoolArray, place: IntArray) -> IntArray:
    """Return the first factory at or behind where each operator's chain has begun, no later than itself; −1: none.

    >>> _first_since(np.array([0, 0, 0, 3]), np.array([False, True, False, False]), np.arange(4)).tolist()
    [-1, 1, 1, -1]
    """
    found = np.append(np.flatnonzero(factory), len(place))
    at = found[np.searchsorted(found, begun)]
    first: IntArray = np.where(at <= place, at, -1)
    return first
