"""Compulsory device memory traffic: each distinct input element read once, each output element written once.

As if nothing were read twice and nothing stayed in a cache. An axis of stride 0 repeats one element. A lookup reads
what it returns and the indices, not the table. Views move nothing. Python numbers are no traffic.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.ops.facts import LOOKED_UP, PLACED, REPLACED, UNKNOWN, UNREAD
from tracemine.ops.infer.arguments import Arguments, Unknown, refuse_if
from tracemine.ops.infer.tensor import TensorSpec, is_contiguous, viewed

_MOST = 1 << 60  # a record that says more bytes than this is damaged
_STILL = frozenset({"view", "metadata", "allocate"})  # classes that move nothing
# Kinds of work whose elements are chosen by values, or done in an order of their own, unless the operator has a row.
_UNTOLD = frozenset({"collective", "sparse", "fft", "linalg", "rnn", "other"})

Counts = tuple[int | None, int | None]


def traffic(call: Arguments, outputs: tuple[TensorSpec | None, ...] | None) -> Counts:
    """Return bytes read and bytes written; None where not known. May raise as the rules of outputs do."""
    kind = call.overload.op_class
    if kind in _STILL:
        return _view(call, outputs)
    if kind in _UNTOLD or call.name in UNKNOWN:
        return None, None
    if call.name == "contiguous":
        source = call.tensor("self")
        if source.strides is not None and is_contiguous(source.shape, source.strides):
            return 0, 0
    if (source_name := PLACED.get(call.name)) is not None:
        return _placed(call, source_name)
    made = None if outputs is None else _new(call, outputs)
    return _bounded(_read(call, outputs)), _bounded(_added(made, _written(call)))


def _view(call: Arguments, outputs: tuple[TensorSpec | None, ...] | None) -> Counts:
    """Return nothing, but for a reshape that strides forbid to be a view: then all is copied."""
    if not call.name.startswith(("reshape", "flatten")):
        return 0, 0
    if outputs is None or outputs[0] is None or outputs[0].strides is None:
        return None, None
    source = call.tensor("self")
    if source.strides is None:
        return None, None
    if viewed(source.shape, source.strides, outputs[0].shape) is not None:
        return 0, 0
    return _bounded(source.bytes), _bounded(outputs[0].bytes)


def _bounded(count: int | None) -> int | None:
    return None if count is None or count > _MOST else count


def _added(*counts: int | None) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _bytes(tensors: Iterable[TensorSpec | None]) -> int | None:
    return _added(*(None if tensor is None else tensor.bytes for tensor in tensors))


def _read(call: Arguments, outputs: tuple[TensorSpec | None, ...] | None) -> int | None:
    """Return the tensors that are read; of a lookup, as much of the table as comes out."""
    name, overload = call.name, call.overload
    skipped = UNREAD.get(name, frozenset())
    tensors: list[TensorSpec | None] = []
    for place, given in enumerate(call.inputs):
        argument = overload.arguments[place]
        if place in overload.overwrites or argument.name in skipped or call.is_number(place):
            continue
        if isinstance(given, TensorSpec):
            tensors.append(given)
        elif isinstance(given, tuple):
            if not given and argument.is_tensor:
                return None  # a list too long to be recorded, or of optional tensors
            tensors.extend(given)
        elif argument.is_list and argument.is_tensor:
            return None
    if name in LOOKED_UP:
        if outputs is None:
            return None
        tensors.extend(outputs)
    return _bytes(tensors)


def _new(call: Arguments, outputs: tuple[TensorSpec | None, ...]) -> int | None:
    """Return the outputs that are no inputs. One that is not made costs nothing; an unknown one is small (a seed)."""
    overload = call.overload
    kinds = [place for place, kind in enumerate(overload.outputs) if kind.startswith("Tensor")]
    if any(overload.outputs[place].startswith("Tensor[]") for place in kinds):
        shared = any(overload.aliases[place] is not None for place in kinds)
        return 0 if shared else _bytes(outputs)
    fresh = []
    for place, output in zip(kinds, outputs, strict=True):
        target = overload.aliases[place]
        if target not in overload.mutates or _resized(call, target):
            fresh.append(output)
    return _bytes(output for output in fresh if output is not None)


def _resized(call: Arguments, place: int | None) -> bool:
    """Return whether that input is an empty out=, which takes the result's size."""
    if place not in call.overload.overwrites or place < call.overload.positional:
        return False
    given = call.at(place)
    return isinstance(given, TensorSpec) and not given.elements


def _written(call: Arguments) -> int | None:
    """Return the inputs that are written into."""
    targets: list[TensorSpec | None] = []
    for place in call.overload.mutates:
        given = call.at(place)
        if isinstance(given, tuple):
            if not given:
                return None
            targets.extend(given)
        elif given is not None:
            targets.append(given)  # an empty out= counts nothing here; what it becomes is new
    return _bytes(targets)


def _placed(call: Arguments, source_name: str) -> Counts:
    """Return what is written at indices: as many elements as are put; and read: those, and the indices."""
    source, target = call.optional(source_name), call.tensor("self")
    index = call.optional("index")
    if source is None or target.bytes is None or source.bytes is None:
        raise Unknown("what is placed was not recorded")
    element = target.bytes // max(target.distinct_elements, 1)
    count = min(index.elements if call.name.startswith("scatter") and index else source.elements, target.elements)
    refuse_if(source_name == "values", "the indices were not recorded")
    read = _added(source.bytes, 0 if index is None else index.bytes)
    again = 0 if call.name in REPLACED else count * element
    return _bounded(_added(read, again)), _bounded(count * element)
