"""What repeats is looked at once: equal segments, runs of equal executions, and numbers of memory."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tracemine.columns import Array
from tracemine.formats.xla.host import EqualRuns, equal_segments
from tracemine.formats.xla.storages import LASTING, numbered


def test_segments_of_the_same_in_another_order_are_not_equal() -> None:
    code, first = np.array([1, 2, 1, 2, 3, 4, 2, 1]), np.array([0, 2, 4, 5, 6])
    number, example = equal_segments(code, first)
    assert number.tolist() == [0, 0, 1, 2, 3]
    assert example.tolist() == [0, 2, 3, 4]


def spread(execution: list[int], code: list[int]) -> tuple[EqualRuns, dict[str, Array], pa.Table]:
    runs = EqualRuns.of(np.array(execution), np.array(code))
    rows = np.array(code)[runs.examples]  # so many rows as its code says
    run, like = runs.rows(rows)
    columns = runs.spread(
        rows, lambda row: {"row": pa.array(row), "text": pa.array(row.astype(str)).dictionary_encode()}
    )
    return runs, {"run": run, "like": like}, pa.table(columns)


@pytest.mark.parametrize("size", [3, 200])
def test_rows_of_equal_executions_are_those_of_the_first(size: int) -> None:
    one, other = [size, 0, 2], [1, size]
    runs, rows, table = spread([0, 1, 0, 1, 0, 2, 2, 2, 3, 3], [size, 1, 0, size, 2, *one, *other])  # two interleaved
    assert runs.examples.tolist() == [0, 1, 2, 3, 4]
    assert runs.like.tolist() == [0, 1, 2, 3, 4, 0, 2, 4, 1, 3]
    assert np.bincount(rows["run"]).tolist() == [size, 1, 0, size, 2, *one, *other]
    assert table["row"].to_pylist() == rows["like"].tolist()
    assert table["text"].to_pylist() == [str(row) for row in rows["like"].tolist()]
    assert runs.same(np.array([5, 9]), np.array([2, 1])).tolist() == [6, 8]


def test_what_lasts_long_shares_the_memory_of_its_example() -> None:
    _, _, table = spread([0, 0, 1, 1, 2, 2], [900, 100] * 3)
    first, second, third = (chunk.buffers()[1] for chunk in table["row"].chunks)
    assert first.address == second.address == third.address


def one_by_one(run: list[int], given: list[bool], last: list[int]) -> list[int]:
    """What `numbered` does, by a stack of what is free."""
    free, fresh, found = list[int](), 0, list[int]()
    ends: list[tuple[int, int, int]] = []
    for at, (now, gives, end) in enumerate(zip(run, given, last, strict=True)):
        free += [number for until, _, number in sorted(ends) if until < now]
        ends = [each for each in ends if each[0] >= now]
        number = free.pop() if free and gives else fresh
        fresh += number == fresh
        found.append(number)
        ends += [(end, at, number)] if end != LASTING else []
    return found


def test_memory_is_numbered_as_by_a_stack_of_what_is_free() -> None:
    for seed in range(100):
        chosen = random.Random(seed)
        run = np.array(sorted(chosen.randrange(60) for _ in range(seed * 2)), np.int32)
        given = np.array([chosen.random() < 0.8 for _ in run], np.bool_)
        ends = [at + chosen.randrange(9) if chosen.random() < 0.9 else LASTING for at in run.tolist()]
        last = np.where(given, ends, LASTING).astype(np.int32)
        assert numbered(run, given, last).tolist() == one_by_one(run.tolist(), given.tolist(), last.tolist())
