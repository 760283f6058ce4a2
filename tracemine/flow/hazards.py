"""Ordering hazards without dataflow: write after read, and write after write."""

from __future__ import annotations

import numpy as np

from tracemine.columns import codes, sorted_unique
from tracemine.flow.record import BoolArray, IntArray, Reads, Writes


def orders(reads: Reads, writes: Writes, silent: BoolArray) -> tuple[IntArray, IntArray]:
    """Return pairs of nodes, the earlier and the later, of which the later writes what the earlier reads or writes.

    silent: nodes that do not say what they write: perhaps all that they read.

    What overlaps in a buffer, also by way of a third access, is taken for one place; of each place every write comes
    after all that stands between it and the write before. So there are about as many pairs as accesses.
    """
    node = np.concatenate((reads.node, writes.node))
    is_write = np.append(silent[reads.node], np.ones(len(writes.node), np.bool_))
    place = _places(
        np.concatenate((reads.buffer, writes.buffer)),
        np.concatenate((reads.begin_byte, writes.begin_byte)),
        np.concatenate((reads.end_byte, writes.end_byte)),
    )
    order = np.lexsort((is_write, node, place))
    node, is_write, place = node[order], is_write[order], place[order]
    count = len(node)
    at = np.arange(count)
    if not count:
        return at, at
    before = np.append(-1, np.maximum.accumulate(np.where(is_write, at, -1))[:-1])  # the last write in front of each
    after = np.minimum.accumulate(np.where(is_write, at, count)[::-1])[::-1]  # the first one from each on
    writes_at, reads_at = np.flatnonzero(is_write), np.flatnonzero(~is_write)
    earlier = np.concatenate((before[writes_at], reads_at))
    later = np.concatenate((writes_at, after[reads_at]))
    there = (earlier >= 0) & (later < count)
    earlier, later = earlier[there], later[there]
    holds = (place[earlier] == place[later]) & (node[earlier] != node[later])
    width = int(node.max()) + 1
    found = sorted_unique(node[earlier[holds]] * width + node[later[holds]])
    return found // width, found % width


def _places(buffer: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return a number for each access, the same where bytes overlap."""
    bounds = codes(np.concatenate((begin, end)))
    first, last = bounds[: len(begin)], bounds[len(begin) :]
    order = np.lexsort((first, buffer))
    # Ends counted on from buffer to buffer, so that none reaches into the next one.
    shift = buffer[order] * (int(bounds.max(initial=0)) + 1)
    reached = np.maximum.accumulate(last[order] + shift) if len(order) else order
    new = np.append(True, first[order][1:] + shift[1:] >= reached[:-1])[: len(order)]
    places = np.empty(len(order), np.int64)
    places[order] = np.cumsum(new)
    return places
