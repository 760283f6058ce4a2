"""The iterations of a loop: equal calls on one tensor after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracemine.codegen.graph import Graph, GraphCall, mutated, reads
from tracemine.verify.fixes.record import NoFixedForm
from tracemine.verify.fixes.written import plain


def steps_of(graph: Graph) -> list[list[tuple[int, GraphCall]]]:
    """Return the loop's calls, equal ones together: the first of each tensor, then the second."""
    lane_of, lanes = dict[int, int](), list[list[tuple[int, GraphCall]]]()
    for number, call in enumerate(graph.calls):
        touched = {lane_of[v] for v in reads(call) if v in lane_of}
        if len(touched) > 1:
            raise NoFixedForm("what the loop does to one tensor depends on another")
        lane = touched.pop() if touched else len(lanes)
        if lane == len(lanes):
            lanes.append([])
        lanes[lane].append((number, call))
        first = graph.first_output(number)
        lane_of |= dict.fromkeys((*mutated(call), *range(first, first + len(call.outputs))), lane)
    if len(lanes) < 2:
        raise NoFixedForm("each call needs what the one before gave: it is no loop over tensors")
    if len({tuple(_alike(call) for _, call in lane) for lane in lanes}) != 1:
        raise NoFixedForm("the loop does not do the same to all tensors")
    if any(_reads_others(lane, lane_of, own) for own, lane in enumerate(lanes)):
        raise NoFixedForm("what the loop does to one tensor depends on another")
    return [list(step) for step in zip(*lanes, strict=True)]


def _reads_others(lane: Sequence[tuple[int, GraphCall]], lane_of: Mapping[int, int], own: int) -> bool:
    """Return whether a lane reads what another writes, before or after."""
    return any(lane_of.get(v, own) != own for _, call in lane for v in reads(call))


def _alike(call: GraphCall) -> tuple[object, ...]:
    """Return what calls that can be one have in common: operator, numbers and literals."""
    return (call.label, *(plain(value) for value in call.arguments))
