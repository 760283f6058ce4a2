"""A chain put together call by call, from what each read and wrote.

Which value a call reads follows from whose memory its tensors lie in; views between the calls launch nothing, and
follow from offset, shape and strides (looks.py). Names of arguments come from schemas, never from a trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracemine.errors import TracemineError
from tracemine.ops import Argument
from tracemine.ops.infer import TensorSpec
from tracemine.verify.chain import (
    Call,
    Chain,
    ChainError,
    Input,
    Ref,
    Refs,
    Scalars,
    Value,
    check,
    infer_outputs,
    mutated,
    reads,
)
from tracemine.verify.indices import KEEPS, computed, pointing
from tracemine.verify.kernels.operators import pointwise_rows
from tracemine.verify.ranges import settled
from tracemine.verify.rebuild.arguments import NUMBER, Names, NotRecorded, Numbers, given, is_number, told
from tracemine.verify.rebuild.forms import Form
from tracemine.verify.rebuild.looks import Look, views
from tracemine.verify.rebuild.recorded import NodeFacts, Recorded, Seen, from_outside


class NotRebuilt(TracemineError):
    """Why a finding's chain cannot be rebuilt, in words for a user."""


@dataclass(frozen=True, slots=True)
class Lies:
    """Where a value of the chain lies. `buffer`: as in `Seen`."""

    buffer: tuple[str, int]
    look: Look
    dtype: str


@dataclass(slots=True)
class _Root:
    """A tensor of the chain that lies in memory: as an input, or given by a call."""

    look: Look
    dtype: str
    value: int  # number in the making
    looks: dict[Look, int] = field(default_factory=dict)
    by_chain: bool = False


@dataclass(slots=True)
class Assembly:
    """A chain in the making, call by call. Values are numbered as they come; `done` puts inputs first."""

    recorded: Recorded
    name: str
    specs: list[TensorSpec] = field(default_factory=list)
    inputs: dict[int, tuple[str, int | None]] = field(default_factory=dict)  # value: name, below
    calls: list[tuple[Call, tuple[int, ...]]] = field(default_factory=list)  # with the values that it gives
    roots: dict[tuple[str, int], list[_Root]] = field(default_factory=dict)
    storages: dict[int, tuple[str, int]] = field(default_factory=dict)  # of a storage the buffer met last
    dtypes: dict[tuple[str, int], set[str]] = field(default_factory=dict)  # of what lies in a buffer
    outside: dict[tuple[str, int], list[tuple[Look, str]]] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)  # inputs written in place
    unseen: list[int] = field(default_factory=list)  # results of which nothing tells who reads them
    names: Names = field(default_factory=Names)
    numbers: Numbers = field(default_factory=Numbers)
    assumptions: list[str] = field(default_factory=list)

    def expect(self, facts: Sequence[NodeFacts], forms: Sequence[Form]) -> None:
        """Notes all looks at memory from outside, so that the widest becomes the input and the rest views of it."""
        for seen in (s for each in facts for s in (*each.inputs, *each.outputs)):
            if seen.dtype is not None:
                self.dtypes.setdefault(seen.buffer, set()).add(seen.dtype)
        made: set[tuple[str, int]] = set()
        for each, form in zip(facts, forms, strict=True):
            for seen in self._taken(each, form):
                told = seen.dtype is not None and seen.look.is_told
                if told and seen.buffer not in made:
                    self.outside.setdefault(seen.buffer, []).append((seen.look, str(seen.dtype)))
            if form.gives_new:
                made.update(seen.buffer for seen in each.outputs)
        for found in self.outside.values():
            found.sort(key=lambda one: one[0].reach[0] - one[0].reach[1])

    def _taken(self, facts: NodeFacts, form: Form) -> list[Seen]:
        return [s for s in facts.inputs if s.position not in form.dropped and not is_number(s, facts, form.recorded)]

    def add(self, facts: NodeFacts, form: Form) -> None:
        """One node's call."""
        if any(seen.look.guessed for seen in (*facts.inputs, *facts.outputs)):
            self.assumptions.append(DENSE)
        self.assumptions += form.assumptions
        self._push(self._call(facts, form), facts if form.gives_new else None, node=True)

    def _call(self, facts: NodeFacts, form: Form) -> Call:
        by_place: dict[int, list[Seen]] = {}
        for seen in facts.inputs:
            by_place.setdefault(seen.position, []).append(seen)
        values: list[Value] = []
        for argument in form.overload.arguments:
            if argument.name in form.fixed:
                values.append(self.numbers.value(argument, form.fixed[argument.name], self.names))
                continue
            place = form.place(argument.name)
            seen_here = by_place.get(place, []) if place is not None else []
            values.append(self._value(argument, place, seen_here, facts, form))
        return Call(form.operator, form.overload.name, tuple(values), ())

    def _value(
        self, argument: Argument, place: int | None, seen: Sequence[Seen], facts: NodeFacts, form: Form
    ) -> Value:
        if place is None:
            return None
        if argument.is_tensor and argument.is_list:
            if not seen:
                raise NotRebuilt(f"the members of a list that {facts.operator} takes are not recorded")
            found: dict[int, int] = {max(s.member, 0): self._read(s, argument, form) for s in seen}
            return Refs(tuple(found.get(k) for k in range(max(found) + 1)))
        if argument.is_tensor:
            numbered = place < len(facts.types) and is_number(seen[0] if seen else None, facts, form.recorded, place)
            if numbered and (number := told(facts, place)) is not None:
                return self.numbers.value(argument, number, self.names)
            if numbered:
                self.assumptions.append(NUMBER)
                return self.numbers.unknown(argument, facts.types[place], self.names)
            if not seen:
                if argument.is_optional and not (place < len(facts.types) and facts.types[place]):
                    return None
                found_outside = from_outside(facts, place)
                if found_outside is None:
                    raise NotRebuilt(f"a tensor that {facts.operator} takes is not recorded")
                self.assumptions.append("a tensor of which nothing tells where it comes from is taken to be an input")
                seen = [found_outside]
            if seen[0].on_host and not seen[0].look.shape and seen[0].dtype is not None:
                self.assumptions.append("a number in a tensor in the host's memory is given as a number")
                self.assumptions.append(NUMBER)
                return self.numbers.unknown(argument, seen[0].dtype, self.names)
            return Ref(self._read(seen[0], argument, form, expand=form.shape))
        if argument.type == "Scalar[]" and (facts.texts or ())[place : place + 1] == ("",):
            return self._unknown_list(argument, facts)
        try:
            read = given(argument, place, facts)
        except NotRecorded as reason:
            raise NotRebuilt(f"{facts.operator}: {reason}") from None
        self.assumptions += read.assumptions
        row = pointwise_rows().get(form.operator.removeprefix("aten::").removesuffix("_").removeprefix("_foreach_"))
        if row is not None and argument.name == row.unless and read.value == row.defaults[row.unless]:
            return None  # as if not given: kernels are simpler without it
        return self.numbers.value(argument, read.value, self.names, recorded=read.recorded)

    def _unknown_list(self, argument: Argument, facts: NodeFacts) -> Value:
        """Numbers that were not recorded, one for each member of the call's first list."""
        count = len({s.member for s in facts.inputs if s.position == 0})
        self.assumptions.append(NUMBER)
        found = [self.numbers.unknown(argument, "double", self.names) for _ in range(count)]
        return Scalars(tuple(found))

    # Memory.

    def _buffer(self, seen: Seen) -> tuple[str, int]:
        """A storage that a call did not read may be one that another did."""
        return self.storages.get(seen.buffer[1], seen.buffer) if seen.buffer[0] == "storage" else seen.buffer

    def _read(self, seen: Seen, argument: Argument, form: Form, expand: tuple[int, ...] | None = None) -> int:
        if seen.on_host:
            raise NotRebuilt(f"{form.operator} reads a tensor in the host's memory")
        dtype = self._dtype(seen)
        if dtype is None or not seen.look.is_told:
            raise NotRebuilt("the dtype or the strides of a tensor are not recorded")
        value = self._at(self._buffer(seen), seen.look, dtype, argument.name)
        if expand is not None and expand != seen.look.shape and argument.name in ("self", "src"):
            value = self._view(value, (("aten::expand", (expand,)),))
        return value

    def _dtype(self, seen: Seen) -> str | None:
        """As recorded; of a list's member, which profilers leave out, as another call recorded that memory's."""
        known = self.dtypes.get(self._buffer(seen), set())
        return seen.dtype or (next(iter(known)) if len(known) == 1 else None)

    def _at(self, buffer: tuple[str, int], look: Look, dtype: str, name: str) -> int:
        """The value that lies in memory so."""
        roots = self.roots.setdefault(buffer, [])
        for root in reversed(roots):
            if root.dtype == dtype and look in root.looks:
                return root.looks[look]
            if root.dtype == dtype and root.look.covers(look):
                steps = views(root.look, look)
                if steps is not None:
                    value = self._view(root.value, steps)
                    root.looks[look] = value
                    return value
            begin, end = root.look.reach
            if root.by_chain and begin < look.reach[1] and look.reach[0] < end:
                raise NotRebuilt("a tensor is read in a look that no slices and views of what was written give")
        return self._input(buffer, look, dtype, name)

    def _input(self, buffer: tuple[str, int], look: Look, dtype: str, name: str) -> int:
        """An input: the widest look at this memory from which this one follows."""
        for wide, kind in self.outside.get(buffer, ()):
            if kind == dtype and wide != look and wide.covers(look) and views(wide, look) is not None:
                self._new_input(buffer, wide, kind, name)
                return self._at(buffer, look, dtype, name)
        return self._new_input(buffer, look, dtype, name)

    def _new_input(self, buffer: tuple[str, int], look: Look, dtype: str, name: str) -> int:
        """An input; of what repeats elements, those that it repeats."""
        if any(n > 1 and not s for n, s in zip(look.shape, look.strides, strict=True)):
            once = tuple(n if s else 1 for n, s in zip(look.shape, look.strides, strict=True))
            self._new_input(buffer, Look(look.offset, once, look.strides), dtype, name)
            return self._at(buffer, look, dtype, name)
        value = self._number(TensorSpec(look.shape, dtype, look.strides))
        self.inputs[value] = (self.names.tensor(name), None)
        beside = self.roots.setdefault(buffer, [])
        if any(r.look.reach[0] < look.reach[1] and look.reach[0] < r.look.reach[1] for r in beside):
            self.assumptions.append("inputs that lie in one memory are tried apart from each other")
        beside.append(_Root(look, dtype, value, {look: value}))
        return value

    def _view(self, value: int, steps: Sequence[tuple[str, tuple[object, ...]]]) -> int:
        for label, arguments in steps:
            operator, _, overload_name = label.partition(".")
            call = Call(operator, overload_name, (), ())
            names = [a.name for a in call.schema.arguments]
            rest: dict[str, Any] = dict(zip(names[1:], arguments, strict=False))
            values: list[Value] = [Ref(value)]
            values += [self.numbers.value(a, rest.get(a.name), self.names) for a in call.schema.arguments[1:]]
            (value,) = self._push(Call(operator, overload_name, tuple(values), ()), None)
        return value

    def _number(self, spec: TensorSpec) -> int:
        self.specs.append(spec)
        return len(self.specs) - 1

    def _push(self, call: Call, facts: NodeFacts | None, *, node: bool = False) -> tuple[int, ...]:
        """One call, with what it gives: as `facts` record it, else as the operator table says."""
        try:
            specs = list(infer_outputs(call, self.specs))
        except ChainError as error:
            if facts is None:
                raise NotRebuilt(error.message) from None
            specs = []
        outputs = [] if facts is None else _merged(facts.outputs)
        if facts is not None:
            if not outputs:
                raise NotRebuilt(f"what {call.operator} gave is not recorded")
            known = specs if len(specs) == len(outputs) else [None] * len(outputs)
            specs = [self._spec(seen, other, call.label) for seen, other in zip(outputs, known, strict=True)]
        values = tuple(self._number(spec) for spec in specs)
        self.calls.append((Call(call.operator, call.overload, call.arguments, tuple(specs)), values))
        if node:
            self._overwritten(call)
        for seen, value in zip(outputs, values, strict=False):
            self._made(seen, value)
        self._indices(call)
        return values

    def _spec(self, seen: Seen, inferred: TensorSpec | None, label: str) -> TensorSpec:
        """What a call gave, as recorded; what is not recorded, as the operator table says."""
        dtype, strides = self._dtype(seen), seen.look.strides
        if inferred is not None and inferred.shape != seen.look.shape:
            raise NotRebuilt(f"{label} gives other shapes than recorded")
        if inferred is not None and None is not dtype != inferred.dtype is not None:
            raise NotRebuilt(f"{label} gives another dtype than recorded")
        if inferred is not None:
            dtype = dtype or inferred.dtype
            strides = strides if len(strides) == len(seen.look.shape) else inferred.strides or ()
        if dtype is None or len(strides) != len(seen.look.shape):
            raise NotRebuilt(f"the dtype or the strides of what {label} gave are not recorded")
        return TensorSpec(seen.look.shape, dtype, strides)

    def _made(self, seen: Seen, value: int) -> None:
        buffer = self._buffer(seen)
        spec = self.specs[value]
        look = Look(seen.look.offset, spec.shape, spec.strides or ())
        root = _Root(look, str(spec.dtype), value, {look: value}, by_chain=True)
        self.roots[buffer] = [root]
        if seen.row >= 0:
            self.storages[self.recorded.storage(seen.row)] = buffer
        else:
            self.unseen.append(value)

    def _overwritten(self, call: Call) -> None:
        """After a write in place, looks at that memory are taken anew."""
        for v in mutated(call):
            for roots in self.roots.values():
                for root in roots:
                    if v in root.looks.values():
                        self._alone(root, roots)
                        root.looks = {root.look: root.value}
                        if root.value in self.inputs:
                            self.written.add(root.value)

    def _alone(self, root: _Root, roots: Sequence[_Root]) -> None:
        begin, end = root.look.reach
        if any(r is not root and r.look.reach[0] < end and begin < r.look.reach[1] for r in roots):
            raise NotRebuilt("memory is written in place and read in another look beside it")

    def _indices(self, call: Call) -> None:
        """Index tensors that come from outside hold places of what they point into."""
        for value, below in pointing(call, self.specs):
            source = self._origin(value)
            if source in self.inputs:
                self._bound(source, below)
                continue
            for number in self._numbers_behind(source):
                self._bound(number, _FEW)
                self.assumptions.append("places are computed from numbers, of which 0 and 1 are tried")

    def _bound(self, value: int, below: int) -> None:
        name, known = self.inputs[value]
        self.inputs[value] = (name, below if known is None else min(known, below))

    def _numbers_behind(self, value: int) -> set[int]:
        """Inputs that places are computed from. Booleans are 0 and 1, whatever they are computed from."""
        found: set[int] = set()
        seen, todo = {value}, [value]
        while todo:
            at = todo.pop()
            if self.specs[at].dtype == "bool":
                continue
            if at in self.inputs:
                found.add(at)
            call = self._giver(at)
            looked_up = call is not None and call.operator.removeprefix("aten::") in KEEPS
            new = set(() if call is None else reads(call)[:1] if looked_up else reads(call)) - seen
            seen |= new
            todo += new
        return found

    def _origin(self, value: int) -> int:
        """The value of which another is a view or a copy."""
        while (call := self._giver(value)) is not None:
            base = call.operator.removeprefix("aten::")
            if base not in KEEPS or not isinstance(call.arguments[0], Ref):
                break
            value = call.arguments[0].value
        return value

    def _giver(self, value: int) -> Call | None:
        return next((call for call, values in self.calls if value in values), None)

    def lies(self, nodes: Sequence[int]) -> tuple[Lies | None, ...]:
        """Where each input lies in memory, and after them each live value; None where nothing tells."""
        found = {
            root.value: Lies(buffer, root.look, root.dtype) for buffer, roots in self.roots.items() for root in roots
        }
        return tuple(found.get(value) for value in (*self.inputs, *self._live(nodes)))

    def _live(self, nodes: Sequence[int]) -> list[int]:
        """Values that others read, or that last."""
        return list(dict.fromkeys(value for value, _ in self._wanted(nodes)))

    def unread(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Those of the chain's live values that its calls alone were seen to read, as the chain numbers them."""
        let_go = self.recorded.let_go(nodes)
        wanted = self._wanted(nodes)
        kept = {value for value, row in wanted if row not in let_go}
        order = self._order()
        return tuple(order[value] for value in dict.fromkeys(v for v, _ in wanted) if value not in kept)

    def _wanted(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Values that others read, or that last, each with the row of `tensors` that says so; −1: nothing does."""
        wanted: list[tuple[int, int]] = []
        for _, row in self.recorded.wanted(nodes):
            seen = self.recorded.seen(row)
            roots = self.roots.get(self._buffer(seen), [])
            root = next((r for r in roots if seen.look in r.looks), None)
            if root is None:
                found = [r for r in roots if not seen.look.is_told or r.look.covers(seen.look)]
                root = found[-1] if found else None
            if root is not None and root.value not in self.inputs:
                wanted.append((root.value, row))
        return [*wanted, *((value, -1) for value in self.unseen)]

    def _order(self) -> dict[int, int]:
        """The chain's number of each value of the making: inputs first."""
        order = {value: k for k, value in enumerate(self.inputs)}
        given_by = [value for _, values in self.calls for value in values]
        return order | {value: len(self.inputs) + k for k, value in enumerate(given_by)}

    def done(self, nodes: Sequence[int]) -> Chain:
        """The chain, with inputs first, and what others read of it as live."""
        live = self._live(nodes)
        order = self._order()
        chain = Chain(
            name=self.name,
            inputs=tuple(Input(name, self.specs[v], below) for v, (name, below) in self.inputs.items()),
            calls=tuple(_renumbered(call, order) for call, _ in self.calls),
            live=tuple(order[v] for v in live),
        )
        try:
            check(chain)
        except ChainError as error:
            raise NotRebuilt(error.message.removeprefix(f"{self.name}: ")) from None
        return settled(chain)[0] if computed(chain) else chain


DENSE = "strides are not recorded: tensors are taken to lie without gaps, their last axis innermost"
_FEW = 2  # whole numbers that places are computed from stay below this


def _merged(outputs: Sequence[Seen]) -> list[Seen]:
    return sorted(outputs, key=lambda s: (s.position, s.member))


def _renumbered(call: Call, order: Mapping[int, int]) -> Call:
    def one(value: Value) -> Value:
        if isinstance(value, Ref):
            return Ref(order[value.value])
        if isinstance(value, Refs):
            return Refs(tuple(None if v is None else order[v] for v in value.values))
        return value

    return Call(call.operator, call.overload, tuple(one(v) for v in call.arguments), call.outputs)
