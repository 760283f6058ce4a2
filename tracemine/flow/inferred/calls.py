"""Distinct operator calls of a timeline: what each takes, makes and writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tracemine.calls import Call as Recorded
from tracemine.calls import calls_of
from tracemine.flow.effects import Effects, effects
from tracemine.flow.record import IntArray
from tracemine.ops import Overload
from tracemine.ops.infer.arguments import LARGEST, LISTS, NUMBERS
from tracemine.ops.infer.tensor import TensorSpec
from tracemine.timeline import Timeline


class Slot(msgspec.Struct, frozen=True):
    """A tensor that a call takes."""

    position: int
    list_index: int  # −1: the argument is no list
    spec: TensorSpec  # dtype None: a member of a list


class Result(msgspec.Struct, frozen=True):
    """A tensor that a call gives. alias: the slot whose storage it shares, −1 for a new one."""

    position: int
    list_index: int
    spec: TensorSpec | None
    alias: int
    offset: int = 0  # elements behind where the slot's tensor begins


class CallTensors(msgspec.Struct, frozen=True):
    """One distinct call."""

    name: str
    known: bool  # the operator table has a schema that fits
    op_class: str | None
    schema: str | None
    slots: tuple[Slot, ...]
    results: tuple[Result, ...] | None  # None: what it makes is not known
    mutated: frozenset[int]  # slots
    overwritten: frozenset[int]  # slots
    arguments: tuple[str, ...] = ()  # their names, by position
    lists: tuple[int, ...] = ()  # positions
    numbers: tuple[TensorSpec, ...] = ()  # what may be Python's numbers, or tensors of one element
    writes_unknown: bool = False  # it writes into a list whose members were not recorded, as long ones are not
    reads_unknown: bool = False  # the same of one that it reads

    def argument(self, slot: int) -> str:
        """Return the name of the argument that a slot belongs to; empty where it is not known."""
        position = self.slots[slot].position
        return self.arguments[position] if position < len(self.arguments) else ""


class Lists(msgspec.Struct, frozen=True):
    """What something else shows about the members of a call's lists."""

    dtype: str | None = None
    members: tuple[tuple[int, tuple[TensorSpec, ...]], ...] = ()  # by position, of lists that the profiler has cut


NOTHING = Lists()


class Calls:
    """The distinct calls of a timeline, looked at when they are asked for."""

    def __init__(self, timeline: Timeline, rows: IntArray) -> None:
        self._recorded, self.of_op = calls_of(timeline).distinct(rows)
        self._known: dict[tuple[int, Lists], CallTensors] = {}

    def __len__(self) -> int:
        return len(self._recorded)

    def get(self, number: int, lists: Lists = NOTHING) -> CallTensors:
        """Return the call of this number."""
        key = (number, lists)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = call_of(self._recorded[number], lists)
        return found


def call_of(recorded: Recorded, lists: Lists = NOTHING) -> CallTensors:
    """Return what a call takes, makes and writes, with what else is known of its lists.

    >>> call = call_of(Recorded("aten::mul_", ((4, 8), (8,)), ("float", "float")))
    >>> len(call.slots), call.mutated, call.results[0].alias
    (2, frozenset({0}), 0)
    """
    recorded = _with_members(recorded, lists)
    name, operator, dtypes = recorded.name, recorded.operator, recorded.dtypes or ()
    op_class = operator.op_class if operator is not None else None
    slots = _slots(recorded, reads_back=op_class == "sync")
    if slots is None or operator is None or recorded.arguments is None:
        return CallTensors(name, False, op_class, None, slots or (), None, frozenset(), frozenset())
    overload = recorded.arguments.overload
    schema = _schema(operator.name, overload)
    done = effects(schema)
    mutates = _mutates(done, recorded)
    at: defaultdict[int, list[int]] = defaultdict(list)  # by position, its slots
    for number, slot in enumerate(slots):
        at[slot.position].append(number)
    made = _made(recorded.with_members(lists.dtype))
    cut = {position for position, dtype in enumerate(dtypes) if dtype in LISTS and position not in at}
    return CallTensors(
        name=name,
        known=True,
        op_class=overload.op_class,
        schema=schema,
        slots=slots,
        results=None if made is None else _results(overload, made, at, slots, recorded),
        mutated=_slots_of(mutates, at),
        overwritten=_slots_of(done.overwrites, at),
        numbers=_numbers(recorded) if op_class != "sync" else (),
        arguments=tuple(argument.name for argument in overload.arguments),
        lists=tuple(position for position, dtype in enumerate(dtypes) if dtype in LISTS),
        writes_unknown=not cut.isdisjoint(mutates),
        reads_unknown=_has_unread_list(overload, len(dtypes), at),
    )


def _slots_of(positions: Iterable[int], at: Mapping[int, Sequence[int]]) -> frozenset[int]:
    return frozenset(slot for position in positions for slot in at.get(position, ()))


def _has_unread_list(overload: Overload, count: int, at: Mapping[int, Sequence[int]]) -> bool:
    """Return whether one of the first arguments is a list of tensors of which no member was recorded."""
    given = enumerate(overload.arguments[:count])
    return any(argument.is_tensor and argument.is_list and position not in at for position, argument in given)


def _made(call: Recorded) -> tuple[TensorSpec | None, ...] | None:
    """Return the outputs. Where no strides were recorded, what is made has none either."""
    made, told = call.outputs, call.strides is not None and len(call.strides) == len(call.dtypes or ())
    return made if told or made is None else tuple(map(_unstrided, made))


def _with_members(call: Recorded, lists: Lists) -> Recorded:
    """Return a call with the members of lists that the profiler has cut."""
    if not lists.members or call.shapes is None or call.dtypes is None:
        return call
    shapes = list(call.shapes)
    strides = None if call.strides is None or len(call.strides) != len(shapes) else list(call.strides)
    for position, members in lists.members:
        if position < len(call.dtypes) and call.dtypes[position] in LISTS and not shapes[position]:
            shapes[position] = tuple(spec.shape for spec in members)
            if strides is not None:
                strides[position] = tuple(spec.strides or () for spec in members)
    return Recorded(call.name, tuple(shapes), call.dtypes, None if strides is None else tuple(strides), call.values)


def _mutates(done: Effects, call: Recorded) -> set[int]:
    """Return the positions of the arguments that are written, but for those that a recorded flag switches off."""
    mutates = set(done.mutates)
    if done.switch is not None and call.value(done.switch) == "False":
        mutates -= done.switched
    return mutates


def _numbers(call: Recorded) -> tuple[TensorSpec, ...]:
    """Return the dtypes that tensors of one element had which the profiler recorded as numbers."""
    return tuple(dict.fromkeys(each for each in call.inputs or () if isinstance(each, TensorSpec) and _is_number(each)))


def _is_number(spec: TensorSpec) -> bool:
    return not spec.shape and spec.dtype in NUMBERS


def _slots(call: Recorded, *, reads_back: bool) -> tuple[Slot, ...] | None:
    """reads_back: it takes tensors alone, so that none is a Python number."""
    if call.inputs is None:
        return None
    found: list[Slot] = []
    for position, given in enumerate(call.inputs):
        if isinstance(given, tuple):
            found += [Slot(position, index, spec) for index, spec in enumerate(given)]
        elif given is not None and (reads_back or not _is_number(given)):
            found.append(Slot(position, -1, given))
    return tuple(found)


def _can_be(spec: TensorSpec) -> bool:
    """Return whether a GPU could hold it: sums of what does stay within 64 bits."""
    return spec.elements <= LARGEST and all(0 <= size <= LARGEST for size in (*spec.shape, *(spec.strides or ())))


def _unstrided(spec: TensorSpec | None) -> TensorSpec | None:
    return spec if spec is None or not spec.shape else TensorSpec(spec.shape, spec.dtype, None)


def _schema(name: str, overload: Overload) -> str:
    """Return text from which `effects` finds the overload again."""
    arguments = ", ".join(f"{argument.type} {argument.name}" for argument in overload.arguments)
    return f"{name.partition('.')[0]}{'.' if overload.name else ''}{overload.name}({arguments})"


def _places(overload: Overload, count: int) -> list[tuple[int, int]] | None:
    """Return output and position in a list of each of so many results; None where they do not fit the outputs."""
    wanted = [place for place, kind in enumerate(overload.outputs) if kind.startswith("Tensor")]
    if len(wanted) == count and not any(overload.outputs[place].endswith("[]") for place in wanted):
        return [(place, -1) for place in wanted]
    return [(wanted[0], index) for index in range(count)] if len(wanted) == 1 else None


def _results(
    overload: Overload,
    made: Sequence[TensorSpec | None],
    at: Mapping[int, Sequence[int]],
    slots: tuple[Slot, ...],
    call: Recorded,
) -> tuple[Result, ...] | None:
    where = _places(overload, len(made))
    if where is None:
        return None
    made = [spec if spec is not None and _can_be(spec) else None for spec in made]
    offsets = [min(offset, LARGEST) for offset in _offsets(overload, made, slots, call.values)]
    found = []
    for (place, index), spec, offset in zip(where, made, offsets, strict=True):
        target = overload.aliases[place]
        alias = -1 if target is None else _source(at.get(target, ()), index, slots)
        found.append(Result(place, index, spec, alias, offset if alias >= 0 else 0))
    return tuple(found)


def _source(sources: Sequence[int], index: int, slots: Sequence[Slot]) -> int:
    """Return the slot that a result is a view of, of a list the member; −1: of none."""
    if not sources:
        return -1
    return sources[index] if slots[sources[0]].list_index >= 0 and index < len(sources) else sources[0]


def _offsets(
    overload: Overload, made: Sequence[TensorSpec | None], slots: tuple[Slot, ...], texts: tuple[str, ...] | None
) -> list[int]:
    """Return where views begin, in elements behind their source's beginning; 0 where nothing was recorded of it."""
    none = [0] * len(made)
    if overload.op_class != "view" or texts is None or not slots or slots[0].spec.strides is None:
        return none
    given = {argument.name: text for argument, text in zip(overload.arguments, texts, strict=False)}
    source = slots[0].spec
    rank = len(source.shape)
    try:
        axis = int(given["dim"]) if given.get("dim") else 0
        axis += rank if axis < 0 else 0
        size, step = source.shape[axis], slots[0].spec.strides[axis]
        begin = given.get("index") or given.get("start") or ""
        if begin:
            first = int(begin)
            return [min(max(first + size if first < 0 else first, 0), size) * step] * len(made)
        if len(made) > 1:
            return _behind_each_other(made, axis, rank, step)
    except (ValueError, IndexError):
        pass
    return none


def _behind_each_other(made: Sequence[TensorSpec | None], axis: int, rank: int, step: int) -> list[int]:
    """Return where the parts of a split, chunk or unbind begin."""
    sizes = [spec.shape[axis] if spec is not None and len(spec.shape) == rank else 1 for spec in made]
    return [sum(sizes[:number]) * step for number in range(len(made))]
