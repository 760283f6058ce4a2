"""What an iteration of a loop with a state computes: by its operators, and by what goes from where to where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique
from tracemine.rows.graph import NodeGraph
from tracemine.rows.loops import ProductLoop
from tracemine.rows.table import BoolArray, Categories, IntArray

CELLS: Final = ("LSTM", "GRU", "RNN")
KINDS: Final = (*CELLS, "scan", "cumsum", "cumprod", "cummax", "cummin", "linear")
PRODUCTS: Final = frozenset({"mm", "addmm", "_addmm_activation", "bmm", "baddbmm"})
_PASSES: Final = frozenset({"copy", "clone", "cat", "stack"})  # what only moves
_MANY: Final = (0, 10)
# Of each cell what gives its states, for how many gates products may be apart, and how often an iteration calls each
# operator, at least and at most; products and moves aside.
_Counts = dict[str, tuple[int, int]]
_OPERATORS: Final[tuple[tuple[str, str, int, _Counts], ...]] = (
    ("LSTM", "_thnn_fused_lstm_cell", 1, {"_thnn_fused_lstm_cell": (1, 1)}),
    ("GRU", "_thnn_fused_gru_cell", 1, {"_thnn_fused_gru_cell": (1, 1)}),
    ("LSTM", "mul add", 4, {"sigmoid": (1, 3), "tanh": (2, 2), "mul": (3, 3), "add": _MANY}),
    ("LSTM", "mul addcmul", 4, {"sigmoid": (1, 3), "tanh": (2, 2), "mul": (2, 2), "addcmul": (1, 1), "add": _MANY}),
    ("GRU", "add", 3, {"sigmoid": (1, 2), "tanh": (1, 1), "mul": (2, 3), "add": _MANY, "sub": (0, 1), "rsub": (0, 1)}),
    ("GRU", "lerp", 3, {"sigmoid": (1, 2), "tanh": (1, 1), "mul": (1, 1), "lerp": (1, 1), "add": _MANY}),
    ("RNN", "tanh", 1, {"tanh": (1, 1), "add": _MANY}),
    ("RNN", "relu", 1, {"relu": (1, 1), "add": _MANY}),
    ("RNN", "clamp_min", 1, {"clamp_min": (1, 1), "add": _MANY}),
)
_LINEAR: Final = frozenset({"mul", "add", "sub", "addcmul"})  # of a state and of what does not depend on it
_SUMS: Final = frozenset({"add", "sub", "rsub", "neg", *_PASSES})  # linear in all that they take
_TIMES: Final = frozenset({"mm", "bmm", "mul"})  # linear in one of what they take
_ALONE: Final = {"add": "cumsum", "mul": "cumprod", "maximum": "cummax", "minimum": "cummin"}
_READ_SHARE: Final = 0.8  # of iterations whose state something else reads


class Turn(Struct, frozen=True):
    """An iteration: its operations, and its edges, each from a writer to a reader so many iterations later."""

    loop: ProductLoop
    operations: Sequence[str]
    reader: IntArray
    writer: IntArray
    later: IntArray

    @classmethod
    def of(cls, graph: NodeGraph, loop: ProductLoop, operation: Categories) -> Turn:
        """Return the iteration of a loop: what all of them have in common, the first and the last aside."""
        code = operation.codes[graph.first_activity[loop.begin : loop.begin + loop.period]].tolist()
        operations = ["" if at < 0 else operation.values[at] for at in code]
        span = slice(*np.searchsorted(graph.consumer, [loop.begin, loop.end]).tolist())
        reader, writer = graph.consumer[span] - loop.begin, graph.producer[span] - loop.begin
        inside = writer >= 0
        reader, writer = reader[inside], writer[inside]
        period = loop.period
        edges = np.stack([reader % period, writer % period, reader // period - writer // period], axis=1)
        edges, count = np.unique(edges, axis=0, return_counts=True)
        usual = edges[2 * count > (loop.end - loop.begin) // period]
        return cls(loop, operations, usual[:, 0], usual[:, 1], usual[:, 2])

    def carried(self) -> BoolArray:
        """Return which operators lie on a way from one iteration's state to the next one's."""
        leads = np.zeros(self.loop.period, np.bool_)
        leads[self.writer[self.later > 0]] = True
        within = self.later == 0
        for _ in range(self.loop.period):
            leads[self.writer[within & leads[self.reader]]] = True
        carried: BoolArray = leads & ~self.loop.own
        return carried


def kind_of(graph: NodeGraph, turn: Turn) -> str | None:
    """Return which of KINDS an iteration is of; None: of none, or it is not known."""
    return _cell(graph, turn) or _scan(graph, turn) or _linear(graph, turn)


def _cell(graph: NodeGraph, turn: Turn) -> str | None:
    """Return the library's layer whose cell an iteration is: its operators and no others, and every product of the
    state takes it as the iteration before left it, with one weight.
    """
    own, operations = turn.loop.own, turn.operations
    product = np.array([each in PRODUCTS for each in operations])
    passes = np.array([each in _PASSES for each in operations])
    dependent = np.flatnonzero(product & ~own)
    same_turn = turn.later == 0
    computed = ~passes & ~own
    if not len(dependent) or (computed[turn.writer] & product[turn.reader] & ~own[turn.reader] & same_turn).any():
        return None
    if not all(one_weight(graph, turn.loop, slot) for slot in dependent.tolist()):
        return None
    called = Counter(each for each, skip in zip(operations, product | passes, strict=True) if not skip)
    given = {operations[int(slot)] for slot in turn.writer[turn.later > 0].tolist()} - _PASSES
    for layer, states, gates, counts in _OPERATORS:
        fits = given <= set(states.split()) and called.keys() <= counts.keys()
        fits = fits and all(low <= called[each] <= high for each, (low, high) in counts.items())
        if fits and max(len(dependent), int((product & own).sum())) <= gates:
            return layer
    return None


def _scan(graph: NodeGraph, turn: Turn) -> str | None:
    """Return the scan that an iteration is: its state is scaled and added to by what does not depend on it, differs
    from one iteration to the next, and is read by others in between.
    """
    carried = turn.carried()
    slots = np.flatnonzero(carried)
    called = {turn.operations[slot] for slot in slots.tolist()}
    kind = _ALONE.get(next(iter(called))) if len(called) == 1 else None
    if kind is None and not (called <= _LINEAR and called & {"mul", "addcmul"} and called - {"mul"}):
        return None
    taken = np.bincount(turn.reader[~turn.loop.own[turn.writer]], minlength=turn.loop.period)
    if (taken[slots] != 1).any() or not _given_anew(graph, turn, slots) or not _read_between(graph, turn.loop, carried):
        return None
    return kind or "scan"


def _linear(graph: NodeGraph, turn: Turn) -> str | None:
    """Return `linear` where products and sums take a state to the next one, each linear in the state, which takes
    something anew each time and is read by others in between. What goes on with it and takes nothing anew, however
    it is computed, is known before the loop.
    """
    leads = np.eye(turn.loop.period, dtype=np.bool_)
    leads[turn.writer, turn.reader] = True
    for _ in range(turn.loop.period.bit_length()):
        leads |= leads @ leads
    states = {tuple(np.flatnonzero(leads[at] & leads[:, at]).tolist()) for at in turn.writer[turn.later > 0].tolist()}
    anew = np.array([_takes_anew(graph, turn, slot) for slot in range(turn.loop.period)])
    driven = [list(state) for state in states if anew[leads[:, list(state)].any(axis=1)].any()]
    products = any(turn.operations[slot] in PRODUCTS for state in driven for slot in state)
    linear = products and all(_keeps_linear(graph, turn, slot, state) for state in driven for slot in state)
    return "linear" if linear and _read_between(graph, turn.loop, turn.carried()) else None


def _keeps_linear(graph: NodeGraph, turn: Turn, slot: int, state: Sequence[int]) -> bool:
    """Return whether an operator is linear in what it takes of a state."""
    taken = int(((turn.reader == slot) & np.isin(turn.writer, state)).sum())
    read = reads_of(graph, turn.loop.begin + slot + turn.loop.period)
    once = turn.operations[slot] in _TIMES and taken == 1 and len(set(read)) == len(read)
    return once or turn.operations[slot] in _SUMS


def _takes_anew(graph: NodeGraph, turn: Turn, slot: int) -> bool:
    """Return whether an operator takes in each iteration something else of before the loop."""
    at = turn.loop.begin + slot + turn.loop.period
    one, other = (
        {(buffer, *span): writer for buffer, writer, *span in reads_of(graph, node)}
        for node in (at, at + turn.loop.period)
    )
    return any(key not in other and writer in other.values() for key, writer in one.items())


def reads_of(graph: NodeGraph, node: int) -> list[tuple[int, int, int, int]]:
    """Return what a node reads: buffer, write, first and last byte."""
    span = slice(int(graph.read_begin[node]), int(graph.read_begin[node + 1]))
    columns = (graph.read_buffer, graph.read_writer, graph.read_first, graph.read_last)
    return list(zip(*(column[span].tolist() for column in columns), strict=True))


def one_weight(graph: NodeGraph, loop: ProductLoop, slot: int) -> bool:
    """Return whether all iterations of an operator read one same tensor, and each a tensor of its own."""
    read = [set(reads_of(graph, node)) for node in range(loop.begin + slot, loop.end, loop.period)]
    shared = set.intersection(*read)
    own = [frozenset(each - shared) for each in read]
    return bool(shared) and all(own) and len(set(own)) == len(own)


def _given_anew(graph: NodeGraph, turn: Turn, slots: IntArray) -> bool:
    """Return whether each operator takes the state once, and some of them something else in each iteration."""
    middle = turn.loop.begin + (turn.loop.end - turn.loop.begin) // turn.loop.period // 2 * turn.loop.period
    anew = False
    for slot in slots.tolist():
        one, other = (reads_of(graph, middle + slot + at) for at in (0, turn.loop.period))
        if len(set(one)) < len(one):  # a state times itself
            return False
        anew |= len(one) > 1 and not set(one) & set(other)
    return anew


def _read_between(graph: NodeGraph, loop: ProductLoop, carried: BoolArray) -> bool:
    """Return whether others than the next iteration read the states: else only the last one is wanted, a plain sum."""
    turns = (loop.end - loop.begin) // loop.period
    inside = (graph.producer >= loop.begin) & (graph.producer < loop.end)
    producer, consumer = graph.producer[inside] - loop.begin, graph.consumer[inside] - loop.begin
    next_state = (consumer < loop.end - loop.begin) & np.append(carried, False)[
        np.where(consumer < loop.end - loop.begin, consumer % loop.period, loop.period)
    ]
    chosen = carried[producer % loop.period] & ~next_state
    return len(sorted_unique(producer[chosen] // loop.period)) >= _READ_SHARE * turns
