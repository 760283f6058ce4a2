"""What collectives of several ranks are there for, by the operators around them and by those that read them."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from tracemine.columns import codes
from tracemine.columns import numbers as integers
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, coded, rows_of, take
from tracemine.rows.table import BoolArray, Categories, IntArray
from tracemine.timeline import Timeline

PARTS = ("bucket_copy", "buffers", "buffer_copy", "statistics", "sliced")
_C10D, _FUNCTIONAL, _WAITS = "c10d::", "_c10d_functional::", ("_c10d_functional::wait_tensor",)
_RECORDED = "record_param_comms"
_FORWARD, _FLATTEN = "DistributedDataParallel.forward", "aten::flatten_dense_tensors"
_COPIED_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
_NEAR, _FAR = 8, 32  # activities between the statistics of a batch norm, what is sent of them, and what uses that
_STATISTICS = ("aten::batch_norm_stats", "aten::batch_norm_backward_reduce")
_OF_STATISTICS = (
    "aten::batch_norm_gather_stats_with_counts", "aten::batch_norm_gather_stats", "aten::batch_norm_backward_elemt",
)  # fmt: skip
_SLICES = ("aten::slice", "aten::narrow")
_VIEWS = ("aten::detach", "aten::alias", "detach", *_WAITS, *_SLICES)
_LOOKED_AT = 400  # operators behind an all-reduce
_SHAPES = msgspec.json.Decoder(list[object])
Shape = tuple[int, ...]


def parts_of(timeline: Timeline, rows: IntArray, kind: Categories, group_size: IntArray) -> Categories:
    """Return what each activity is there for: buckets that are copied back, buffers that are sent, statistics, sums
    of which a slice is read.

    rows: collectives among the activities. kind, group_size: of all activities.
    """
    names, op_row = categories(timeline.ops["name"]), rows_of(timeline.activities["op_row"])
    parent = rows_of(timeline.ops["parent_row"])
    above = taken(parent, op_row)
    part = np.full(len(op_row), -1, np.int64)

    def is_of(at: IntArray, wanted: str) -> BoolArray:
        return np.append(names.among(wanted), False)[at]

    part[is_of(above, _COPIED_BACK)] = 0
    if len(rows):
        caller = caller_of(timeline, rows)
        broadcast = np.zeros(len(op_row), np.bool_)
        broadcast[rows] = is_of(taken(parent, caller), _FORWARD) & kind.among("broadcast")[rows]
        part[broadcast] = 1
        if broadcast.any():
            part[is_of(above, _FLATTEN) & is_of(taken(parent, above), _FORWARD)] = 1
            part[is_of(above, _FORWARD) & is_of(op_row, "aten::copy_")] = 2
        part[rows[_between_statistics(take(names, op_row), rows)]] = 3
        reduced = rows[kind.among("all_reduce")[rows] & (part[rows] < 0)]
        part[reduced[_sliced(timeline, reduced, group_size[reduced])]] = 4
    return coded(PARTS, part)


def caller_of(timeline: Timeline, rows: IntArray) -> IntArray:
    """Return the nearest `c10d` operator around each activity, a row of `ops`; -1: none near."""
    return range_around(timeline, rows_of(timeline.activities["op_row"])[rows], (_C10D,), levels=3)


def range_around(timeline: Timeline, ops: IntArray, begins: tuple[str, ...], levels: int) -> IntArray:
    """Return the nearest range whose name begins so, each operator itself or at most so far above it; -1: none."""
    parent, at = rows_of(timeline.ops["parent_row"]), ops
    is_so = np.append(categories(timeline.ops["name"]).that(lambda name: name.startswith(begins)), False)
    for _ in range(levels):
        at = np.where(is_so[at], at, taken(parent, at))
    return np.where(is_so[at], at, -1)


def shapes_in(text: str | None, most: int | None = None) -> list[Shape]:
    """Return the shapes of tensors in a list of inputs as recorded, lists of tensors one by one. most: of inputs.

    >>> shapes_in("[[[2,3],[4]],[],[5,6]]"), shapes_in("[[2,"), shapes_in(None), shapes_in("[[2,3],[4]]", 1)
    ([(2, 3), (4,), (5, 6)], [], [], [(2, 3)])
    """
    try:
        given = _SHAPES.decode(text or "[]")[:most]
    except (msgspec.DecodeError, RecursionError):
        return []
    flat = [each for one in given if isinstance(one, list) for each in (one if one and _is_list(one[0]) else [one])]
    return [tuple(each) for each in flat if isinstance(each, list) and each and all(map(_is_int, each))]


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _between_statistics(op: Categories, rows: IntArray) -> BoolArray:
    """Return which collectives lie between the kernels of a batch norm that make statistics and that use them."""
    makes, uses = np.flatnonzero(op.among(*_STATISTICS)), np.flatnonzero(op.among(*_OF_STATISTICS))
    before = np.append(makes, -_NEAR - 1)[np.searchsorted(makes, rows) - 1]
    made, used = (np.append(each, np.iinfo(np.int64).max)[np.searchsorted(each, rows)] for each in (makes, uses))
    between: BoolArray = (rows - before <= _NEAR) & (used - rows <= _FAR) & (used < made) & (before >= 0)
    return between


def _sliced(timeline: Timeline, rows: IntArray, size: IntArray) -> BoolArray:
    """Return of which all-reduces one slice is all that is read, as long as a rank's part: a reduce-scatter gives it.

    By recorded shapes alone: up to the next collective of the thread nothing has the sum's shape but one slice, and
    something has the part's. size: of each one's group.
    """
    names, record = categories(timeline.ops["name"]), rows_of(timeline.activities["op_row"])[rows]
    found, cut = np.zeros(len(rows), np.bool_), np.flatnonzero(names.among(*_SLICES))
    if not len(rows) or not len(cut):
        return found
    behind = _Behind(timeline, names)
    of_cut = {shapes[0] for code in np.unique(behind.text.codes[cut]).tolist() if (shapes := behind.of_code(code))}
    for at, (row, ranks) in enumerate(zip(record.tolist(), size.tolist(), strict=True)):
        own = behind.of_code(int(behind.text.codes[row])) if row >= 0 else []
        if len(own) == 1 and own[0] in of_cut and ranks > 1 and math.prod(own[0]) >= ranks:
            found[at] = behind.one_part_is_read(row, own[0], ranks)
    return found


class _Behind:
    """The operators of each thread in order, and what they read."""

    def __init__(self, timeline: Timeline, names: Categories) -> None:
        ops = timeline.ops
        self.names, self.text = names, categories(ops["input_shapes"])
        self.parent = rows_of(ops["parent_row"])
        self.thread = codes(integers(ops["pid"], -1), integers(ops["tid"], -1))
        self.order = np.argsort(self.thread, kind="stable")
        self.place = np.empty(len(self.thread), np.int64)
        self.place[self.order] = np.arange(len(self.thread))
        self.decoded: dict[int, list[Shape]] = {-1: []}

    def of_code(self, code: int) -> list[Shape]:
        """Return the shapes of a recorded text."""
        if code not in self.decoded:
            self.decoded[code] = shapes_in(self.text.values[code])
        return self.decoded[code]

    def one_part_is_read(self, record: int, whole: Shape, ranks: int) -> bool:
        """Return whether of what a call sums one slice is read alone, before the next collective of its thread."""
        lengths = [(axis, length // ranks) for axis, length in enumerate(whole) if length % ranks == 0]
        parts = {(*whole[:axis], part, *whole[axis + 1 :]) for axis, part in lengths}
        slices: set[int] = set()
        is_read = False
        for row in self._until_next(record):
            name, has = self.names.values[self.names.codes[row]], self.of_code(int(self.text.codes[row]))
            if whole in has and name not in _VIEWS:
                return False
            if whole in has and name in _SLICES:
                slices.add(self._outermost_slice(row))
            is_read = is_read or (bool(slices) and name not in _VIEWS and not parts.isdisjoint(has))
        return is_read and len(slices) == 1

    def _until_next(self, record: int) -> list[int]:
        """Return the operators of a thread behind a call up to its next collective; none where that is far or none."""
        begin = int(self.place[record]) + 1
        rows: list[int] = self.order[begin : begin + _LOOKED_AT].tolist()
        for at, row in enumerate(rows):
            name = self.names.values[self.names.codes[row]]
            if self.thread[row] != self.thread[record]:
                break
            if name == _RECORDED or (name.startswith((_C10D, _FUNCTIONAL)) and name not in _WAITS):
                return rows[:at]
        return []

    def _outermost_slice(self, row: int) -> int:
        """Return the row of the slice that this one is a part of: `narrow` calls `slice`."""
        above = int(self.parent[row])
        return above if above >= 0 and self.names.values[self.names.codes[above]] in _SLICES else row
