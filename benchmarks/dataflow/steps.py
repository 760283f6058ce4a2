"""Do two steps of one loop read the same things? A check of dataflow that needs no other truth."""

from __future__ import annotations

import itertools

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique, string_ids
from tracemine.flow.record import Flow, Source
from tracemine.timeline import Timeline

# Of one read: where it came from, and from which nodes: how many steps back, which node of that step.
_From = tuple[int, tuple[tuple[int, int], ...]]


class StepPair(Struct, frozen=True):
    """Two steps in a row, compared read by read."""

    first: int  # rows of `steps`
    second: int
    aligned: bool  # the same operators in the same order; else nothing below is counted
    reads: int = 0
    equal: int = 0
    # What the first step takes from outside the recording and the second from the first: parameters that an optimizer
    # has written, running statistics, caches.
    carried: int = 0
    different: tuple[int, ...] = ()  # positions in Flow.reads, of the second step, that nothing explains


def compare_steps(timeline: Timeline, flow: Flow) -> list[StepPair]:
    """Return every step that has nodes with the one before it.

    >>> from tracemine.timeline import Meta
    >>> from tracemine.flow import flow
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> compare_steps(empty, flow(empty))
    []
    """
    step = flow.nodes.step_row
    steps = [int(row) for row in sorted_unique(step) if row >= 0]
    of_step = {row: np.flatnonzero(step == row) for row in steps}
    place = np.full(len(flow.nodes), -1, np.int64)  # of each node in its step
    for nodes in of_step.values():
        place[nodes] = np.arange(len(nodes))
    names = string_ids(timeline.ops.column("name"))[0][flow.nodes.op_row]
    froms = _froms(flow, step.tolist(), place.tolist())
    pairs = []
    for first, second in itertools.pairwise(steps):
        before, after = of_step[first], of_step[second]
        if len(before) != len(after) or (names[before] != names[after]).any():
            pairs.append(StepPair(first, second, aligned=False))
            continue
        reads = [np.flatnonzero(np.isin(flow.reads.node, nodes)) for nodes in (before, after)]
        pairs.append(_compared(first, second, flow, froms, *(r.tolist() for r in reads)))
    return pairs


def _froms(flow: Flow, step: list[int], place: list[int]) -> list[_From]:
    producers: list[list[tuple[int, int]]] = [[] for _ in flow.reads.node]
    for read, producer, consumer in zip(
        flow.edges.read.tolist(), flow.edges.producer.tolist(), flow.edges.consumer.tolist(), strict=True
    ):
        producers[read].append((step[consumer] - step[producer], place[producer]))
    return [(source, tuple(sorted(given))) for source, given in zip(flow.reads.source.tolist(), producers, strict=True)]


def _compared(first: int, second: int, flow: Flow, froms: list[_From], before: list[int], after: list[int]) -> StepPair:
    if len(before) != len(after):
        return StepPair(first, second, aligned=False)
    equal = carried = 0
    different = []
    for one, other in zip(before, after, strict=True):
        (source, given), (next_source, next_given) = froms[one], froms[other]
        from_outside = source in (Source.OUTSIDE, Source.PARTLY_OUTSIDE)
        if (source, given) == (next_source, next_given):
            equal += 1
        elif from_outside and set(given) <= set(next_given) and all(back for back, _ in set(next_given) - set(given)):
            carried += 1
        else:
            different.append(other)
    return StepPair(first, second, True, len(after), equal, carried, tuple(different))
