"""Which recorded calls of a step are replayed: each outermost one that can be called again with the same effect.

An operator around others is taken where all that is made in it and read outside is among its results, so that the
host does what it did; else those inside it are. A backward pass reads what is made inside a norm: then the call inside
is taken. What cannot be called again is left out and counted; nothing stands in for it, and what it gave is memory from
outside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracemine.codegen.graph import LiteralArg
from tracemine.columns import numbers
from tracemine.flow.effects import effects
from tracemine.ops import Overload, overload_of
from tracemine.verify.rebuild.arguments import NUMBER as UNRECORDED
from tracemine.verify.rebuild.arguments import NotRecorded, given, is_number, told
from tracemine.verify.rebuild.call_facts import CallFacts, RecordedTensor
from tracemine.verify.rebuild.recorded import Recorded

# What these call depends on whether a gradient is asked for, which a replay does not; or on what no trace records.
_APART = frozenset({"aten::matmul", "aten::scaled_dot_product_attention", "aten::einsum", "aten::_sdp_attention"})
# How many results these give depends on values, which a replay does not have.
_BY_VALUE = frozenset(
    f"aten::{name}"
    for name in (
        *("nonzero", "nonzero_numpy", "masked_select", "unique", "_unique", "_unique2", "unique_dim"),
        *("unique_consecutive", "repeat_interleave", "argwhere", "bincount"),
    )
)
# Tensors of one number in the host's memory, which look like Python numbers.
_NO_NUMBERS = frozenset({"philox_seed", "philox_offset", "rng_state", "unused"})
_INTEGERS = ("long int", "int64", "long")
# A Python number that is not recorded: small enough that exponentials of what it scales stay finite in 16 bits.
INTEGER, NUMBER = 2, 0.02
UNKNOWN = f"Python numbers that are not recorded are taken to be {NUMBER}, and {INTEGER} where they are integers"
_SHAPING = ("exponent", "ord", "correction")  # as in graph.py: kernels have them as constants

Argument = RecordedTensor | tuple[RecordedTensor | None, ...] | LiteralArg | None


@dataclass(frozen=True, slots=True)
class Taken:
    """A call that is replayed."""

    facts: CallFacts
    overload: Overload
    arguments: tuple[Argument, ...]
    activities: tuple[int, ...]
    written: frozenset[int]  # storages that it, or what is inside it, writes
    inside: tuple[int, ...]  # rows of `ops`: it, and what is inside it


# Why something is not replayed, its activities, and what it gave: tensors of which nothing here says what they hold.
LeftOut = tuple[str, Sequence[int], Sequence[RecordedTensor]]


@dataclass(slots=True)
class Tree:
    """The operators of a step, and what each launched itself. Threads alternate: all is in order of time."""

    rows: list[int]
    parent: dict[int, int]
    children: dict[int, list[int]] = field(default_factory=dict)
    launched: dict[int, list[int]] = field(default_factory=dict)
    ended: list[list[int]] = field(default_factory=list)  # of each place in `rows`, who ends there, from the inside

    @staticmethod
    def of(recorded: Recorded, begin_ns: int, end_ns: int) -> Tree:
        """Return the operators that began in a stretch of time, in order."""
        ops, activities = recorded.timeline.ops, recorded.timeline.activities
        start = numbers(ops.column("start_ns"))
        rows = np.flatnonzero((start >= begin_ns) & (start < end_ns))
        rows = rows[np.argsort(start[rows], kind="stable")]
        inside = np.zeros(len(start) + 1, np.bool_)
        inside[rows] = True
        above = numbers(ops.column("parent_row"), -1)
        place = np.full(len(start) + 1, -1, np.int64)
        place[rows] = np.arange(len(rows))
        above = np.where(inside[above] & (above >= 0), above, -1)
        above[rows] = np.where(place[above[rows]] < place[rows], above[rows], -1)  # whoever is around it began before
        tree = Tree(rows.tolist(), dict(zip(rows.tolist(), above[rows].tolist(), strict=True)))
        for row, parent in tree.parent.items():
            tree.children.setdefault(parent, []).append(row)
        owner = numbers(activities.column("op_row"), -1)
        for activity in np.flatnonzero(inside[owner] & (owner >= 0)).tolist():
            tree.launched.setdefault(int(owner[activity]), []).append(activity)
        last: dict[int, int] = {}
        for at, row in enumerate(tree.rows):
            last.update(dict.fromkeys(tree.around(row), at))
        tree.ended = [[] for _ in tree.rows]
        for row in reversed(tree.rows):
            tree.ended[last[row]].append(row)
        return tree

    def subtree(self, row: int) -> list[int]:
        """Return an operator and all inside it, in order."""
        found, todo = [], [row]
        while todo:
            at = todo.pop()
            found.append(at)
            todo.extend(reversed(self.children.get(at, ())))
        return found

    def launched_by(self, rows: Sequence[int]) -> list[int]:
        """Return the activities that some operators launched themselves, in order."""
        return sorted(activity for row in rows for activity in self.launched.get(row, ()))

    def around(self, row: int) -> Iterator[int]:
        """Generate an operator and all around it, from the inside."""
        while row >= 0:
            yield row
            row = self.parent[row]


class Cover:
    """Chooses the calls of a step. `together`: of a node the occurrence that one kernel would replace."""

    def __init__(self, recorded: Recorded, tree: Tree, together: Mapping[int, int]) -> None:
        self.recorded, self.tree = recorded, tree
        self.together = together
        owned = recorded.flow.nodes
        self.node_of = {row: node for node, row in enumerate(owned.op_row.tolist()) if row in tree.parent}
        self.assumptions: dict[str, None] = {}
        self._facts: dict[int, CallFacts] = {}
        self._escapes = self._escaping()

    def facts(self, row: int) -> CallFacts:
        """Return what is recorded of an operator's call."""
        if row not in self._facts:
            self._facts[row] = self.recorded.call(row, self.tree.launched.get(row, ()))
        return self._facts[row]

    def parts(self) -> Iterator[Taken | LeftOut]:
        """Generate what is replayed and what is not, in order."""
        done: set[int] = set()
        for at, row in enumerate(self.tree.rows):
            if row not in done:
                taken = self._taken(row)
                if isinstance(taken, Taken):
                    done.update(taken.inside)
                    yield taken
                elif not self.tree.children.get(row) or self.tree.launched.get(row):
                    yield from self._left(row, taken)
            for ended in self.tree.ended[at]:
                if ended not in done and self.tree.children.get(ended):
                    yield from self._around(ended)

    def _left(self, row: int, reason: str) -> Iterator[LeftOut]:
        facts, launched = self.facts(row), self.tree.launched.get(row, ())
        if reason and (launched or facts.outputs):
            yield reason, launched, self._own(row)

    def _around(self, row: int) -> Iterator[LeftOut]:
        """Yield, after what is inside an operator, the results that none of these made."""
        if not self.tree.launched.get(row) and (own := self._own(row)):
            yield "it makes results of its own", (), own

    def _own(self, row: int) -> list[RecordedTensor]:
        return [s for s in self.facts(row).outputs if self.maker.get((row, self.recorded.storage(s.row))) == row]

    def _taken(self, row: int) -> Taken | str:
        """Return the call, or why it is not one; "" where that is no loss."""
        facts = self.facts(row)
        if facts.overload is None:
            return "what it reads and writes is not recorded" if self.tree.launched.get(row) else ""
        overload = overload_of(facts.operator, facts.overload)
        if overload is None:
            return "it is not in the operator table"
        if overload.op_class == "collective":
            return "collectives are left out"
        inside = self.tree.subtree(row)
        if facts.operator in _APART or row in self._escapes or self._of_several(inside):
            return "it is called as what is inside it"
        if any(self.facts(r).operator in _BY_VALUE for r in inside):
            return "the size of its result depends on values"
        if not facts.outputs and not overload.mutates:
            return "it gives no tensor"
        activities = self.tree.launched_by(inside)
        words = self.recorded.call(row, activities)
        try:
            arguments = self._arguments(facts, overload)
            if words.kernels != facts.kernels:  # words are read off kernels
                arguments = self._arguments(words, overload)
        except NotRecorded as reason:
            return str(reason)
        written = frozenset(s for r in inside for s in self._written(r))
        return Taken(words, overload, arguments, tuple(activities), written, tuple(inside))

    def _of_several(self, rows: Sequence[int]) -> bool:
        """Return whether operators are of several occurrences, or of one and of none."""
        return len({self.together.get(self.node_of[r], -1) for r in rows if r in self.node_of}) > 1

    def _arguments(self, facts: CallFacts, overload: Overload) -> tuple[Argument, ...]:
        return tuple(self._argument(k, facts, overload) for k in range(len(overload.arguments)))

    def _argument(self, place: int, facts: CallFacts, overload: Overload) -> Argument:
        argument = overload.arguments[place]
        if not argument.is_tensor:
            return self._plain(place, facts, overload)
        seen = [s for s in facts.inputs if s.position == place]
        if argument.is_list:
            return _listed(seen, place, facts)
        number = is_number(seen[0] if seen else None, facts, overload, place)
        if number and (known := told(facts, place)) is not None:
            return LiteralArg(known)
        if number and argument.name not in _NO_NUMBERS:
            self.assumptions[UNKNOWN] = None
            return LiteralArg(INTEGER if facts.types[place] in _INTEGERS else NUMBER)
        if not seen:
            if facts.types[place : place + 1] in ((), ("",)):  # not given, or undefined as autograd leaves them
                return None
            raise NotRecorded("a tensor that it takes is not recorded")
        return _sound(seen[0])

    def _plain(self, place: int, facts: CallFacts, overload: Overload) -> Argument:
        argument = overload.arguments[place]
        if argument.type.startswith("Device"):
            where = [*facts.outputs, *facts.inputs]
            return LiteralArg("cpu" if where and where[0].on_host else "cuda") if where else None
        try:
            value, assumptions = given(argument, place, facts)
        except NotRecorded:
            text = (facts.texts or ())[place : place + 1]
            if argument.type == "Scalar[]" and text == ("",):
                self.assumptions[UNKNOWN] = None
                return LiteralArg((NUMBER,) * len({s.member for s in facts.inputs if s.position == 0}))
            raise
        if UNRECORDED in assumptions and argument.name not in _SHAPING:
            self.assumptions[UNKNOWN] = None
            return LiteralArg(NUMBER)
        self.assumptions.update(dict.fromkeys(assumptions))
        return None if value is None else LiteralArg(value)

    # Lifetimes. A storage is new at the end of the operator that gives it and did not take it.

    def _written(self, row: int) -> Iterator[int]:
        schema = self.recorded.schema(row)
        if schema is None:
            return
        mutates = effects(schema).mutates
        yield from (self.recorded.storage(s.row) for s in self.facts(row).inputs if s.position in mutates)

    def _escaping(self) -> set[int]:
        """Return operators inside which something is made that is read outside and is not among their results."""
        storage = self.recorded.storage
        current: dict[int, tuple[int, int]] = {}  # of a storage: its generation, and the operator that made it
        self.maker: dict[tuple[int, int], int] = {}  # of an operator's result: the operator that made it
        made: list[int] = []  # of a generation, its maker
        readers: list[set[int]] = []
        gives: dict[int, set[int]] = {}  # of an operator, the generations among its results
        for at, row in enumerate(self.tree.rows):
            for seen in self.facts(row).inputs:
                if 0 not in seen.layout.shape and (known := current.get(storage(seen.row))) is not None:
                    readers[known[0]].add(row)
            for ended in self.tree.ended[at]:
                facts = self.facts(ended)
                taken = {storage(s.row) for s in facts.inputs}
                for seen in facts.outputs:
                    key = storage(seen.row)
                    known = current.get(key)
                    inner = known is not None and ended in self.tree.around(known[1])
                    if key not in taken and not inner and facts.overload is not None:
                        current[key] = known = (len(made), ended)
                        made.append(ended)
                        readers.append(set())
                    if known is not None:
                        gives.setdefault(ended, set()).add(known[0])
                        self.maker[ended, key] = known[1]
        found: set[int] = set()
        for generation, maker in enumerate(made):
            outside = self._read_outside(maker, readers[generation])
            found.update(a for a in outside if generation not in gives.get(a, ()))
        return found

    def _read_outside(self, maker: int, readers: Collection[int]) -> set[int]:
        """Return the operators around what made a tensor that are not around all that reads it."""
        above, outside = list(self.tree.around(maker)), set[int]()
        for reader in readers:
            around = set(self.tree.around(reader))
            outside.update(a for a in above if a not in around)
        return outside


def _listed(seen: Sequence[RecordedTensor], place: int, facts: CallFacts) -> tuple[RecordedTensor | None, ...]:
    """Return the members of a list. Raises NotRecorded where it has some that are not recorded."""
    members = {max(s.member, 0): s for s in seen}
    if not members and not facts.inputs and facts.types[place : place + 1] != ("",):
        raise NotRecorded("the members of a list are not recorded")
    return tuple(members.get(k) for k in range(max(members, default=-1) + 1))


def _sound(seen: RecordedTensor) -> RecordedTensor:
    if seen.dtype is None or len(seen.layout.strides) != len(seen.layout.shape):
        raise NotRecorded("the dtype or the strides of a tensor are not recorded")
    return seen
