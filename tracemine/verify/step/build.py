"""From a timeline with proven dataflow to one of its steps as a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tracemine.codegen.graph import GraphCall, LiteralArg, Ref, Refs
from tracemine.codegen.index_inputs import pointing
from tracemine.columns import numbers, sorted_unique
from tracemine.errors import Location, TracemineError
from tracemine.flow.record import Flow
from tracemine.ops import itemsize, op_class, overload_of
from tracemine.ops.facts import base_name, keeping_values
from tracemine.ops.infer import TensorSpec
from tracemine.validate.input_domains import NOT_NEGATIVE
from tracemine.verdicts.verdict import Left
from tracemine.verify.rebuild.call_facts import CallFacts, RecordedTensor
from tracemine.verify.rebuild.recorded import Recorded
from tracemine.verify.rebuild.view_recovery import Layout
from tracemine.verify.step.calls import Argument, Cover, Taken, Tree
from tracemine.verify.step.program import Argument as Operand
from tracemine.verify.step.program import Buffer, Program, StepCall, TensorRef

_LARGEST_BUFFER_BYTES = 1 << 37  # more memory than a GPU has: such a tensor is not allocated
_MOST_OPERATORS = 200_000
_FEW = 2  # integers that indices are computed from stay below this
# Classes of operators that draw random numbers, some of them with an argument alone: these keep their order.
_DRAWS = frozenset({"random", "attention", "rnn"})


class NoStep(TracemineError):
    """Why no step of a trace can be replayed, in words for a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A program, and of each of its calls which buffer each storage was then."""

    program: Program
    storages: tuple[Mapping[int, int], ...]
    call_of_node: Mapping[int, int]


def step_of(flow: Flow) -> tuple[str, int, int]:
    """Return name, begin and end of the step that is replayed: the last with device time; without steps, all."""
    steps = flow.timeline.steps
    start, dur = (numbers(steps.column(name)) for name in ("start_ns", "dur_ns"))
    used = sorted_unique(flow.nodes.step_row)
    used = used[used >= 0]
    if not len(used):
        return "", 0, 1 << 62
    row = int(used[np.argmax(start[used])])
    return str(steps.column("name")[row].as_py()), int(start[row]), int(start[row] + dur[row])


def proven(flow: Flow) -> None:
    """Raise NoStep where an execution trace does not say which tensor lay where."""
    timeline = flow.timeline
    if timeline.meta.execution_trace is None or not timeline.tensors.num_rows:
        raise NoStep(
            "a step is replayed from an execution trace, and there is none",
            where=Location(str(timeline.meta.source)),
            hint="record one with tracemine.capture, or give it with --et",
        )


def build(flow: Flow, recorded: Recorded, together: Mapping[int, int]) -> Built:
    """Return the program of one step. together: of a node, the occurrence that one kernel would replace.

    Raises NoStep, with the reason, where dataflow is not proven or nothing was recorded.
    """
    proven(flow)
    name, begin, end = step_of(flow)
    tree = Tree.of(recorded, begin, end)
    if len(tree.rows) > _MOST_OPERATORS:
        raise NoStep(f"the step has {len(tree.rows):,} operators, and {_MOST_OPERATORS:,} are looked at")
    cover = Cover(recorded, tree, together)
    making = _Making(recorded, cover)
    for part in cover.parts():
        if isinstance(part, Taken):
            making.add(part)
        else:
            making.leave(*part)
    return making.done(name, flow, begin, end)


class _Making:
    def __init__(self, recorded: Recorded, cover: Cover) -> None:
        self.recorded, self.cover = recorded, cover
        self.memory: list[Buffer] = []
        self.givers: list[list[int]] = []  # of each, calls that make or write it
        self.current: dict[int, int] = {}  # of a storage its buffer
        self.calls: list[StepCall] = []
        self.storages: list[dict[int, int]] = []
        self.left: Counter[str] = Counter()
        self.left_activities: dict[str, list[int]] = {}
        self.hints: list[tuple[int, int]] = []  # buffer: below

    # What is taken.

    def add(self, taken: Taken) -> None:
        """Add one call that is replayed."""
        try:
            self._add(taken)
        except NoStep as reason:
            self.leave(reason.message, taken.activities, taken.facts.outputs)

    def _add(self, taken: Taken) -> None:
        facts, storage = taken.facts, self.recorded.storage
        before = len(self.memory)
        here: dict[int, int] = {}
        arguments = tuple(self._operand(a, here) for a in taken.arguments)
        took = set(here)
        makes: list[int] = []
        outputs: list[tuple[int, int, TensorRef]] = []
        for seen in sorted(facts.outputs, key=lambda s: (s.position, s.member)):
            if seen.dtype is None or len(seen.layout.strides) != len(seen.layout.shape):
                del self.memory[before:], self.givers[before:]
                raise NoStep("the dtype or the strides of what it gives are not recorded")
            key = storage(seen.row)
            if key not in took and here.get(key) not in makes:
                here[key] = self._new(seen, outside=False)
                makes.append(here[key])
            outputs.append((seen.position, seen.member, self._place(seen, here[key])))
        self.current.update(here)
        writes = tuple(
            p
            for p, s in self._taken_places(taken, arguments)
            if s in taken.written or self._marked(taken, p, arguments)
        )
        number = len(self.calls)
        call = StepCall(
            operator=facts.operator,
            overload=taken.overload.name,
            arguments=arguments,
            outputs=tuple(outputs),
            writes=tuple(dict.fromkeys(writes)),
            makes=tuple(makes),
            activities=taken.activities,
            nodes=tuple(self.cover.node_of[r] for r in taken.inside if r in self.cover.node_of),
            draws=not _DRAWS.isdisjoint(op_class(self.cover.facts(row).operator for row in taken.inside)),
        )
        self.calls.append(call)
        self.storages.append(here)
        for buffer in dict.fromkeys((*makes, *(p.buffer for p in writes))):
            self.givers[buffer].append(number)
        self._hint(taken, arguments, here)

    def _taken_places(self, taken: Taken, arguments: Sequence[Operand]) -> Iterable[tuple[TensorRef, int]]:
        for given, operand in zip(taken.arguments, arguments, strict=True):
            if isinstance(given, RecordedTensor) and isinstance(operand, TensorRef):
                yield operand, self.recorded.storage(given.row)
            elif isinstance(given, tuple) and isinstance(operand, tuple):
                for seen, place in zip(given, operand, strict=True):
                    if seen is not None and place is not None:
                        yield place, self.recorded.storage(seen.row)

    @staticmethod
    def _marked(taken: Taken, place: TensorRef, arguments: Sequence[Operand]) -> bool:
        for at in taken.overload.mutates:
            value = arguments[at]
            if value == place or (isinstance(value, tuple) and place in value):
                return True
        return False

    def _operand(self, given: Argument, here: dict[int, int]) -> Operand:
        if isinstance(given, RecordedTensor):
            return self._taken(given, here)
        if isinstance(given, tuple):
            return tuple(None if s is None else self._taken(s, here) for s in given)
        return given

    def _taken(self, seen: RecordedTensor, here: dict[int, int]) -> TensorRef:
        if seen.dtype is None or len(seen.layout.strides) != len(seen.layout.shape):
            raise NoStep("the dtype or the strides of a tensor are not recorded")
        key = self.recorded.storage(seen.row)
        buffer = self.current.get(key)
        if buffer is None or not self._fits(buffer, seen):
            buffer = self.current[key] = self._new(seen, outside=True)
        here[key] = buffer
        return self._place(seen, buffer)

    def _fits(self, buffer: int, seen: RecordedTensor) -> bool:
        """Return whether a tensor can lie there: what is larger than what was allocated lies in other memory."""
        memory = self.memory[buffer]
        if memory.on_host != seen.on_host:
            return False
        return memory.outside or seen.layout.reach[1] * _size(seen) <= memory.elements * memory.itemsize

    def _new(self, seen: RecordedTensor, *, outside: bool) -> int:
        nbytes = seen.layout.reach[1] * _size(seen)
        if nbytes > _LARGEST_BUFFER_BYTES or seen.layout.offset < 0 or min(seen.layout.strides, default=0) < 0:
            raise NoStep("a tensor is larger than any memory")
        self.memory.append(Buffer(outside=outside, on_host=seen.on_host, elements=0, itemsize=_size(seen)))
        self.givers.append([])
        return len(self.memory) - 1

    def _place(self, seen: RecordedTensor, buffer: int) -> TensorRef:
        memory = self.memory[buffer]
        nbytes = seen.layout.reach[1] * _size(seen)
        if nbytes > _LARGEST_BUFFER_BYTES:
            raise NoStep("a tensor is larger than any memory")
        memory.elements = max(memory.elements, -(-nbytes // memory.itemsize))
        layout: Layout = seen.layout
        return TensorRef(buffer, layout.offset, layout.shape, layout.strides, str(seen.dtype))

    # What is not.

    def leave(self, reason: str, activities: Sequence[int], gave: Sequence[RecordedTensor]) -> None:
        """Leave out a call: from here on, what it gave comes from outside."""
        if activities:
            self.left[reason] += 1
            self.left_activities.setdefault(reason, []).extend(activities)
        for seen in gave:
            self.current.pop(self.recorded.storage(seen.row), None)

    # What memory from outside holds.

    def _hint(self, taken: Taken, arguments: Sequence[Operand], here: Mapping[int, int]) -> None:
        base = taken.facts.operator.removeprefix("aten::")
        for argument, operand in zip(taken.overload.arguments, arguments, strict=True):
            if (base, argument.name) in NOT_NEGATIVE:
                for place in operand if isinstance(operand, tuple) else (operand,):
                    if isinstance(place, TensorRef):
                        self.memory[place.buffer].positive = True
        for row in taken.inside:
            facts = self.cover.facts(row)
            for seen, below in _pointed(facts):
                buffer = here.get(self.recorded.storage(seen.row))
                if buffer is not None:
                    self.hints.append((buffer, below))
                    continue
                for place in self.calls[-1].reads:
                    if place.dtype in ("int64", "int32"):
                        self.hints.append((place.buffer, below))

    def _bound(self) -> None:
        """Keep indices within what they point into; keep what they are computed from small."""
        done: set[tuple[int, int]] = set()
        todo = list(self.hints)
        while todo:
            buffer, below = todo.pop()
            if (buffer, below) in done:
                continue
            done.add((buffer, below))
            memory = self.memory[buffer]
            if memory.outside:
                memory.below = below if memory.below is None else min(below, memory.below)
            for number in self.givers[buffer]:
                call = self.calls[number]
                keeps = base_name(call.operator) in keeping_values() | {"copy"}
                places = [p for p in call.reads if p.dtype in ("int64", "int32") and p.buffer != buffer]
                todo += [(p.buffer, below if keeps else min(below, _FEW)) for p in places]

    def done(self, name: str, flow: Flow, begin: int, end: int) -> Built:
        """Return the program, with what was left out counted."""
        if not self.calls:
            raise NoStep("no call of a step can be replayed", where=Location(str(flow.timeline.meta.source)))
        self._bound()
        activities = flow.timeline.activities
        dur = numbers(activities.column("dur_ns"))
        replayed = sorted(a for call in self.calls for a in call.activities)
        left = {a for part in self.left_activities.values() for a in part}
        known = {*replayed, *left}
        unowned = _within(activities, begin, end, known if name else ()) - known
        lost = [
            Left(reason=reason, calls=count, gpu_ns=int(dur[self.left_activities[reason]].sum()))
            for reason, count in self.left.most_common()
        ]
        if unowned:
            reason = "kernels that belong to no operator of the step"
            lost.append(Left(reason=reason, calls=len(unowned), gpu_ns=int(dur[sorted(unowned)].sum())))
        replayed_ns = int(dur[replayed].sum())
        program = Program(
            step=name,
            buffers=tuple(self.memory),
            calls=tuple(self.calls),
            live=self._live(),
            left=tuple(lost),
            gpu_ns=replayed_ns + sum(each.gpu_ns for each in lost),
            replayed_ns=replayed_ns,
            launches=len(known) + len(unowned),
            replayed_launches=len(replayed),
            assumptions=tuple(self.cover.assumptions),
        )
        nodes = {node: at for at, call in enumerate(self.calls) for node in call.nodes}
        return Built(program=program, storages=tuple(self.storages), call_of_node=nodes)

    def _live(self) -> tuple[TensorRef, ...]:
        """Return state that was written, and results that no call reads."""
        read = {p.buffer for call in self.calls for p in call.reads if not call.is_view}
        found: dict[int, TensorRef] = {}
        for call in self.calls:
            for place in call.writes:
                if self.memory[place.buffer].outside and not self.memory[place.buffer].on_host:
                    found.setdefault(place.buffer, place)
            for position, _, place in call.outputs:
                made = place.buffer in call.makes and place.buffer not in read
                if made and position == 0 and call.activities and not self.memory[place.buffer].on_host:
                    found.setdefault(place.buffer, place)
        return tuple(found.values())


def _within(activities: pa.Table, begin: int, end: int, known: Collection[int]) -> set[int]:
    """Return activities of no operator that began in a step, and all that are of the step that most of `known` are."""
    start, op_row = numbers(activities.column("start_ns")), numbers(activities.column("op_row"), -1)
    found = set(np.flatnonzero((op_row < 0) & (start >= begin) & (start < end)).tolist())
    if known:
        step_row = numbers(activities.column("step_row"), -1)
        mine = int(np.bincount(step_row[sorted(known)] + 1).argmax()) - 1
        found |= set(np.flatnonzero((step_row == mine) & (mine >= 0)).tolist())
    return found


def _size(seen: RecordedTensor) -> int:
    return itemsize(str(seen.dtype)) or 1


def _pointed(facts: CallFacts) -> list[tuple[RecordedTensor, int]]:
    """Index tensors among what a call took, each with the number of places that it may point to."""
    overload = overload_of(facts.operator, facts.overload)
    if overload is None:
        return []
    seen: list[RecordedTensor] = []
    values: list[Ref | Refs | LiteralArg | None] = []
    for place, argument in enumerate(overload.arguments):
        mine = [s for s in facts.inputs if s.position == place]
        if argument.is_tensor and argument.is_list:
            members = {max(s.member, 0): len(seen) + k for k, s in enumerate(mine)}
            values.append(Refs(tuple(members.get(k) for k in range(max(members, default=-1) + 1))))
        elif argument.is_tensor:
            values.append(Ref(len(seen)) if mine else None)
            mine = mine[:1]
        else:
            values.append(_whole(facts, place))
        seen += mine
    specs = [TensorSpec(s.layout.shape, s.dtype, s.layout.strides) for s in seen]
    call = GraphCall(facts.operator, overload.name, tuple(values), ())
    return [(seen[value], below) for value, below in pointing(call, specs)]


def _whole(facts: CallFacts, place: int) -> LiteralArg | None:
    text = facts.texts[place] if facts.texts is not None and place < len(facts.texts) else ""
    return LiteralArg(int(text)) if text.lstrip("-").isdigit() and len(text) < 8 else None
