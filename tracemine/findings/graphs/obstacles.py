"""Where in the program something is that a graph does not take: waits, copies, randomness, optimizers …"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique
from tracemine.host.waits import WAITS, Waits, for_the_device
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import LOADS, named
from tracemine.rows.table import BoolArray, IntArray, Rows, category, flags
from tracemine.timeline import Timeline

WHOLE_DEVICE: Final = "the device"  # of waits: what for
_RELEASES: Final = deferred(r"^(cuda|hip)Free(_ptds)?$|^cuMemFree(_v2)?$")
_RANDOM: Final = deferred(
    r"^aten::(rand|randn|randint|randperm|rand_like|randn_like|bernoulli_?|uniform_|normal_?|random_|multinomial|exponential_)$"
)
_CALLS_BACKWARD: Final = deferred(
    r"torch[/\\](_tensor\.py\(\d+\): backward|autograd[/\\]__init__\.py\(\d+\): (backward|grad))$"
)
_OF_TORCH: Final = deferred(
    r"^(aten|prims?|torch\w*|_?c10d\w*|autograd|inductor|quantized|profiler|rngprims|higher_order|symm_mem|mkldnn|onednn)$"
)
# Their step() looks whether a graph is being captured, and raises where they were not made for it.
CHECKED: Final = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "ASGD", "Adadelta", "RMSprop", "Rprop")
# What these do on the device alone where their count of steps is a tensor there.
_CAPTURABLE: Final = deferred(r"^aten::(_foreach_pow|pow)$")
_RECORDERS: Final = deferred(r"(^|[/\\])(tracemine[/\\]recording|torch[/\\]profiler)([/\\]|\.py)")


class Obstacles(Struct, frozen=True):
    """Obstacles, an entry each time, in no order; rows are −1 where not known."""

    kind: tuple[str, ...]  # of each entry's code
    what: tuple[str, ...]  # and what its words name
    code: IntArray
    begin_ns: IntArray  # of the host
    stack_row: IntArray
    op_row: IntArray

    def of(self, chosen: BoolArray) -> Obstacles:
        """Return some of them."""
        columns = (self.code, self.begin_ns, self.stack_row, self.op_row)
        return Obstacles(self.kind, self.what, *(column[chosen] for column in columns))


def find_obstacles(timeline: Timeline, activities: Rows, waits: Waits) -> Obstacles:
    """Return what stands in the way of graphs, but for what depends on which calls are looked at."""
    parts = [*_waits(timeline, waits), *_of_activities(timeline, activities), *_of_operators(timeline, activities)]
    releases = named(categories(timeline.api["name"]), _RELEASES)
    parts.append(_of_calls(timeline, "released", np.flatnonzero(releases)))
    parts = [part for part in parts if len(part.code)]
    columns = [
        np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
        for name in ("begin_ns", "stack_row", "op_row")
    ]
    code = np.repeat(np.arange(len(parts)), [len(part.code) for part in parts])
    kinds, whats = (tuple(name for part in parts for name in getattr(part, of)) for of in ("kind", "what"))
    found = Obstacles(kinds, whats, code, *columns)
    return found.of(~_of_recorder(timeline, found.stack_row))


def _some(kind: str, begin_ns: IntArray, stack_row: IntArray, op_row: IntArray, what: str = "") -> Obstacles:
    """Return obstacles of one kind: by operator, or by call with the operator around it."""
    return Obstacles((kind,), (what,), np.zeros(len(begin_ns), np.int64), begin_ns, stack_row, op_row)


def _of_recorder(timeline: Timeline, stack_row: IntArray) -> BoolArray:
    stacks = timeline.stacks
    own = nearest(rows_of(stacks["parent_row"]), categories(stacks["file"]).that(_RECORDERS.search))
    # A recorder that runs the program's steps is around all of it: its own calls have no line of the program's below.
    user = nearest(rows_of(stacks["parent_row"]), categories(stacks["file"]).that(_not_recorders))
    recorder: BoolArray = taken(own, stack_row) > taken(user, stack_row)
    return recorder


def _not_recorders(file: str) -> bool:
    return not _RECORDERS.search(file) and not re.search(r"(^|[/\\])torch[/\\]", file)


def _waits(timeline: Timeline, waits: Waits) -> Iterator[Obstacles]:
    whole = for_the_device(timeline, waits)
    for number in sorted_unique(waits.kind).tolist():
        for what, chosen in (("", ~whole), (WHOLE_DEVICE, whole)):
            rows = chosen & (waits.kind == number)
            yield _some(WAITS[number], waits.begin_ns[rows], waits.stack_row[rows], waits.op_row[rows], what)


def _of_calls(timeline: Timeline, kind: str, rows: IntArray, what: str = "") -> Obstacles:
    api = timeline.api
    begin, stack, op = (rows_of(api[name])[rows] for name in ("start_ns", "stack_row", "op_row"))
    return _some(kind, begin, stack, op, what)


def _of_ops(timeline: Timeline, kind: str, rows: IntArray, what: str = "") -> Obstacles:
    ops = timeline.ops
    return _some(kind, rows_of(ops["start_ns"])[rows], rows_of(ops["stack_row"])[rows], rows, what)


def _of_activities(timeline: Timeline, activities: Rows) -> Iterator[Obstacles]:
    """Yield what shows in what the device did: copies, collectives, graphs' nodes, optimizers' steps."""
    table = timeline.activities
    launch = rows_of(table["launch_row"])
    pinned = category(activities, "source_memory").among("pinned") & category(activities, "copy_kind").among("HtoD")
    collective = categories(table["collective"]).codes >= 0
    for kind, rows in (("pinned_copy", pinned), ("collective", collective), ("replayed", flags(activities, "graph"))):
        yield _of_calls(timeline, kind, sorted_unique(launch[rows & (launch >= 0)]))
    optimizer = category(activities, "optimizer")
    capturable = named(categories(timeline.ops["name"]), _CAPTURABLE)
    made_for_it = set(optimizer.codes[np.append(capturable, False)[rows_of(table["op_row"])]].tolist())
    for at, name in enumerate(optimizer.values):
        if name in CHECKED and at not in made_for_it:
            calls = launch[(optimizer.codes == at) & (launch >= 0)]
            yield _of_calls(timeline, "optimizer", sorted_unique(calls), name)


def _of_operators(timeline: Timeline, activities: Rows) -> Iterator[Obstacles]:
    """Yield what shows in what the host called: operators that are not torch's own, randomness, backward passes."""
    ops = timeline.ops
    names, parent = categories(ops["name"]), rows_of(ops["parent_row"])
    launching = np.zeros(ops.num_rows + 1, np.bool_)
    launching[rows_of(timeline.activities["op_row"])] = True
    of_device = np.zeros(ops.num_rows, np.bool_)
    above = np.flatnonzero(launching[:-1])
    while len(above):  # what an operator launches, those around it launch
        of_device[above] = True
        above = sorted_unique(parent[above])
        above = above[(above >= 0)]
        above = above[~of_device[above]]
    yield _of_ops(timeline, "loading", np.flatnonzero(named(names, LOADS)))
    random = named(names, _RANDOM)
    inner = taken(nearest(parent, random), parent) >= 0
    yield _of_ops(timeline, "cpu_random", np.flatnonzero(random & ~inner & ~of_device))
    is_op = categories(ops["kind"]).among("op")
    for at, name in enumerate(names.values):
        space, joint, _ = name.partition("::")
        if joint and space.isidentifier() and not _OF_TORCH.search(space):
            rows = np.flatnonzero((names.codes == at) & is_op & of_device)
            yield _of_ops(timeline, "custom", rows, name)
    stacks = timeline.stacks
    calls = nearest(rows_of(stacks["parent_row"]), categories(stacks["frame"]).that(_CALLS_BACKWARD.search))
    yield _of_ops(timeline, "backward", np.flatnonzero(taken(calls, rows_of(ops["stack_row"])) >= 0))
