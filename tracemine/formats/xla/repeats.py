"""What repeats: launches of one graph, executions of one module. Equal ones are looked at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.columns import Array, ranges

_SHORT = 12  # rows: parts that are shorter are written out, which costs less than to keep them as parts


def equal_segments(code: Array, first: Array) -> tuple[Array, Array]:
    """Return for each segment of codes, which begin at `first`, the number of what it holds, and of each such number
    the first segment that holds it.

    >>> [each.tolist() for each in equal_segments(np.array([7, 8, 8, 7, 8]), np.array([0, 2, 3]))]
    [[0, 1, 0], [0, 1]]
    """
    raw, size, known = code.astype(np.int32).tobytes(), np.dtype(np.int32).itemsize, dict[bytes, int]()
    ends = [*(first * size).tolist(), len(raw)]
    number = np.array([known.setdefault(raw[at:end], len(known)) for at, end in pairwise(ends)], np.int32)
    return number, first_of(number)


def first_of(number: Array) -> Array:
    """Return for each number, of those without holes, the first entry that has it.

    >>> first_of(np.array([1, 0, 1])).tolist()
    [1, 0]
    """
    found = np.empty(int(number.max(initial=-1)) + 1, np.int64)
    found[number[::-1]] = np.arange(len(number))[::-1]
    return found


class EqualRuns(Struct, frozen=True):
    """Runs of instructions, of which those of equal executions are equal: the first ones are the examples."""

    execution: Array  # of each run
    offset: Array  # of each run in its execution
    order: Array  # the runs by execution
    begin: Array  # where each execution begins in that
    examples: Array  # runs, in order
    like: Array  # of each run, the example's position in `examples`

    @staticmethod
    def of(execution: Array, code: Array) -> EqualRuns:
        """Take the number of each run's execution, without holes, and a number of what it is."""
        order = np.argsort(execution, kind="stable").astype(np.int32)
        begin = np.searchsorted(execution[order], np.arange(int(execution.max(initial=-1)) + 1))
        offset = np.empty(len(order), np.int32)
        offset[order] = np.arange(len(order)) - begin[execution[order]] if len(order) else order
        number, example = equal_segments(code[order], begin)
        chosen = np.zeros(len(begin), np.bool_)
        chosen[example] = True
        is_example = chosen[execution] if len(order) else np.zeros(0, np.bool_)
        place = np.cumsum(is_example, dtype=np.int32) - 1
        like = place[order[begin[example[number[execution]]] + offset]] if len(order) else order
        return EqualRuns(execution, offset, order, begin, np.flatnonzero(is_example), like)

    def count_of(self, runs: Array) -> Array:
        """Return of each example how often it is among these runs, of which all are examples."""
        return np.bincount(np.searchsorted(self.examples, runs), minlength=len(self.examples))

    def same(self, run: Array, example: Array) -> Array:
        """Return of each run the one in its execution that equals an example."""
        found: Array = self.order[self.begin[self.execution[run]] + self.offset[example]]
        return found

    def begins(self, rows: Array) -> Array:
        """Return where the rows of each run begin, and behind the last; `rows`: how many each example has."""
        return np.append(0, np.cumsum(rows[self.like]))

    def rows(self, rows: Array, first: int = 0, last: int | None = None) -> tuple[Array, Array]:
        """Return of the rows of all runs, or of some, which run has them and which row of an example they equal."""
        like = self.like[first:last]
        count = rows[like]
        begin = np.cumsum(rows) - rows
        run = np.repeat(np.arange(first, first + len(like), dtype=np.int32), count)
        return run, ranges(begin[like], count)

    def spread(self, rows: Array, made: Callable[[Array], dict[str, pa.Array]]) -> dict[str, pa.ChunkedArray]:
        """Return columns of all runs' rows from those of examples: what lasts long shares the memory of its example."""
        heads = np.flatnonzero(np.diff(self.like, prepend=-2) != 1)
        begin = np.append(0, np.cumsum(rows))
        total = int(rows[self.like].sum())
        if total < _SHORT * len(heads) or total == begin[-1]:
            return {name: pa.chunked_array([column]) for name, column in made(self.rows(rows)[1]).items()}
        last = self.like[np.append(heads[1:], len(self.like)) - 1]
        parts = [*zip(begin[self.like[heads]].tolist(), begin[last + 1].tolist(), strict=True)]
        columns = {}
        for name, column in made(np.arange(int(begin[-1]))).items():
            cut = {part: column.slice(part[0], part[1] - part[0]) for part in dict.fromkeys(parts)}
            columns[name] = pa.chunked_array([cut[part] for part in parts], column.type)
        return columns
