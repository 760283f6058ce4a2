"""Operators with all that is inside them: which are equal, and which are run on their own."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.columns import Array
from tracemine.flow.inferred.calls import Calls
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ODD = np.uint64(0xD1342543DE82EF95)


class Subtrees(Struct, frozen=True):
    """One entry an operator, by its position in the Order."""

    number: IntArray  # equal ones: the same calls inside each other in the same order, with equal launches
    children: IntArray  # positions, by parent
    begin: IntArray  # children of i: children[begin[i]:begin[i + 1]]
    place: IntArray  # counted through the operators of its thread
    size: IntArray  # operators in it, itself included
    at: IntArray  # position of the operator at each place

    @staticmethod
    def of(calls: Calls, order: Order, thread: IntArray, launches: IntArray) -> Subtrees:
        """launches: a number for what each operator itself launched, 0 for nothing."""
        count = len(order.row)
        at = np.lexsort((np.arange(count), thread))
        place = np.empty(count, np.int64)
        place[at] = np.arange(count)
        size = np.ones(count, np.int64)
        by_level = np.argsort(order.level, kind="stable")
        begins = np.searchsorted(order.level[by_level], np.arange(int(order.level.max(initial=0)) + 2))
        for level in range(len(begins) - 2, 0, -1):
            here = by_level[begins[level] : begins[level + 1]]
            np.add.at(size, order.parent[here], size[here])
        inside = np.flatnonzero(order.parent >= 0)
        children = inside[np.argsort(order.parent[inside], kind="stable")]
        begin = np.searchsorted(order.parent[children], np.arange(count + 1))
        return Subtrees(_numbers(calls, order, launches, at, place, size), children, begin, place, size, at)

    def sums(self, own: Array) -> IntArray:
        """Return for each operator the sum over itself and all that is inside."""
        total = np.concatenate((np.zeros(1, np.int64), np.cumsum(own[self.at])))
        found: IntArray = total[np.minimum(self.place + self.size, len(own))] - total[self.place]
        return found


def _numbers(calls: Calls, order: Order, launches: IntArray, at: IntArray, place: IntArray, size: IntArray) -> IntArray:
    """Return equal numbers for equal subtrees, by a polynomial over what stands at each place and how deep."""
    count = len(at)
    with np.errstate(over="ignore"):
        word = (calls.of_op * 16 + launches).astype(np.uint64)
        mixed = _mixed(word)
        power = np.cumprod(np.full(count + 1, _ODD)) if count else np.ones(1, np.uint64)
        level = order.level.astype(np.uint64)
        # Depth relative to the root: Σ (word + depth·factor)·power, with the root's own depth taken off again.
        values = (mixed ^ np.uint64(0))[at] * power[:count]
        depths = (level[at] + np.uint64(1)) * _mixed(word[at] + np.uint64(7)) * power[:count]
        weight = _mixed(word[at] + np.uint64(7)) * power[:count]
        sums = [np.concatenate((np.zeros(1, np.uint64), np.cumsum(part))) for part in (values, depths, weight)]
        first, last = place, place + size
        last = np.minimum(last, count)
        value, depth, weights = (part[last] - part[first] for part in sums)
        total = value + (depth - weights * level) * _FACTOR
        total *= _inverse_powers(power, first)
        total ^= _mixed(size.astype(np.uint64))
    return np.unique(total, return_inverse=True)[1].reshape(-1)


def _inverse_powers(power: Array, first: IntArray) -> Array:
    """Return what takes power[first] off again: odd numbers have an inverse modulo 2⁶⁴."""
    inverse = pow(int(_ODD), -1, 1 << 64)
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(len(power), np.uint64(inverse)))
    found: Array = powers[first]
    return found


def _mixed(word: Array) -> Array:
    """splitmix64, so that sums of words tell apart what was summed."""
    with np.errstate(over="ignore"):
        z = (word + _FACTOR) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Array = z ^ (z >> np.uint64(31))
        return mixed


def roots(order: Order, opaque: BoolArray) -> IntArray:
    """Return positions of the outermost operators that `opaque` names, or that have nothing inside."""
    own = np.where(opaque | order.leaf, np.arange(len(opaque)), -1)
    outermost = order.inherited(own)
    return np.flatnonzero(outermost == np.arange(len(opaque)))
