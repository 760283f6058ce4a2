"""Forward operators that parts of a backward pass belong to, by sequence number, and the function that called them."""

from __future__ import annotations

import keyword
from collections import Counter
from functools import cached_property

import numpy as np

from tracemine.columns import numbers
from tracemine.findings.labels import sources
from tracemine.rows.ancestors import engine_of, taken
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline


class Forwards:
    """Forward operators by sequence number; looked at when the first is asked for."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    @cached_property
    def _nodes(self) -> tuple[IntArray, IntArray]:
        """The sequence number of each operator, and its node of autograd; −1: none."""
        return numbers(self._timeline.ops["sequence_number"], -1), engine_of(self._timeline)

    @cached_property
    def _last(self) -> tuple[IntArray, IntArray]:
        """Sequence numbers in order, and the last operator of each; those that two threads have are left out."""
        sequence, node = self._nodes
        thread = numbers(self._timeline.ops["tid"], -1)
        rows = np.flatnonzero((sequence >= 0) & (node < 0))
        rows = rows[np.argsort(sequence[rows], kind="stable")]
        begin = np.flatnonzero(np.diff(sequence[rows], prepend=-1))
        if not len(rows):
            return rows, rows
        least, most = (each.reduceat(thread[rows], begin) for each in (np.minimum, np.maximum))
        last = rows[np.append(begin[1:], len(rows)) - 1]
        return sequence[last][least == most], last[least == most]

    def of(self, op_rows: IntArray) -> IntArray:
        """Return the forward operator of each operator in a backward pass, −1: none is known."""
        sequence, node = self._nodes
        known, last = self._last
        wanted = taken(sequence, taken(node, op_rows))
        if not len(known):
            return np.full(len(op_rows), -1, np.int64)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where((wanted >= 0) & (known[at] == wanted), last[at], -1)

    def function(self, op_rows: IntArray) -> str | None:
        """Return the function outside of every module whose backward pass most of these are that are of such a pass.

        None: there is none, or it is not known. What is no plain name of Python, of a lambda or a file, is none.
        """
        backward = op_rows[taken(self._nodes[1], op_rows) >= 0]
        forward = self.of(backward)
        called = Counter(map(self._caller, forward[forward >= 0].tolist()))
        if not called:
            return None
        (function, count), *_ = called.most_common(1)
        return function if 2 * count > len(backward) else None

    def _caller(self, op_row: int) -> str | None:
        ops = self._timeline.ops
        if ops["module"][op_row].as_py() is not None:
            return None
        frames = sources(self._timeline, ops["stack_row"][op_row].as_py())
        name = frames[0].function if frames else ""
        return name if name.isascii() and name.isidentifier() and not keyword.iskeyword(name) else None
