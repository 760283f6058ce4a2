"""A graph put together call by call, from what each read and wrote.

Which value a call reads follows from whose memory its tensors lie in (memory.py). Names of arguments come from schemas,
never from a trace.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.graph import Graph, GraphCall, Ref, Refs, Scalars, Value, mutated
from tracemine.codegen.operators import pointwise_rows
from tracemine.ops import Argument
from tracemine.ops.facts import base_name
from tracemine.ops.infer import TensorSpec
from tracemine.verify.rebuild.arguments import NUMBER, NotRecorded, given, is_number, told
from tracemine.verify.rebuild.call_facts import CallFacts, RecordedTensor, from_outside
from tracemine.verify.rebuild.call_forms import Form
from tracemine.verify.rebuild.draft import Draft, NotRebuilt
from tracemine.verify.rebuild.memory import Lies, Memory
from tracemine.verify.rebuild.recorded import Recorded


class Assembly:
    """A graph in the making, from the calls that a trace recorded."""

    def __init__(self, recorded: Recorded, name: str) -> None:
        self.recorded = recorded
        self.making = Draft(name)
        self.memory = Memory(self.making)
        self.unseen: list[int] = []  # results of which nothing tells who reads them

    def expect(self, facts: Sequence[CallFacts], forms: Sequence[Form]) -> None:
        """Note what all calls take and give, before the first is added."""
        self.memory.saw(s for each in facts for s in (*each.inputs, *each.outputs))
        gives = (
            (_taken(each, form), each.outputs if form.gives_new else ())
            for each, form in zip(facts, forms, strict=True)
        )
        self.memory.expect(gives)

    def add(self, facts: CallFacts, form: Form) -> None:
        """Add one node's call."""
        if any(seen.layout.guessed for seen in (*facts.inputs, *facts.outputs)):
            self.making.assumptions.append(DENSE)
        self.making.assumptions += form.assumptions
        self._push(self._call(facts, form), facts if form.gives_new else None)

    def _call(self, facts: CallFacts, form: Form) -> GraphCall:
        by_place: dict[int, list[RecordedTensor]] = {}
        for seen in facts.inputs:
            by_place.setdefault(seen.position, []).append(seen)
        values: list[Value] = []
        for argument in form.overload.arguments:
            if argument.name in form.fixed:
                values.append(self.making.numbers.value(argument, form.fixed[argument.name], self.making.names))
                continue
            place = form.place(argument.name)
            seen_here = by_place.get(place, []) if place is not None else []
            values.append(self._value(argument, place, seen_here, facts, form))
        return GraphCall(form.operator, form.overload.name, tuple(values), ())

    def _value(
        self, argument: Argument, place: int | None, seen: Sequence[RecordedTensor], facts: CallFacts, form: Form
    ) -> Value:
        if place is None:
            return None
        if argument.is_tensor and argument.is_list:
            return self._members(argument, seen, facts, form)
        if argument.is_tensor:
            return self._tensor(argument, place, seen[0] if seen else None, facts, form)
        if argument.type == "Scalar[]" and (facts.texts or ())[place : place + 1] == ("",):
            return self._unknown_list(argument, facts)
        try:
            value, assumptions = given(argument, place, facts)
        except NotRecorded as reason:
            raise NotRebuilt(f"{facts.operator}: {reason}") from None
        self.making.assumptions += assumptions
        row = pointwise_rows().get(base_name(form.operator).removeprefix("_foreach_"))
        if row is not None and argument.name == row.unless and value == row.defaults[row.unless]:
            return None  # as if not given: kernels are simpler without it
        return self.making.numbers.value(argument, value, self.making.names, recorded=NUMBER not in assumptions)

    def _members(self, argument: Argument, seen: Sequence[RecordedTensor], facts: CallFacts, form: Form) -> Refs:
        """Return a list of tensors; members that an optional list leaves out are None."""
        if not seen:
            raise NotRebuilt(f"the members of a list that {facts.operator} takes are not recorded")
        if any(s.row < 0 for s in seen):
            self.making.assumptions.append(OUTSIDE)
        members = {max(s.member, 0): s for s in seen}
        holes = max(members) + 1 - len(members)
        if holes and (not argument.is_optional or holes > _MOST_HOLES):
            raise NotRebuilt(f"some members of a list that {facts.operator} takes are not recorded")
        values = {k: self._read(s, argument, form) for k, s in members.items()}
        return Refs(tuple(values.get(k) for k in range(max(values) + 1)))

    def _tensor(
        self, argument: Argument, place: int, seen: RecordedTensor | None, facts: CallFacts, form: Form
    ) -> Value:
        """Return a tensor argument, or the number that was given for it."""
        recorded_type = facts.types[place] if place < len(facts.types) else ""
        if place < len(facts.types) and is_number(seen, facts, form.recorded, place):
            number = told(facts, place)
            if number is not None:
                return self.making.numbers.value(argument, number, self.making.names)
            return self._unknown_number(argument, recorded_type)
        if seen is None:
            if argument.is_optional and not recorded_type:
                return None
            seen = from_outside(facts, place)
            if seen is None:
                raise NotRebuilt(f"a tensor that {facts.operator} takes is not recorded")
            self.making.assumptions.append(OUTSIDE)
        if seen.on_host and not seen.layout.shape and seen.dtype is not None:
            self.making.assumptions.append("a number in a tensor in the host's memory is given as a number")
            return self._unknown_number(argument, seen.dtype)
        return Ref(self._read(seen, argument, form, expand=form.shape))

    def _unknown_number(self, argument: Argument, dtype: str) -> Value:
        self.making.assumptions.append(NUMBER)
        return self.making.numbers.unknown(argument, dtype, self.making.names)

    def _unknown_list(self, argument: Argument, facts: CallFacts) -> Value:
        """Return numbers that were not recorded, one for each member of the call's first list."""
        count = len({s.member for s in facts.inputs if s.position == 0})
        self.making.assumptions.append(NUMBER)
        found = [self.making.numbers.unknown(argument, "double", self.making.names) for _ in range(count)]
        return Scalars(tuple(found))

    def _read(self, seen: RecordedTensor, argument: Argument, form: Form, expand: tuple[int, ...] | None = None) -> int:
        if seen.on_host:
            raise NotRebuilt(f"{form.operator} reads a tensor in the host's memory")
        dtype = self.memory.dtype(seen)
        if dtype is None or not seen.layout.is_known:
            raise NotRebuilt("the dtype or the strides of a tensor are not recorded")
        value = self.memory.at(seen, dtype, argument.name)
        if expand is not None and expand != seen.layout.shape and argument.name in ("self", "src"):
            value = self.making.view(value, (("aten::expand", (expand,)),))
        return value

    def _push(self, call: GraphCall, facts: CallFacts | None) -> None:
        """Add one call, with what it gives: as `facts` record it, else as the operator table says."""
        if any(str(self.making.specs[v].dtype).startswith("complex") for v in mutated(call)):
            raise NotRebuilt("complex numbers are written in place")
        if facts is None:
            self.making.call(call, self.making.inferred(call))
            self.memory.overwritten(mutated(call))
            return
        outputs = sorted(facts.outputs, key=lambda s: (s.position, s.member))
        if not outputs:
            raise NotRebuilt(f"what {call.operator} gave is not recorded")
        try:
            specs: Sequence[TensorSpec | None] = self.making.inferred(call)
        except NotRebuilt:  # the operator table does not say: what is recorded has to do
            specs = ()
        known = specs if len(specs) == len(outputs) else [None] * len(outputs)
        made = [self._spec(seen, other, call.label) for seen, other in zip(outputs, known, strict=True)]
        values = self.making.call(call, made)
        self.memory.overwritten(mutated(call))
        for seen, value in zip(outputs, values, strict=True):
            self.memory.made(seen, value, self.recorded.storage(seen.row) if seen.row >= 0 else None)
            if seen.row < 0:
                self.unseen.append(value)

    def _spec(self, seen: RecordedTensor, inferred: TensorSpec | None, label: str) -> TensorSpec:
        """Return what a call gave, as recorded; what is not recorded, as the operator table says."""
        dtype, strides = self.memory.dtype(seen), seen.layout.strides
        if inferred is not None and inferred.shape != seen.layout.shape:
            raise NotRebuilt(f"{label} gives other shapes than recorded")
        if inferred is not None and None is not dtype != inferred.dtype is not None:
            raise NotRebuilt(f"{label} gives another dtype than recorded")
        if inferred is not None:
            dtype = dtype or inferred.dtype
            strides = strides if len(strides) == len(seen.layout.shape) else inferred.strides or ()
        if dtype is None or len(strides) != len(seen.layout.shape):
            raise NotRebuilt(f"the dtype or the strides of what {label} gave are not recorded")
        return TensorSpec(seen.layout.shape, dtype, strides)

    def lies(self, nodes: Sequence[int]) -> tuple[Lies | None, ...]:
        """Return where each input lies in memory, and after them each live value; None where nothing tells."""
        return self.memory.lies((*self.making.inputs, *self._live(nodes)))

    def _live(self, nodes: Sequence[int]) -> list[int]:
        """Return values that others read, or that last."""
        return list(dict.fromkeys(value for value, _ in self._wanted(nodes)))

    def unread(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Return those of the graph's live values that its calls alone were seen to read, as the graph numbers them."""
        let_go = self.recorded.let_go(nodes)
        wanted = self._wanted(nodes)
        kept = {value for value, row in wanted if row not in let_go}
        order = self.making.order()
        return tuple(order[value] for value in dict.fromkeys(v for v, _ in wanted) if value not in kept)

    def _wanted(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Return live-outs, each with the row of `tensors` that says so; −1: nothing does."""
        found = ((self.memory.given(self.recorded.seen(row)), row) for _, row in self.recorded.wanted(nodes))
        return [*((value, row) for value, row in found if value is not None), *((value, -1) for value in self.unseen)]

    def done(self, nodes: Sequence[int], most: int) -> Graph:
        """Return the graph, with what others read of it as live. most: calls that it may have. Raises NotRebuilt."""
        return self.making.graph(self._live(nodes), most)


def _taken(facts: CallFacts, form: Form) -> list[RecordedTensor]:
    return [s for s in facts.inputs if s.position not in form.dropped and not is_number(s, facts, form.recorded)]


DENSE = "strides are not recorded: tensors are taken to lie without gaps, their last axis innermost"
OUTSIDE = "a tensor of which nothing tells where it comes from is taken to be an input"
_MOST_HOLES = 64  # axes that an index leaves out: tensors have no more
