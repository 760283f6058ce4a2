"""Distinct operator calls of a timeline: what each takes, makes and writes, decoded once however often it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tracemine.columns import codes, string_ids
from tracemine.flow.effects import Effects, effects
from tracemine.flow.record import IntArray
from tracemine.ops import Operator, Overload, lookup
from tracemine.ops.dtypes import dtype as canonical_dtype
from tracemine.ops.infer import TensorSpec, infer
from tracemine.timeline import Timeline

_LISTS = ("TensorList", "GenericList")
_NUMBERS = ("float64", "int64", "complex128")  # the types of 0-dim tensors that Python numbers are recorded as
_MOST_MEMBERS = 1 << 12  # of a list; Kineto cuts those of more than 30 to nothing
_MOST_AXES = 64
_LARGEST = 1 << 40  # elements, and what a stride steps over: no GPU holds as much


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


class Call(msgspec.Struct, frozen=True):
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
    """The distinct calls of a timeline, decoded when they are asked for."""

    def __init__(self, timeline: Timeline, rows: IntArray) -> None:
        columns = ("name", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
        self._texts = []
        parts = []
        for column in columns:
            ids, texts = string_ids(timeline.ops.column(column))
            self._texts.append(texts)
            parts.append(ids[rows])
        code = codes(*parts)
        first = np.unique(code, return_index=True)[1]
        self.of_op: IntArray = code
        self._parts = [part[first].tolist() for part in parts]
        self._decoded: dict[tuple[int, Lists], Call] = {}

    def __len__(self) -> int:
        return len(self._parts[0])

    def name(self, number: int) -> str:
        """Return the operator's name."""
        return str(self._texts[0][self._parts[0][number]])

    def get(self, number: int, lists: Lists = NOTHING) -> Call:
        """Return the call of this number."""
        key = (number, lists)
        found = self._decoded.get(key)
        if found is None:
            texts = [
                None if part[number] < 0 else column[part[number]]
                for part, column in zip(self._parts, self._texts, strict=True)
            ]
            found = self._decoded[key] = _decoded(str(texts[0]), *texts[1:], lists=lists)
        return found


def _decoded(
    name: str,
    shapes_text: str | None,
    dtypes_text: str | None,
    strides_text: str | None,
    concrete_text: str | None,
    *,
    lists: Lists,
) -> Call:
    recorded = _recorded(shapes_text, dtypes_text, strides_text, lists)
    operator = lookup(name)
    op_class = operator.op_class if operator is not None else None
    slots = None if recorded is None else _slots(*recorded, reads_back=op_class == "sync")
    if recorded is None or slots is None:
        return Call(name, False, op_class, None, (), None, frozenset(), frozenset())
    shapes, dtypes, strides = recorded
    overload = None if operator is None else _overload(operator, dtypes)
    if operator is None or overload is None:
        return Call(name, False, op_class, None, slots, None, frozenset(), frozenset())
    texts = _texts(concrete_text)
    schema = _schema(operator.name, overload)
    done = effects(schema)
    mutates = _mutates(done, texts)
    at = {position: [i for i, slot in enumerate(slots) if slot.position == position] for position in range(len(dtypes))}
    made = infer(name, shapes, dtypes, strides, texts, lists.dtype)
    # Where no strides were recorded, what is made has none to be recognised by either.
    outputs = made.outputs if strides is not None or made.outputs is None else tuple(map(_unstrided, made.outputs))
    return Call(
        name=name,
        known=True,
        op_class=overload.op_class,
        schema=schema,
        slots=slots,
        results=None if outputs is None else _results(overload, outputs, at, slots, texts),
        mutated=frozenset(i for position in mutates for i in at.get(position, ())),
        overwritten=frozenset(i for position in done.overwrites for i in at.get(position, ())),
        numbers=_numbers(shapes, dtypes) if op_class != "sync" else (),
        arguments=tuple(argument.name for argument in overload.arguments),
        lists=tuple(position for position, dtype in enumerate(dtypes) if dtype in _LISTS),
        writes_unknown=any(dtypes[p] in _LISTS and not at[p] for p in mutates if p < len(dtypes)),
        reads_unknown=any(
            argument.is_tensor and argument.is_list and not at[position]
            for position, argument in enumerate(overload.arguments[: len(dtypes)])
        ),
    )


def _recorded(
    shapes_text: str | None, dtypes_text: str | None, strides_text: str | None, lists: Lists
) -> tuple[list[Any], list[str], list[Any] | None] | None:
    """Return shapes, dtypes and strides as recorded, lists with the members that are known; None: they do not fit."""
    shapes, dtypes, strides = map(_list, (shapes_text, dtypes_text, strides_text))
    if shapes is None or dtypes is None or len(shapes) != len(dtypes) or not all(isinstance(d, str) for d in dtypes):
        return None
    if strides is not None and len(strides) != len(shapes):
        strides = None
    for position, members in lists.members:
        if position < len(dtypes) and dtypes[position] in _LISTS and not shapes[position]:
            shapes[position] = [list(spec.shape) for spec in members]
            if strides is not None:
                strides[position] = [list(spec.strides or ()) for spec in members]
    return shapes, dtypes, strides


def _texts(concrete_text: str | None) -> list[str] | None:
    """Return the recorded scalars, as texts; None: not recorded, or damaged."""
    concrete = _list(concrete_text)
    return concrete if concrete is not None and all(isinstance(text, str) for text in concrete) else None


def _overload(operator: Operator, dtypes: Sequence[str]) -> Overload | None:
    """Return the overload that was called: the first that fits, later arguments left out."""
    if not operator.overloads:
        return None
    picked = next(filter(None, (operator.pick((*dtypes, *("",) * later)) for later in range(4))), None)
    return None if picked is None or len(picked.arguments) < len(dtypes) else picked


def _mutates(done: Effects, texts: Sequence[str] | None) -> set[int]:
    """Return the positions of the arguments that are written, but for those that a recorded flag switches off."""
    mutates = set(done.mutates)
    if done.switch is not None and texts is not None and done.switch < len(texts) and texts[done.switch] == "False":
        mutates -= done.switched
    return mutates


def _numbers(shapes: Sequence[Any], dtypes: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Return the dtypes that tensors of one element had which the profiler recorded as numbers."""
    kinds = {canonical_dtype(d) for d, shape in zip(dtypes, shapes, strict=True) if shape == []}
    return tuple(TensorSpec((), kind, ()) for kind in kinds if kind in _NUMBERS)


def _list(text: str | None) -> list[Any] | None:
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _slots(
    shapes: list[Any], dtypes: list[str], strides: list[Any] | None, *, reads_back: bool
) -> tuple[Slot, ...] | None:
    """reads_back: it takes tensors alone, so that none is a Python number."""
    found: list[Slot] = []
    for position, (shape, recorded) in enumerate(zip(shapes, dtypes, strict=True)):
        step = None if strides is None else strides[position]
        if recorded in _LISTS:
            if not isinstance(shape, list) or len(shape) > _MOST_MEMBERS:
                return None
            steps = step if isinstance(step, list) and len(step) == len(shape) else [None] * len(shape)
            for index, (member, one) in enumerate(zip(shape, steps, strict=True)):
                if not isinstance(member, list):
                    break  # a list, but not of tensors
                spec = _spec(member, None, one)
                if spec is None:
                    return None
                found.append(Slot(position, index, spec))
            continue
        dtype = canonical_dtype(recorded)
        if dtype is None or (not shape and dtype in _NUMBERS and not reads_back):
            continue
        spec = _spec(shape, dtype, step)
        if spec is None:
            return None
        found.append(Slot(position, -1, spec))
    return tuple(found)


def _spec(shape: Any, dtype: str | None, strides: Any) -> TensorSpec | None:
    if not isinstance(shape, list) or len(shape) > _MOST_AXES or not all(_is_size(size) for size in shape):
        return None
    if isinstance(strides, list) and len(strides) == len(shape) and all(_is_size(step) for step in strides):
        spec = TensorSpec(tuple(shape), dtype, tuple(strides))
    else:
        spec = TensorSpec(tuple(shape), dtype, None if shape else ())
    return spec if _can_be(spec) else None


def _can_be(spec: TensorSpec) -> bool:
    """Return whether a GPU could hold it: sums of what does stay within 64 bits."""
    return spec.elements <= _LARGEST and all(0 <= size <= _LARGEST for size in (*spec.shape, *(spec.strides or ())))


def _unstrided(spec: TensorSpec | None) -> TensorSpec | None:
    return spec if spec is None or not spec.shape else TensorSpec(spec.shape, spec.dtype, None)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _schema(name: str, overload: Overload) -> str:
    """Return text from which `effects` finds the overload again."""
    arguments = ", ".join(f"{argument.type} {argument.name}" for argument in overload.arguments)
    return f"{name.partition('.')[0]}{'.' if overload.name else ''}{overload.name}({arguments})"


def _results(
    overload: Overload,
    made: Sequence[TensorSpec | None],
    at: dict[int, list[int]],
    slots: tuple[Slot, ...],
    texts: list[str] | None,
) -> tuple[Result, ...] | None:
    wanted = [place for place, kind in enumerate(overload.outputs) if kind.startswith("Tensor")]
    lists = [overload.outputs[place].endswith("[]") for place in wanted]
    if len(wanted) == len(made) and not any(lists):
        where = [(place, -1) for place in wanted]
    elif len(wanted) == 1:
        where = [(wanted[0], index) for index in range(len(made))]
    else:
        return None
    made = [spec if spec is not None and _can_be(spec) else None for spec in made]
    offsets = [min(offset, _LARGEST) for offset in _offsets(overload, made, slots, texts)]
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
    overload: Overload, made: Sequence[TensorSpec | None], slots: tuple[Slot, ...], texts: list[str] | None
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
        if len(made) > 1:  # split, chunk, unbind: one behind the other
            sizes = [spec.shape[axis] if spec is not None and len(spec.shape) == rank else 1 for spec in made]
            return [sum(sizes[:number]) * step for number in range(len(made))]
    except (ValueError, IndexError):
        pass
    return none
