"""A graph draft: its values, numbered as they come, and the calls that give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracemine.codegen.graph import Graph, GraphCall, GraphError, GraphInput, Ref, Value, reads, renumbered
from tracemine.codegen.graph_builder import check, infer_outputs, with_eps
from tracemine.codegen.index_inputs import computed, copied, origin, pointing
from tracemine.codegen.value_ranges import in_tables
from tracemine.errors import TracemineError
from tracemine.ops.facts import base_name, keeping_values
from tracemine.ops.infer import TensorSpec
from tracemine.verify.rebuild.arguments import Names, Numbers
from tracemine.verify.rebuild.view_recovery import Step


class NotRebuilt(TracemineError):
    """Why a finding's graph cannot be rebuilt, in words for a user."""


class Draft:
    """Values and calls. `graph` puts inputs first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.specs: list[TensorSpec] = []
        self.inputs: dict[int, tuple[str, int | None]] = {}  # value: name, below
        self.calls: list[tuple[GraphCall, tuple[int, ...]]] = []  # with the values that it gives
        self.names = Names()
        self.numbers = Numbers()
        self.assumptions: list[str] = []

    def input(self, argument: str, spec: TensorSpec) -> int:
        """Return a tensor from outside, given for an argument first."""
        value = self._number(spec)
        self.inputs[value] = (self.names.tensor(argument), None)
        return value

    def call(self, call: GraphCall, specs: Sequence[TensorSpec]) -> tuple[int, ...]:
        """Add one call, and return what it gives."""
        values = tuple(self._number(spec) for spec in specs)
        self.calls.append((GraphCall(call.operator, call.overload, call.arguments, tuple(specs)), values))
        self._indices(call)
        return values

    def view(self, value: int, steps: Sequence[Step]) -> int:
        """Return what view calls lead to from a value."""
        for label, arguments in steps:
            operator, _, overload_name = label.partition(".")
            call = GraphCall(operator, overload_name, (), ())
            names = [a.name for a in call.schema.arguments]
            rest: dict[str, Any] = dict(zip(names[1:], arguments, strict=False))
            values: list[Value] = [Ref(value)]
            values += [self.numbers.value(a, rest.get(a.name), self.names) for a in call.schema.arguments[1:]]
            call = GraphCall(operator, overload_name, tuple(values), ())
            (value,) = self.call(call, self.inferred(call))
        return value

    def inferred(self, call: GraphCall) -> tuple[TensorSpec, ...]:
        """Return what a call gives, as the operator table says. Raises NotRebuilt."""
        try:
            return infer_outputs(call, self.specs)
        except GraphError as error:
            raise NotRebuilt(error.message) from None

    def _number(self, spec: TensorSpec) -> int:
        self.specs.append(spec)
        return len(self.specs) - 1

    def _indices(self, call: GraphCall) -> None:
        """Index tensors that come from outside hold places of what they point into."""
        for value, below in pointing(call, self.specs):
            source = origin(value, self._giver)
            for held in (source, *copied((call for call, _ in self.calls), source, self._giver)):
                if held in self.inputs:
                    self._bound(held, below)
                    continue
                for number in self._numbers_behind(held):
                    self._bound(number, _FEW)
                    self.assumptions.append("places are computed from numbers, of which 0 and 1 are tried")

    def _bound(self, value: int, below: int) -> None:
        name, known = self.inputs[value]
        self.inputs[value] = (name, below if known is None else min(known, below))

    def _numbers_behind(self, value: int) -> set[int]:
        """Return inputs that places are computed from. Booleans are 0 and 1, whatever they are computed from."""
        found: set[int] = set()
        seen, todo = {value}, [value]
        while todo:
            at = todo.pop()
            if self.specs[at].dtype == "bool":
                continue
            if at in self.inputs:
                found.add(at)
            call = self._giver(at)
            looked_up = call is not None and base_name(call.operator) in keeping_values()
            new = set(() if call is None else reads(call)[:1] if looked_up else reads(call)) - seen
            seen |= new
            todo += new
        return found

    def _giver(self, value: int) -> GraphCall | None:
        return next((call for call, values in self.calls if value in values), None)

    def order(self) -> dict[int, int]:
        """Return the graph's number of each value of the making: inputs first."""
        order = {value: k for k, value in enumerate(self.inputs)}
        given_by = [value for _, values in self.calls for value in values]
        return order | {value: len(self.inputs) + k for k, value in enumerate(given_by)}

    def graph(self, live: Sequence[int], most: int) -> Graph:
        """Return the graph with some values live, inputs first. most: calls that it may have. Raises NotRebuilt."""
        order = self.order()
        graph = Graph(
            name=self.name,
            inputs=tuple(GraphInput(name, self.specs[v], below) for v, (name, below) in self.inputs.items()),
            calls=tuple(_renumbered(call, order) for call, _ in self.calls),
            live=tuple(order[v] for v in live),
        )
        try:
            check(graph, most)
        except GraphError as error:
            raise NotRebuilt(error.message.removeprefix(f"{self.name}: ")) from None
        graph = with_eps(graph)
        return in_tables(graph)[0] if computed(graph) else graph


_FEW = 2  # integers that indices are computed from stay below this


def _renumbered(call: GraphCall, order: Mapping[int, int]) -> GraphCall:
    arguments = tuple(renumbered(value, order.__getitem__) for value in call.arguments)
    return GraphCall(call.operator, call.overload, arguments, call.outputs)
