"""One recorded call of an operator: what was recorded of it, and what follows from that.

None: not recorded, damaged, or not known. Each fact is found when it is asked for, and once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

import msgspec

from tracemine.ops import Operator, Overload, lookup
from tracemine.ops.dtypes import dtype
from tracemine.ops.infer.arguments import LARGEST, LISTS, MISFITS, Arguments, Given, ListDtype, given_tensors, signature
from tracemine.ops.infer.flops import flops
from tracemine.ops.infer.outputs import outputs
from tracemine.ops.infer.tensor import Sizes, TensorSpec
from tracemine.ops.infer.traffic import traffic

# Of one input: sizes, or strides, of a tensor; of a list those of each member; () for a number, None, a 0-dim tensor.
Extents = tuple[int | Sizes, ...]

_EXTENTS = msgspec.json.Decoder(tuple[Extents, ...])
_WORDS = msgspec.json.Decoder(tuple[str, ...])
_Read = TypeVar("_Read")


class Call:
    """A call. It never changes: two calls with the same record are the same.

    >>> call = Call("aten::mm", ((4, 8), (8, 2)), ("float", "float"))
    >>> call.overload.name, call.op_class, call.bytes_read, call.bytes_written, call.flops
    ('', 'gemm', 192, 32, 128)
    """

    def __init__(
        self,
        name: str,
        shapes: tuple[Extents, ...] | None = None,
        dtypes: tuple[str, ...] | None = None,
        strides: tuple[Extents, ...] | None = None,
        values: tuple[str, ...] | None = None,
        list_dtype: ListDtype = None,
    ) -> None:
        self.name = name  # "" where none is recorded
        self.shapes = shapes  # one entry an input, and so with all of these
        self.dtypes = dtypes  # as recorded
        self.strides = strides
        self.values = values  # of what is no tensor, as text
        self.list_dtype = list_dtype  # of the members of lists, which profilers do not record
        self._with: dict[str, Call] = {}

    # --- what was recorded, an input at a time ---

    def shape(self, place: int) -> Sizes | None:
        """Return the shape of an input that is no list of tensors.

        >>> call = Call("aten::cat", (((2, 3), (2, 4)), ()), ("TensorList", "Scalar"))
        >>> call.shape(0), call.shape(1), call.shape(2), call.members(0), call.members(1)
        (None, (), None, ((2, 3), (2, 4)), ())
        """
        return sizes(self.shapes[place]) if self.shapes is not None and place < len(self.shapes) else None

    def members(self, place: int) -> tuple[Sizes, ...]:
        """Return the shapes of the members of a list; none where the input is none, or they were not recorded."""
        given = self.shapes[place] if self.shapes is not None and place < len(self.shapes) else ()
        shapes = [sizes(each) for each in given if isinstance(each, tuple)]
        return tuple(each for each in shapes if each is not None) if len(shapes) == len(given) else ()

    def dtype(self, place: int) -> str | None:
        """Return the dtype of an input that is a tensor, or a number that was recorded as one."""
        return dtype(self.dtypes[place]) if self.dtypes is not None and place < len(self.dtypes) else None

    def value(self, place: int) -> str:
        """Return the value of an input as text; "" for a tensor and for None, and where it was not recorded."""
        return self.values[place] if self.values is not None and place < len(self.values) else ""

    @cached_property
    def first_tensor(self) -> tuple[Sizes | None, str | None]:
        """Return shape and dtype of the first tensor among the inputs; of a list, its first member's shape alone.

        >>> Call("aten::mul", ((), (4, 8)), ("Scalar", "c10::BFloat16")).first_tensor
        ((4, 8), 'bfloat16')
        """
        for place, (given, recorded) in enumerate(zip(self.shapes or (), self.dtypes or (), strict=False)):
            if recorded in LISTS:
                if given and isinstance(given[0], tuple):
                    return sizes(given[0]), None
            elif (name := dtype(recorded)) is not None:
                return self.shape(place), name
        return None, None

    # --- what follows ---

    @cached_property
    def operator(self) -> Operator | None:
        """Return the operator that was called."""
        return lookup(self.name)

    @cached_property
    def overload(self) -> Overload | None:
        """Return the overload that was called, as far as the recorded types say which."""
        try:
            return signature(self.name, self.dtypes)[1] if self.dtypes else None
        except MISFITS:
            return None

    @property
    def op_class(self) -> str | None:
        """Return the class of the overload, else of the operator."""
        one = self.overload or self.operator
        return None if one is None else one.op_class

    @cached_property
    def arguments(self) -> Arguments | None:
        """Return the inputs by the names of the overload's arguments."""
        if self.shapes is None or self.dtypes is None:
            return None
        try:
            return Arguments(self.name, self.shapes, self.dtypes, self.strides, self.values, self.list_dtype)
        except MISFITS:
            return None

    @cached_property
    def inputs(self) -> tuple[Given, ...] | None:
        """Return the tensors taken, an entry an input, whether or not the operator is known."""
        if self.shapes is None or self.dtypes is None:
            return None
        if self.arguments is not None:
            return tuple(self.arguments.inputs[: len(self.dtypes)])
        try:
            return tuple(given_tensors(self.shapes, self.dtypes, self.strides, self.list_dtype))
        except MISFITS:
            return None

    @cached_property
    def outputs(self) -> tuple[TensorSpec | None, ...] | None:
        """Return the tensors made, lists flat among them; an entry is None where that output is not known."""
        try:
            return None if self.arguments is None else outputs(self.arguments)
        except MISFITS:
            return None

    @cached_property
    def _traffic(self) -> tuple[int | None, int | None]:
        try:
            return (None, None) if self.arguments is None else traffic(self.arguments, self.outputs)
        except MISFITS:
            return None, None

    @property
    def bytes_read(self) -> int | None:
        """Return the least that must be read, each distinct element once."""
        return self._traffic[0]

    @property
    def bytes_written(self) -> int | None:
        """Return the least that must be written."""
        return self._traffic[1]

    @cached_property
    def flops(self) -> int | None:
        """Return floating-point operations, as ops/infer/flops.py counts them."""
        try:
            return None if self.arguments is None else flops(self.arguments, self.outputs)
        except MISFITS:
            return None

    def with_members(self, name: str | None) -> Call:
        """Return the call whose lists have members of this dtype, where something else says so."""
        if name is None or self.dtypes is None or not any(each in LISTS for each in self.dtypes):
            return self
        if name not in self._with:
            self._with[name] = Call(self.name, self.shapes, self.dtypes, self.strides, self.values, name)
        return self._with[name]


def sizes(given: Extents | int) -> Sizes | None:
    """Return sizes, or strides, that some tensor can have; None where they are a list's, or damaged.

    >>> sizes((2, 3)), sizes((2, -1)), sizes(((2,), (3,)))
    ((2, 3), None, None)
    """
    if not isinstance(given, tuple):
        return None
    known = tuple(size for size in given if isinstance(size, int) and 0 <= size <= LARGEST)
    return known if len(known) == len(given) else None


class Texts:
    """Texts, each decoded once however often it is asked for."""

    def __init__(self) -> None:
        self.damaged = 0  # texts that could not be read
        self._extents: dict[str, tuple[Extents, ...] | None] = {}
        self._words: dict[str, tuple[str, ...] | None] = {}

    def extents(self, text: str | None) -> tuple[Extents, ...] | None:
        """Return the shapes, or the strides, of a call's inputs.

        >>> Texts().extents("[[2,3],[[4],[5]],[]]"), Texts().extents("[[2"), Texts().extents(None)
        (((2, 3), ((4,), (5,)), ()), None, None)
        """
        return self._read(text, self._extents, _EXTENTS)

    def words(self, text: str | None) -> tuple[str, ...] | None:
        """Return the types, or the values as text, of a call's inputs.

        >>> Texts().words('["float","Scalar"]'), Texts().words("[1]")
        (('float', 'Scalar'), None)
        """
        return self._read(text, self._words, _WORDS)

    def _read(
        self, text: str | None, known: dict[str, _Read | None], decoder: msgspec.json.Decoder[_Read]
    ) -> _Read | None:
        if text is None or text in known:
            return None if text is None else known[text]
        try:
            content = decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            content, self.damaged = None, self.damaged + 1
        known[text] = content
        return content
