"""Two groups that read one tensor become one, where it is sure to be one."""

from __future__ import annotations

import itertools

import numpy as np
from msgspec.structs import replace

from tests.timelines import Trace
from tracemine.flow import Evidence, Flow, flow
from tracemine.fusion import groups


def _two_readers() -> Flow:
    """A column's exp and a matrix beside it, a row's exp and the same matrix or one that looks like it."""
    trace = Trace()
    calls: list[tuple[str, list[list[int]]]] = []
    for line in ([64, 1], [1, 64]):
        calls += [("aten::exp", [line]), ("aten::gt", [[64, 64], line])]
    for at, (name, shapes) in enumerate(calls):
        op = trace.op(name, at * 10, 8, shapes=shapes, dtypes=["float"] * len(shapes))
        trace.kernel("k", at * 10 + 5, 4, op=op)
    return flow(trace.timeline())


def _members(found: Flow) -> list[int]:
    begin = groups(found).begin.tolist()
    return [after - before for before, after in itertools.pairwise(begin)]


def test_readers_of_one_tensor_are_one_group_though_each_spreads_a_line_of_its_own() -> None:
    found = _two_readers()
    proven = np.full(len(found.reads.node), Evidence.PROVEN, np.int8)
    assert _members(replace(found, reads=replace(found.reads, evidence=proven))) == [4]


def test_readers_of_what_comes_from_outside_and_looks_alike_are_two() -> None:
    assert _members(_two_readers()) == [2, 2]
