"""Ways out of a match and back: through operators that may read, by a guess, what only its own nodes are taken to read.

Where dataflow was inferred an edge may be one guess of several: `bmm` reads the copy of the keys, or what was scaled of
that copy. A match that takes the one for its edge, and not what the other goes through, is no single operator. One that
has a backward pass is two: what of its forward pass is read elsewhere comes back to the backward pass by the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, IntArray

_FOLLOWED: Final = 2_000  # operators on ways out of one match, before one of them counts as a way back


def ways_back(graph: NodeGraph, members: Sequence[IntArray], given: Sequence[IntArray]) -> BoolArray:
    """Return for each match whether what one of its nodes wrote may be read outside it, and what comes of that inside.

    members: columns of nodes, −1: none. given: those of them whose results are looked at.
    """
    count = len(given[0])
    found = np.zeros(count, np.bool_)
    if not graph.guesses:
        return found
    nodes, starts = (np.stack(columns, axis=1).tolist() for columns in (members, given))
    known: dict[tuple[frozenset[int], frozenset[int]], bool] = {}
    for row in range(count):
        key = frozenset(nodes[row]) - {-1}, frozenset(starts[row]) - {-1}
        if key not in known:
            known[key] = _leads_back(graph, *key)
        found[row] = known[key]
    return found


def _leads_back(graph: NodeGraph, members: frozenset[int], starts: frozenset[int]) -> bool:
    passes = (members & graph.backward, members - graph.backward)
    return any(_out_and_back(graph, members, starts & own, own) for own in passes if starts & own)


def _out_and_back(graph: NodeGraph, members: frozenset[int], starts: frozenset[int], ends: frozenset[int]) -> bool:
    last = max(ends)
    waiting = [other for node in starts for other in graph.guesses.get(node, ()) if other not in members]
    seen = set(waiting)
    while waiting:
        if len(seen) > _FOLLOWED:
            return True
        at = waiting.pop()
        if at > last:
            continue
        for other in (*graph.readers(at), *graph.guesses.get(at, ())):
            if other in ends:
                return True
            if other not in seen and other not in members:
                seen.add(other)
                waiting.append(other)
    return False
