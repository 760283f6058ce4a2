"""From a finding to a graph: the nodes of one occurrence, and what each recorded call is in the graph.

A trace says of each call its operator, the shapes, dtypes and strides of its tensors, and (proven or inferred) whose
memory they lie in. Nothing in a trace names code: operators are looked up in the closed table. How calls become a graph
is in assemble.py, draft.py and memory.py.

A fusion group has calls that save traffic together; a fill of a large tensor of which the next call writes a small
slice is not among them. Rebuilt without it, the graph would write a part of memory from outside. With it the memory is
the graph's own, and need not exist. One kernel then saves what the fills took too, which no finding claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tracemine.codegen.graph import Graph
from tracemine.codegen.graph_builder import MOST_CALLS
from tracemine.flow.record import Flow, IntArray
from tracemine.fusion.record import Groups
from tracemine.ops import lookup, overload_of
from tracemine.verify.rebuild.assemble import Assembly
from tracemine.verify.rebuild.call_facts import CallFacts, with_result
from tracemine.verify.rebuild.call_forms import FILLS, Form, fills_new, form_of, in_memory_order
from tracemine.verify.rebuild.draft import NotRebuilt
from tracemine.verify.rebuild.memory import Lies
from tracemine.verify.rebuild.recorded import Recorded

SAYS = "memory that is filled with numbers before a part of it is written is filled by the graph itself"


def fills_before(recorded: Recorded, groups: Groups, nodes: Sequence[int]) -> set[int]:
    """Return further nodes that fill what these write in part, where all that read the fills are among them."""
    writes, members = recorded.flow.writes, set(nodes)
    by_members = np.isin(writes.node, np.array(nodes, np.int64))
    found: set[int] = set()
    for buffer in np.unique(writes.buffer[by_members]).tolist():
        here = np.flatnonzero(writes.buffer == buffer)
        inside = by_members[here]
        before = here[: int(np.argmax(inside))]
        if not len(before) or writes.bytes[here[inside]].min() >= writes.bytes[before[0]]:
            continue  # it is the graph's own, or written as a whole
        beside = set(writes.node[before].tolist())
        made = fills_new(recorded.facts(int(writes.node[before[0]])))
        if made and _only_fill(recorded, groups, beside) and _readers(recorded.flow, before) <= members | beside:
            found |= beside
    return found


def _only_fill(recorded: Recorded, groups: Groups, nodes: Iterable[int]) -> bool:
    """Return whether all that nodes do is to fill memory, as part of no other group."""
    owned = recorded.flow.nodes
    spans = ((n, owned.activity[owned.activity_begin[n] : owned.activity_begin[n + 1]]) for n in nodes)
    return all(recorded.facts(n).operator in FILLS and (groups.activity_group[rows] < 0).all() for n, rows in spans)


def _readers(flow: Flow, writes: IntArray) -> set[int]:
    return set(flow.edges.consumer[np.isin(flow.edges.write, writes)].tolist())


__all__ = ["NotRebuilt", "Rebuilder", "Rebuilt"]

# What `unowned_reason` says, in words.
_UNOWNED = {
    "before_window": ": it was launched before recording began",
    "no_host_events": ": no operators are recorded",
    "no_launch_call": ": the call that launched it is not recorded",
    "outside_any_op": ": it was launched outside of any operator",
    "graph_replay": ": it was replayed in a graph",
}
GUESSED = "which of its tensors each call reads is a guess; an execution trace says it (--et, tracemine.capture)"
MOST_ALONE = 2048  # calls of a finding that no kernel is generated for
PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A graph, the nodes and activities that it represents, and what it assumes."""

    graph: Graph
    nodes: tuple[int, ...]
    activities: tuple[int, ...]  # rows of `activities`
    evidence: str
    assumptions: tuple[str, ...]
    lies: tuple[Lies | None, ...]  # of each input, then of each live value, where in memory it lies
    unread: tuple[int, ...] = ()  # live values that only its own calls were seen to read: their memory lasted


class Rebuilder:
    """Rebuilds graphs of one trace."""

    def __init__(self, flow: Flow, groups: Groups, *, guesses: bool = False) -> None:
        """guesses: rebuild where it is a guess which member's result a call reads: perhaps not the model's graph."""
        self.flow, self.groups, self.guesses = flow, groups, guesses
        self.recorded = Recorded(flow)

    def rebuild(self, activities: Sequence[int], name: str) -> Rebuilt:
        """Return the graph of one occurrence's activities. Raises NotRebuilt with the reason."""
        return self._rebuilt(self._nodes(activities), name)

    def alone(
        self, activities: Sequence[int], name: str, before: Mapping[str, Collection[str]] = MappingProxyType({})
    ) -> Rebuilt:
        """Rebuild the calls that own the activities and nothing else of their fusion groups.

        before: by a call's operator those of calls that are rebuilt too, where they give what it reads.
        """
        nodes = {int(self.groups.activity_node[row]) for row in activities}
        if -1 in nodes:
            return self.rebuild(activities, name)
        edges, todo = self.flow.edges, list(nodes)
        while todo and before:
            node = todo.pop()
            wanted = before.get(self.recorded.facts(node).operator, ())
            givers = set(edges.producer[edges.consumer == node].tolist()) - nodes
            found = {n for n in givers if n >= 0 and self.recorded.facts(n).operator in wanted}
            nodes |= found
            todo += found
        return self._rebuilt(sorted(nodes), name, MOST_ALONE)

    def with_products(self, activities: Sequence[int], name: str) -> Rebuilt | None:
        """Return the graph with the products that it reads and, where it has a softmax, those that read it.

        None where there are none. Raises NotRebuilt with the reason.
        """
        nodes = self._nodes(activities)
        edges, members = self.flow.edges, np.array(nodes, np.int64)
        before = edges.producer[np.isin(edges.consumer, members)].tolist()
        softmax = any("softmax" in self.recorded.facts(n).operator for n in nodes)
        after = edges.consumer[np.isin(edges.producer, members)].tolist() if softmax else []
        beside = {n for n in (*before, *after) if n >= 0 and self.recorded.facts(n).operator in PRODUCTS} - set(nodes)
        return self._rebuilt(sorted({*nodes, *beside}), name) if beside else None

    def _rebuilt(self, nodes: Sequence[int], name: str, most: int = MOST_CALLS) -> Rebuilt:
        fills = fills_before(self.recorded, self.groups, nodes)
        nodes = sorted({*nodes, *fills})
        if len(nodes) > most:
            raise NotRebuilt(f"it has more than {most} calls")
        assembly = Assembly(self.recorded, name)
        facts = [in_memory_order(with_result(self.recorded.facts(node))) for node in nodes]
        forms = [_form(each) for each in facts]
        assembly.expect(facts, forms)
        for each, form in zip(facts, forms, strict=True):
            assembly.add(each, form)
        graph = assembly.done(nodes, most)
        evidence = self.recorded.evidence(nodes)
        if evidence == "adjacent" and not self.guesses:
            raise NotRebuilt(GUESSED)
        owned = self.flow.nodes
        rows = [owned.activity[owned.activity_begin[n] : owned.activity_begin[n + 1]].tolist() for n in nodes]
        assumptions = [SAYS, *assembly.making.assumptions] if fills else list(assembly.making.assumptions)
        if evidence != "proven":
            assumptions.insert(0, f"dataflow is {evidence}: the trace records no tensor identities")
        return Rebuilt(
            graph=graph,
            nodes=tuple(nodes),
            activities=tuple(row for part in rows for row in part),
            evidence=evidence,
            assumptions=tuple(dict.fromkeys(assumptions)),
            lies=assembly.lies(nodes),
            unread=assembly.unread(nodes),
        )

    def _nodes(self, activities: Sequence[int]) -> list[int]:
        """Return the nodes that own activities, with the rest of their fusion group."""
        owners: set[int] = set()
        for row in activities:
            group = int(self.groups.activity_group[row])
            node = int(self.groups.activity_node[row])
            if group >= 0:
                owners.update(self.groups.node[self.groups.begin[group] : self.groups.begin[group + 1]].tolist())
            elif node >= 0:
                owners.add(node)
            else:
                raise NotRebuilt(f"a kernel belongs to no operator whose inputs are recorded{self._unowned(row)}")
        return sorted(owners)

    def _unowned(self, row: int) -> str:
        """Return why nothing is known of a kernel's inputs, where that is known."""
        timeline = self.flow.timeline
        reason, op_row = (timeline.activities.column(name)[row].as_py() for name in ("unowned_reason", "op_row"))
        if op_row is not None:
            return ": shapes are not recorded" if timeline.ops.column("input_shapes")[op_row].as_py() is None else ""
        return _UNOWNED.get(reason, "")


def _form(facts: CallFacts) -> Form:
    if facts.overload is None:
        what = "what {} read and wrote" if facts.types else "the dtype of what {} read"  # NVTX ranges have shapes alone
        raise NotRebuilt(f"{what.format(_shown(facts.operator))} is not recorded")
    overload = overload_of(facts.operator, facts.overload)
    if overload is None:
        raise NotRebuilt(f"{_shown(facts.operator)} is not in the operator table")
    form = form_of(facts, overload)
    if isinstance(form, str):
        raise NotRebuilt(form)
    return form


def _shown(operator: str) -> str:
    """Return an operator's name for people, if it is one that the table knows."""
    return operator if lookup(operator) is not None else "an operator that the table does not have"
