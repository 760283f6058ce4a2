"""What the value that a wait fetches is used for, inferred from what the program does after it in different steps."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, Literal, get_args

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.host.waits import WAITS, Waits
from tracemine.patterns import deferred
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

Use = Literal[
    "mask",  # rows are chosen by it
    "size",  # later operators have other shapes
    "loop",  # it decides how often a loop runs
    "branch",  # it decides which operators run
    "argument",  # later operators have another number as an argument
    "log",  # nothing that is recorded depends on it
    "to_host",
    "from_list",
    "made",
    "from_host",
    "synchronize",
    "check",  # whether an operator raises an error
]
USES: Final[tuple[Use, ...]] = get_args(Use)
_OF_KIND: Final[dict[str, Use]] = {
    "print": "log",
    "mask": "mask",
    "truth": "branch",
    "check": "check",
    "to_host": "to_host",
    "from_list": "from_list",
    "made": "made",
    "from_host": "from_host",
    "synchronize": "synchronize",
}
_AFTER, _BEFORE = 48, 16  # operators that are compared
_RIGHT_BEHIND = 2  # operators that may take the number itself
_NUMBER = deferred(r"\"(double|long int|bool|Scalar)\"")  # among the recorded types of what an operator takes
_MOST_STEPS = 8
_MOST_WAITS = 64  # of a line that are looked at, whether the next operators may take the number
_DIFFERENCES: Final[tuple[Use, ...]] = ("branch", "size", "argument")  # of names, shapes, numbers

_LONG_NS = 200_000  # from so long on a function that lasted through it is recorded
_MOST_ROUNDS = 20_000


def uses_of(timeline: Timeline, waits: Waits, begin_ns: IntArray, thread: IntArray) -> IntArray:
    """Return the position in USES of each wait's use; −1: it is not known. begin_ns: of each step, in order. thread: of
    each row of `ops`.

    Numbers are inferred from what differs between steps behind a wait of one line and not before it. One that the next
    operator may take as an argument is not known where that argument is not recorded.
    """
    use = np.array([USES.index(_OF_KIND[kind]) if kind in _OF_KIND else -1 for kind in WAITS])[waits.kind]
    asked = np.flatnonzero(np.isin(waits.kind, [WAITS.index("number"), WAITS.index("truth")]))
    if not len(asked) or not len(begin_ns):
        return use
    step = np.searchsorted(begin_ns, waits.begin_ns, side="right") - 1
    called = _Called(timeline, begin_ns, thread)
    names = categories(timeline.ops["name"]).codes
    lines: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at in asked.tolist():
        if step[at] >= 0:
            op = int(waits.op_row[at])
            lines[int(waits.stack_row[at]), int(names[op]) if op >= 0 else -1].append(at)
    for rows in lines.values():
        found = _use_of_number(waits, np.array(rows), step[rows], called, len(begin_ns))
        by_truth = waits.kind[rows[0]] == WAITS.index("truth")
        if found is not None and (not by_truth or found == "loop"):
            use[rows] = USES.index(found)
    return use


class _Called:
    """Outermost operators of each thread in order of time: what each is called with, as codes."""

    def __init__(self, timeline: Timeline, begin_ns: IntArray, thread: IntArray) -> None:
        ops = timeline.ops
        above, is_op = rows_of(ops["parent_row"]), categories(ops["kind"]).among("op")
        top = np.flatnonzero(is_op & ((above < 0) | ~np.append(is_op, False)[above]))
        begin = rows_of(ops["start_ns"]).astype(np.int64)
        self._step = np.searchsorted(begin_ns, begin[top], side="right")
        self.begin, self.thread = begin[top], thread[top]
        columns = ("name", "input_shapes", "concrete_inputs")
        self.takes_number = categories(ops["input_dtypes"]).that(_NUMBER.search)[top]
        self.codes = np.stack([categories(ops[name]).codes[top].astype(np.int64) for name in columns])

    def around(self, thread: int, moment: int, until: int) -> tuple[IntArray, IntArray]:
        """Return the operators before a moment, the last first, and after it, of the same step."""
        own = np.flatnonzero(self.thread == thread)
        at = int(np.searchsorted(self.begin[own], moment, side="right"))
        after = own[at : at + _AFTER]
        after = after[self.begin[after] < until]
        if len(after):
            after = after[self._step[after] == self._step[after[0]]]
        before = own[max(at - 1 - _BEFORE, 0) : max(at - 1, 0)][::-1]  # without the wait's own
        return before, after


def _use_of_number(waits: Waits, rows: IntArray, step: IntArray, called: _Called, steps: int) -> Use | None:
    """Return what a number is used for that one line asks for; None: that is not known."""
    counts = np.bincount(step)[sorted_unique(step)]
    whole = counts[:-1] if len(counts) > 2 else counts  # the last step may be cut
    if whole.min() != whole.max() and whole.max() > 1:
        return "loop"
    firsts = [rows[np.flatnonzero(step == each)[0]] for each in sorted_unique(step)[:_MOST_STEPS]]
    if len(firsts) < 2:
        return None
    around = [called.around(int(waits.thread[at]), int(waits.end_ns[at]), _next(waits, rows, at)) for at in firsts]
    if _differ([called.codes[:2, before] for before, _ in around]) is not None:
        return None
    differing = _differ([called.codes[:, after] for _, after in around])
    if differing is not None:
        return _DIFFERENCES[differing]
    return None if _taken(waits, rows, called) else "log"


def _taken(waits: Waits, rows: IntArray, called: _Called) -> bool:
    """Return whether an operator right behind one of a line's waits may take the number itself."""
    for at in rows[:_MOST_WAITS].tolist():
        _, after = called.around(int(waits.thread[at]), int(waits.end_ns[at]), _next(waits, rows, at))
        if called.takes_number[after[:_RIGHT_BEHIND]].any():
            return True
    return False


def _next(waits: Waits, rows: IntArray, at: int) -> int:
    later = rows[waits.begin_ns[rows] > waits.begin_ns[at]]
    return int(waits.begin_ns[later[0]]) if len(later) else np.iinfo(np.int64).max


def _differ(codes: list[IntArray]) -> int | None:
    """Return the first of the rows of codes in which they differ, as far as the shortest goes; None: in none."""
    count = min(each.shape[1] for each in codes)
    for row in range(len(codes[0])):
        if any((each[row, :count] != codes[0][row, :count]).any() for each in codes[1:]):
            return row
    return None


def shared_path(parent: IntArray, one: IntArray, other: IntArray) -> IntArray:
    """Return the innermost call path that holds both, of each pair; of one that is not known, the other. −1: none.

    >>> shared_path(np.array([-1, 0, 0]), np.array([1, -1]), np.array([2, 2])).tolist()
    [0, 2]
    """
    one, other = np.where(one >= 0, one, other), np.where(other >= 0, other, one)
    apart = np.flatnonzero(one != other)
    for _ in range(_MOST_ROUNDS):  # callers stand before callees: the later one is no caller of the other
        if not len(apart):
            break
        late, early = np.maximum(one[apart], other[apart]), np.minimum(one[apart], other[apart])
        up = taken(parent, late)
        one[apart], other[apart] = np.where(up < late, up, -1), early
        apart = apart[one[apart] != other[apart]]
        lost = (one[apart] < 0) | (other[apart] < 0)
        one[apart[lost]] = other[apart[lost]] = -1
        apart = apart[~lost]
    return one


def lasting_path(
    timeline: Timeline, thread_of_calls: IntArray, thread: IntArray, begin: IntArray, end: IntArray
) -> IntArray:
    """Return the function that lasted through most of each interval that ends before a late launch; −1: none is known.

    That is recorded of what had the device wait for 200 µs and longer.
    """
    api = timeline.api
    lasting = rows_of(api["before_stack_row"])
    paths = np.full(len(begin), -1, np.int64)
    rows = np.flatnonzero(lasting >= 0)
    asked = np.flatnonzero(end - begin >= _LONG_NS)
    if not len(rows) or not len(asked):
        return paths
    called = rows_of(api["start_ns"]).astype(np.int64)
    rows = rows[np.argsort(called[rows], kind="stable")]
    for at in asked.tolist():  # few: a device waited for each
        place = int(np.searchsorted(called[rows], end[at]))
        near = rows[place : place + 8]
        near = near[(thread_of_calls[near] == thread[at]) & (called[near] - end[at] < end[at] - begin[at])]
        if len(near):
            paths[at] = lasting[near[0]]
    return paths
