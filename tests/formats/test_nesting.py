"""The innermost interval around something is the last in time order that starts no later and ends no earlier."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.formats.kineto import nesting
from tracemine.formats.kineto.nesting import Nesting, time_order
from tracemine.formats.kineto.stacks import call_paths

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Interval:
    start: int
    end: int
    thread: int


def _nested(first: int, last: int, depth: int) -> st.SearchStrategy[list[Interval]]:
    """Properly nested intervals within [first, last]; neighbours may share an end, and any may last 0."""

    @st.composite
    def draw_all(draw: st.DrawFn) -> list[Interval]:
        intervals: list[Interval] = []
        at = first
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(at, last))
            end = draw(st.integers(start, last))
            intervals.append(Interval(start, end, 0))
            if depth:
                intervals += draw(_nested(start, end, depth - 1))
            at = end
        return intervals

    return draw_all()


_ANY = st.lists(
    st.builds(lambda s, d, t: Interval(s, s + d, t), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)),
    max_size=12,
)
_QUERIES = st.lists(
    st.builds(lambda s, d, t: Interval(s, s + d, t), st.integers(-1, 14), st.integers(0, 3), st.integers(0, 3)),
    max_size=8,
)


def _columns(intervals: list[Interval]) -> tuple[Array, Array, Array]:
    start = np.array([i.start for i in intervals], np.int64)
    end = np.array([i.end for i in intervals], np.int64)
    thread = np.array([i.thread for i in intervals], np.int32)
    order = time_order(start, -(end - start))
    return start[order], end[order], thread[order]


def _around(rows: Sequence[int], start: Array, end: Array, thread: Array, of: Interval) -> int:
    """The definition, word for word."""
    fits = (r for r in reversed(rows) if thread[r] == of.thread and start[r] <= of.start and end[r] >= of.end)
    return next(fits, -1)


def _check(intervals: list[Interval], queries: list[Interval]) -> None:
    start, end, thread = columns = _columns(intervals)
    nest = Nesting(*columns)
    own = [Interval(*(int(x) for x in row)) for row in zip(*columns, strict=True)]
    assert nest.parents().tolist() == [_around(range(row), *columns, own[row]) for row in range(len(own))]
    starts, ends, threads = (
        np.array([getattr(q, name) for q in queries], np.int64) for name in ("start", "end", "thread")
    )
    assert nest.innermost(starts, ends, threads).tolist() == [
        _around(range(len(start)), start, end, thread, q) for q in queries
    ]
    for every in (2, 3):
        only = np.arange(len(start)) % every == 0
        flagged = np.flatnonzero(only).tolist()
        expected = [_around(flagged, start, end, thread, q) for q in queries]
        assert nest.innermost(starts, ends, threads, only=only).tolist() == expected


@given(intervals=_nested(0, 12, 3), queries=_QUERIES)
def test_nested_intervals_with_shared_ends_and_zero_durations(
    intervals: list[Interval], queries: list[Interval]
) -> None:
    _check(intervals, queries)


@given(intervals=_ANY, queries=_QUERIES)
def test_intervals_of_several_threads_that_need_not_nest(intervals: list[Interval], queries: list[Interval]) -> None:
    _check(intervals, queries)


@given(intervals=_nested(0, 40, 3), moment=st.integers(0, 40))
def test_of_properly_nested_intervals_the_innermost_is_a_shortest_around_the_moment(
    intervals: list[Interval], moment: int
) -> None:
    inside = [i for i in intervals if i.start < moment < i.end]
    start, end, thread = _columns(intervals)
    at = np.array([moment])
    (row,) = Nesting(start, end, thread).innermost(at, at, np.array([0])).tolist()
    touching = any(moment in (i.start, i.end) for i in intervals)
    if not touching:
        assert (row < 0) == (not inside)
        assert row < 0 or end[row] - start[row] == min(i.end - i.start for i in inside)


def test_a_deep_nest_and_a_long_row_of_siblings_are_nested_right() -> None:
    depth = 3000
    start, end = np.arange(depth), 10 * depth - np.arange(depth)
    assert Nesting(start, end, np.zeros(depth, np.int32)).parents().tolist() == list(range(-1, depth - 1))
    start = np.arange(0, 20_000, 2)
    start, end = np.append(0, start), np.append(30_000, start + 1)
    assert set(Nesting(start, end, np.zeros(len(start), np.int32)).parents()[1:].tolist()) == {0}


@given(intervals=_ANY, queries=_QUERIES)
def test_the_way_out_for_deep_nests_gives_the_same_answers(intervals: list[Interval], queries: list[Interval]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "ROUNDS", 1)
        _check(intervals, queries)


def test_a_hundred_thousand_calls_after_a_deep_nest_cost_no_square() -> None:
    depth, calls = 50_000, 100_000
    start = np.append(np.arange(depth), 3 * depth + 2 * np.arange(calls))
    end = np.append(3 * depth - np.arange(depth), start[depth:] + 1)
    threads = np.zeros(len(start), np.int32)
    began = time.process_time()
    nest = Nesting(start, end, threads)
    assert set(nest.parents()[depth + 1 :].tolist()) == {-1}
    asked = np.arange(1, calls) * 2 + 3 * depth - 1
    assert set(nest.innermost(asked, asked + 1, threads[: len(asked)]).tolist()) == {-1}
    assert time.process_time() - began < 5


def test_more_threads_than_16_bits_count_are_kept_apart() -> None:
    thread = np.array([70_000, 3, 70_000, 3])
    nest = Nesting(np.array([0, 0, 1, 1]), np.array([9, 5, 6, 3]), thread)
    assert nest.parents().tolist() == [-1, -1, 0, 1]


def test_equal_intervals_nest_by_the_profilers_numbering() -> None:
    start, dur, number = np.array([5, 5, 5]), np.array([2, 2, 3]), np.array([9, 8, 7])
    assert time_order(start, -dur, number).tolist() == [2, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 5)), max_size=12))
def test_time_order_is_a_stable_sort_by_all_its_keys(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 3
    assert time_order(*keys).tolist() == sorted(range(len(rows)), key=lambda row: rows[row])


@given(st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 2)), max_size=30))
def test_call_paths_are_one_row_a_distinct_path_callers_first(forest: list[tuple[int, int]]) -> None:
    parent = [p if p < row else -1 for row, (p, _) in enumerate(forest)]
    name = [n for _, n in forest]

    def spelled(row: int) -> tuple[int, ...]:
        return (*(spelled(parent[row]) if parent[row] >= 0 else ()), name[row])

    paths, path = call_paths(np.array(parent, np.int32), np.array(name, np.int32))
    above, frame = paths.parent.tolist(), paths.frame.tolist()

    def written(row: int) -> tuple[int, ...]:
        return (*(written(above[row]) if above[row] >= 0 else ()), frame[row])

    assert [written(row) for row in path.tolist()] == [spelled(row) for row in range(len(forest))]
    assert len({written(row) for row in range(len(frame))}) == len(frame)
    assert all(a < row for row, a in enumerate(above))
