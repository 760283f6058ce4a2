"""What takes long in a trace takes about twice as long in one of twice the size, whatever shape its dataflow has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.flow import flow
from tracemine.fusion import groups
from tracemine.timeline import Timeline

Op = tuple[str, list[Any], list[str], int]  # name, shapes, dtypes, how many operators are around it


def _pointwise_chain(count: int) -> Iterator[Op]:
    for _ in range(count):
        yield "aten::exp", [[64, 64]], ["float"], 0


def _readers_of_one(count: int) -> Iterator[Op]:
    """One tensor that all read, and that a product between takes as well."""
    yield "aten::relu", [[64, 64]], ["float"], 0
    for number in range(count // 2):
        yield "aten::mm", [[64, 64], [64, 64 + number % 5]], ["float", "float"], 0
        yield "aten::mul", [[64, 64], [64, 1]], ["float", "float"], 0


def _siblings(count: int) -> Iterator[Op]:
    for number in range(count):
        yield "aten::exp", [[64, 1 + number % 700]], ["float"], 0


def _lists(count: int) -> Iterator[Op]:
    for _ in range(count // 50):
        yield "aten::_foreach_add_", [[[64]] * 200, [[64]] * 200, []], ["TensorList", "TensorList", "Scalar"], 0


def _nested(count: int) -> Iterator[Op]:
    for number in range(count):
        yield "my::module", [], [], number % 900
    yield "aten::exp", [[64]], ["float"], 0


def _threads(count: int) -> Iterator[Op]:
    yield from _pointwise_chain(count)


def _timeline(ops: Iterator[Op], threads: int = 1) -> Timeline:
    trace = Trace()
    around: list[dict[str, Any]] = []
    for at, (name, shapes, dtypes, level) in enumerate(ops):
        del around[level:]
        op = trace.op(
            name,
            at * 10,
            8,
            shapes=shapes,
            dtypes=dtypes,
            tid=1 + at % threads,
            parent_row=around[-1] if around else None,
        )
        around.append(op)
        trace.kernel("k", at * 10 + 5, 4, op=op)
    return trace.timeline()


@pytest.mark.parametrize(
    ("ops", "count", "threads"),
    [
        (_pointwise_chain, 5_000, 1),
        (_readers_of_one, 5_000, 1),
        (_siblings, 5_000, 1),
        (_lists, 1_000, 1),
        (_nested, 5_000, 1),
        (_threads, 5_000, 5_000),
    ],
)
def test_dataflow_and_groups_take_time_that_grows_with_their_number(
    ops: Callable[[int], Iterator[Op]], count: int, threads: int
) -> None:
    timeline = _timeline(ops(count), threads)
    began = time.process_time()
    groups(flow(timeline))
    # A hundred thousand in 5 s is what is promised; what grows with the square of it is far beyond.
    assert time.process_time() - began < 20 * 5 * count / 100_000 + 2
