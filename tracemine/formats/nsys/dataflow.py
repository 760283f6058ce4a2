"""Producers of tensors: `input_op_ids` of PyTorch's NVTX ranges as rows of `tensors`.

A text names, for each input, the operator that gave it. PyTorch finds that by the address of the tensor object, of
which memory is used again: an object that no operator of the recording gave (a number wrapped as a tensor, memory that
an operator allocates inside) is named after whichever operator gave the last one at its address. So a name is believed
only where nothing speaks against it:

- the maker's output has the shape that is read;
- inside an operator of the table, whose inputs are all that it knows, an input is one of these or made inside;
- inside a node of the backward pass, it is one of the node's inputs, made inside, or an input or output of the forward
  operators with the same sequence number, whose saved tensors the node holds. A saved tensor has an object of its own:
  of several that look the same it may be any, which is no matter where no operator made or wrote one of them.

What is not believed is left out, and the operator is not `known` then. A storage's number is made up here: one for each
tensor that an operator made; a view and what is written in place share that of their input. dtypes are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from tracemine.columns import Array, sorted_unique
from tracemine.formats.nsys import ranges
from tracemine.formats.nsys.calls import Arguments, arguments, output_shapes
from tracemine.formats.nsys.device_rows import Columns, Reasons
from tracemine.formats.nsys.ranges import Ranges
from tracemine.formats.nsys.tensor_rows import NvtxTensor, Shape, TensorRow, tensors_table
from tracemine.ops import lookup
from tracemine.timeline.arrow import MISSING

_NEW_MEMORY = frozenset({"allocate", "fill", "random"})  # of the last two those that ran on the host
NOT_BELIEVED = "operator that reads a tensor whose maker NVTX does not tell beyond doubt"
# What these give without a kernel is their first input: dropout in evaluation, casts and copies with nothing to do.
_RETURN_THEIR_INPUT = frozenset(
    (
        *("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout"),
        *("aten::to", "aten::contiguous", "aten::type_as", "aten::sum_to_size", "aten::positive"),
        *("aten::_autocast_to_reduced_precision", "aten::_autocast_to_full_precision"),
    )
)
_PARTLY_WRITTEN = "operator whose storage was written through a view of a part"


class _NvtxCall(Struct):
    """One operator while it runs and after: what it was given, and what it and the operators inside it made."""

    row: int
    said: ranges.NvtxRange  # what its text says
    around: int  # row of the operator around it, −1: none
    inputs: list[NvtxTensor | None] = field(default_factory=list)  # None: no tensor, or not believed
    told: bool = True  # every tensor among its inputs is believed
    outputs: dict[int, NvtxTensor] = field(default_factory=dict)
    last_inside: list[int] = field(default_factory=list)  # rows of operators directly inside it, in order

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.said.name

    @property
    def sizes(self) -> ranges.Sizes:
        """Of each argument; empty where the text does not say."""
        return self.said.sizes or ()


class _Walk:
    """The operators of one process in the order in which they begin and end."""

    def __init__(self, ranges: Ranges, launches: Array, device: Array, numel_of_storage: dict[int, int]) -> None:
        self.ranges = ranges
        self.text: list[int] = ranges.columns["text"].tolist()  # of each row; a value of an array takes longer to get
        self.launches: list[bool] = launches.tolist()
        self.device: list[int] = device.tolist()
        self.numel = numel_of_storage
        self.calls: dict[int, _NvtxCall] = {}  # by row
        self.by_id: dict[int, _NvtxCall] = {}  # by op_id, once it has ended
        self.forward: dict[int, list[_NvtxCall]] = {}  # by sequence number
        self.outside: set[Shape] = set()  # shapes of tensors of no operator that were read so far
        self.unnamed: set[int] = set()  # storages of tensors of no operator
        self.written: set[int] = set()  # storages that were written in place
        self.told_later: dict[int, Shape] = {}  # by storage: what others say of one whose maker said none

    def begin(self, row: int, around: int) -> None:
        said = self.ranges.parsed[self.text[row]]
        call = self.calls[row] = _NvtxCall(row, said, around)
        if around >= 0:
            self.calls[around].last_inside.append(row)
        if said.sizes is None or said.makers is None or len(said.sizes) != len(said.makers):
            call.told = False
            return
        for shape, maker in zip(said.sizes, said.makers, strict=True):
            found = self._input(call, shape, maker)
            call.inputs.append(found)
            call.told &= found is not None or not shape
        self._note_outside(call, said)

    def end(self, row: int) -> None:
        call = self.calls[row]
        said = call.said
        if said.sizes is not None and said.op_id is not None:
            self._make_outputs(call, arguments(said.name, said.sizes), said.sizes)
            self.by_id[said.op_id] = call
            if said.sequence is not None and not ranges.is_backward(said.name):
                self.forward.setdefault(said.sequence, []).append(call)

    def _note_outside(self, call: _NvtxCall, said: ranges.NvtxRange) -> None:
        """Note a writer of no operator: it may write any tensor of this shape that was read before."""
        known, makers, sizes = arguments(call.name, said.sizes or ()), said.makers or (), said.sizes or ()
        unnamed = [at for at, (_, output) in enumerate(makers) if output < 0 and sizes[at]]
        if known is not None and self._holder(call) is None:
            written = {known.entry(position) for position in known.mutates}
            call.told &= not any(at in written and sizes[at] in self.outside for at in unnamed)
        self.outside |= {sizes[at] for at in unnamed}

    def _new(self, shape: Shape | None) -> NvtxTensor:
        number = len(self.numel)
        self.numel[number] = -1 if shape is None else prod(shape)
        return NvtxTensor(number, shape)

    def _input(self, call: _NvtxCall, shape: Shape, maker: ranges.Maker) -> NvtxTensor | None:
        made_by = self.by_id.get(maker[0]) if maker[1] >= 0 else None
        made = None if made_by is None else made_by.outputs.get(maker[1])
        if made is not None and made.shape is None and shape:
            made.shape = shape  # the first to read it says what its maker did not
            self.told_later.setdefault(made.storage, shape)
            if self.numel[made.storage] < 0:
                self.numel[made.storage] = prod(shape)
        if made is not None and made.shape != shape:
            made = None
        if maker[1] >= 0:
            reachable = made is not None and self._reaches(call, made)
            return NvtxTensor(made.storage, shape) if made is not None and reachable else self._inner(call, shape)
        return self._unnamed(call, shape) if shape else None

    def _unnamed(self, call: _NvtxCall, shape: Shape) -> NvtxTensor | None:
        """Return a tensor of no operator: a parameter or an input of the model, unless memory made inside."""
        holder = self._holder(call)
        if holder is None:
            made = self._new(shape)
            self.unnamed.add(made.storage)
            return made
        same = {t.storage: t for t in self._given(holder) if t.shape == shape}
        if not same:
            return self._inner(call, shape)
        unnamed = [t for storage, t in same.items() if storage in self.unnamed]
        matters = len(unnamed) < len(same) or not self.written.isdisjoint(same)
        if len(same) > 1 and matters and ranges.is_backward(holder.name):
            return None
        if self._computed_inside(holder, shape):
            return None  # that, or what the holder was given
        taken = {t.storage for t in call.inputs if t is not None}
        return next((t for t in unnamed if t.storage not in taken), next(iter(same.values())))

    def _inner(self, call: _NvtxCall, shape: Shape) -> NvtxTensor | None:
        """Return memory that an operator of the table allocates and hands to those inside it; else it is unknown."""
        holder = self._holder(call)
        inside = holder is not None and holder.told and not ranges.is_backward(holder.name) and bool(shape)
        return self._new(shape) if inside else None

    def _holder(self, call: _NvtxCall) -> _NvtxCall | None:
        """Return the nearest operator or backward node around a call of which it is known what it can hold."""
        around = call.around
        while around >= 0:
            outer = self.calls[around]
            if ranges.is_backward(outer.name) and outer.said.sequence is not None:
                return outer
            if arguments(outer.name, outer.sizes) is not None:
                return outer
            around = outer.around
        return None

    def _given(self, holder: _NvtxCall) -> list[NvtxTensor]:
        """Return the tensors that a holder had before it began."""
        given = [t for t in holder.inputs if t is not None]
        sequence = holder.said.sequence
        if ranges.is_backward(holder.name) and sequence is not None:
            for forward in self.forward.get(sequence, ()):
                given += [t for t in forward.inputs if t is not None]
                given += forward.outputs.values()
        return given

    def _computed_inside(self, holder: _NvtxCall, shape: Shape) -> bool:
        """Return whether an operator directly inside has computed a result of this shape, not in place."""
        inside = (self.calls[row] for row in holder.last_inside if self.device[row] >= 0)
        given = {t.storage for t in self._given(holder)}
        return any(t.shape == shape and t.storage not in given for one in inside for t in one.outputs.values())

    def _reaches(self, call: _NvtxCall, made: NvtxTensor) -> bool:
        """Return whether an operator inside another can have been given this storage."""
        holder = self._holder(call)
        if holder is None:
            return True
        storages = {t.storage for t in self._given(holder)}
        waiting = list(holder.last_inside)
        while waiting:
            inner = self.calls[waiting.pop()]
            storages |= {t.storage for t in inner.outputs.values()}
            storages |= {t.storage for t in inner.inputs if t is not None}
            waiting += inner.last_inside
        return made.storage in storages

    def _make_outputs(self, call: _NvtxCall, known: Arguments | None, sizes: ranges.Sizes) -> None:
        """Fill `call.outputs`: for each output whose storage is known, that and its shape."""
        if known is None:
            return
        shapes = output_shapes(call.name, sizes)
        for number, aliased in enumerate(known.aliases):
            shape = shapes[number] if number < len(shapes) else None
            made = self._output(call, known, number, aliased, shape)
            if made is not None:
                call.outputs[number] = made

    def _output(
        self, call: _NvtxCall, known: Arguments, number: int, aliased: int | None, shape: Shape | None
    ) -> NvtxTensor | None:
        """Return an output; None where its storage is not known. aliased: the argument whose storage it may share."""
        source = None if aliased is None else self._argument(call, known, aliased)
        if aliased is not None and aliased in known.mutates:
            if source is not None:
                self.written.add(source.storage)
            return source and NvtxTensor(source.storage, source.shape)
        if aliased is not None and not self.launches[call.row]:
            return source and NvtxTensor(source.storage, shape)
        if self.device[call.row] >= 0:
            return self._new(shape)
        return self._made_inside(call, number, shape) if self.launches[call.row] else self._on_host(call, number, shape)

    def _on_host(self, call: _NvtxCall, number: int, shape: Shape | None) -> NvtxTensor | None:
        """Return the result of an operator that launched nothing: its input, new memory, or what the last operator
        inside it gave. What another gives is unknown, and so is what its consumers read.
        """
        given = call.inputs[0] if call.inputs else None
        if call.name in _RETURN_THEIR_INPUT:
            return given and NvtxTensor(given.storage, given.shape)
        return self._new(shape) if _allocates(call.name) else self._made_inside(call, number, shape)

    def _argument(self, call: _NvtxCall, known: Arguments, position: int) -> NvtxTensor | None:
        at = known.entry(position)
        return call.inputs[at] if at is not None and at < len(call.inputs) else None

    def _made_inside(self, call: _NvtxCall, number: int, shape: Shape | None) -> NvtxTensor | None:
        """Return what the last operator inside gave, of this shape, as the one around it gives it: of the one or the
        other alone the shape may be known."""
        for row in reversed(call.last_inside):
            outputs = self.calls[row].outputs
            made = outputs.get(number, outputs.get(0))
            if made is not None and (shape is None or made.shape is None or made.shape == shape):
                if shape is not None and made.shape is None:
                    self.told_later.setdefault(made.storage, shape)
                return NvtxTensor(made.storage, shape or made.shape)
        return None


def tensors_of(
    ranges: Ranges, parent: Array, op_row: Array, gpu: Columns, report: Reasons
) -> tuple[Array, pa.Table | None]:
    """Return for each range the id of its operator where all its reads are known, MISSING elsewhere; and the tensors.

    `op_row` is the owner of each activity. None: no range says who made what.
    """
    columns = ranges.columns
    node = np.full(len(ranges), MISSING)
    if not any(r.makers is not None and r.is_op for r in ranges.parsed):
        return node, None
    device = np.full(len(ranges) + 1, -1, np.int64)  # of the kernels that an operator launched itself
    device[op_row] = np.where(gpu["device"] == MISSING, 0, gpu["device"])
    device = device[:-1]
    launches = device >= 0
    outer = parent.tolist()
    for row in np.flatnonzero(parent >= 0)[::-1].tolist():  # what is inside stands later
        if launches[row]:
            launches[outer[row]] = True
    around = _operator_around(parent, columns["is_op"])
    rows: list[TensorRow] = []
    numel: dict[int, int] = {}
    for process in sorted_unique(columns["process"][columns["is_op"]]).tolist():
        own = np.flatnonzero(columns["is_op"] & (columns["process"] == process))
        walk = _walked(_Walk(ranges, launches, device, numel), own, around)
        rows += _rows(walk, own, node, report)
    return node, tensors_table(rows)


def _allocates(name: str) -> bool:
    """Return whether an operator without a kernel gives new memory: what others give without one was there before."""
    operator = lookup(name)
    return operator is not None and operator.op_class in _NEW_MEMORY


def _operator_around(parent: Array, is_op: Array) -> Array:
    around = np.append(parent, -1)
    passed = np.append(~is_op, False)
    while (moving := passed[around] & (around >= 0)).any():
        around = np.where(moving, around[around], around)
    return around[:-1]


def _walked(walk: _Walk, own: Array, around: Array) -> _Walk:
    """Return all operators, begun and ended in time order; of two threads whichever did first."""
    columns = walk.ranges.columns
    outer, levels = around.tolist(), [0] * len(around)
    for row in own.tolist():
        levels[row] = levels[outer[row]] + 1 if outer[row] >= 0 else 0
    depth = np.array(levels, np.int64)
    # At one moment what is inside ends first, then what is around it, then the next begins.
    moments = np.concatenate((columns["start_ns"][own], columns["end_ns"][own]))
    is_begin = np.repeat([1, 0], len(own))
    empty = np.tile(columns["start_ns"][own] == columns["end_ns"][own], 2)
    level = np.concatenate((depth[own], -depth[own]))
    late = np.where(empty & (is_begin == 0), 2, is_begin)  # what takes no time ends after it began
    order = np.lexsort((level, late, moments))
    for row, begins in zip(own[order % len(own)].tolist(), is_begin[order].tolist(), strict=True):
        if begins:
            walk.begin(row, outer[row])
        else:
            walk.end(row)
    return walk


def _rows(walk: _Walk, own: Array, node: Array, report: Reasons) -> list[TensorRow]:
    torn, device, on_device = _torn(walk), walk.device, _on_device(walk)
    rows: list[TensorRow] = []
    for row in own.tolist():
        call = walk.calls[row]
        said = call.said
        known = None if said.sizes is None else arguments(said.name, said.sizes)
        whole = not torn or torn.isdisjoint(_storages(call))
        if said.op_id is not None and call.told and known is not None and whole:
            node[row] = said.op_id
        elif device[row] >= 0 and said.sizes is not None:
            report.skipped[NOT_BELIEVED if whole else _PARTLY_WRITTEN] += 1
        for entry, tensor in enumerate(call.inputs):
            if tensor is not None and tensor.storage in on_device:
                position, index = (entry, -1) if known is None else known.place(entry)
                rows.append((row, False, position, index, tensor, on_device[tensor.storage]))
        rows += _outputs(call, walk, on_device)
    return rows


def _on_device(walk: _Walk) -> dict[int, int]:
    """Return the device of each storage that a kernel was given or made."""
    calls = ((call, walk.device[call.row]) for call in walk.calls.values())
    return {storage: device for call, device in calls if device >= 0 for storage in _storages(call)}


def _storages(call: _NvtxCall) -> set[int]:
    """Return the storages of all tensors of a call."""
    return {t.storage for t in (*call.inputs, *call.outputs.values()) if t is not None}


def _outputs(call: _NvtxCall, walk: _Walk, on_device: Mapping[int, int]) -> Iterator[TensorRow]:
    """Yield the rows of what a call gives, where its shape is known."""
    for number, tensor in sorted(call.outputs.items()):
        shape = tensor.shape or walk.told_later.get(tensor.storage)
        if shape is not None and tensor.storage in on_device:
            yield call.row, True, number, -1, NvtxTensor(tensor.storage, shape), on_device[tensor.storage]


def _torn(walk: _Walk) -> set[int]:
    """Return storages that were written in place through a view of a part of them: which part is not recorded."""
    found: set[int] = set()
    for call in walk.calls.values():
        known = arguments(call.name, call.sizes)
        for position in () if known is None else known.mutates:
            tensor = walk._argument(call, known, position) if known is not None else None
            if tensor is not None and tensor.shape is not None and prod(tensor.shape) < walk.numel[tensor.storage]:
                found.add(tensor.storage)
    return found
