"""Which value of a graph draft owns which memory, so that a recorded tensor is found to be one of them.

Views between calls launch nothing: they follow from offset, shape and strides (view_recovery.py). Complex numbers lie
as their parts, two real numbers along a last axis: so they come in, so they leave, and in between view calls make them
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tracemine.ops.infer import TensorSpec
from tracemine.ops.infer.promotion import real
from tracemine.verify.rebuild.call_facts import RecordedTensor
from tracemine.verify.rebuild.draft import Draft, NotRebuilt
from tracemine.verify.rebuild.view_recovery import Layout, views

Buffer = tuple[str, int]  # as in `RecordedTensor`


@dataclass(frozen=True, slots=True)
class Lies:
    """Where a value of the graph lies."""

    buffer: Buffer
    layout: Layout
    dtype: str


@dataclass(slots=True)
class _Root:
    """A tensor of the graph that lies in memory: as an input, or given by a call."""

    layout: Layout
    dtype: str
    value: int  # number in the making
    layouts: dict[Layout, int] = field(default_factory=dict)
    by_graph: bool = False


class Memory:
    """Where the values of a graph lie."""

    def __init__(self, making: Draft) -> None:
        self.making = making
        self.roots: dict[Buffer, list[_Root]] = {}
        self.storages: dict[int, Buffer] = {}  # of a storage the buffer met last
        self.dtypes: dict[Buffer, set[str]] = {}  # of what lies in a buffer
        self.outside: dict[Buffer, list[tuple[Layout, str]]] = {}

    def saw(self, seen: Iterable[RecordedTensor]) -> None:
        """Note dtypes: not every profiler records those of a list's members."""
        for one in seen:
            if one.dtype is not None:
                self.dtypes.setdefault(one.buffer, set()).add(one.dtype)

    def expect(self, taken: Iterable[tuple[Sequence[RecordedTensor], Sequence[RecordedTensor]]]) -> None:
        """Note all layouts of memory from outside, so that the widest becomes the input and the rest views of it.

        taken: of each call what it takes, and what it gives in new memory.
        """
        made: set[Buffer] = set()
        for takes, gives in taken:
            for seen in takes:
                told = seen.dtype is not None and seen.layout.is_known
                if told and seen.buffer not in made:
                    self.outside.setdefault(seen.buffer, []).append(_lies(seen.layout, str(seen.dtype)))
            made.update(seen.buffer for seen in gives)
        for found in self.outside.values():
            found.sort(key=lambda one: one[0].reach[0] - one[0].reach[1])

    def buffer(self, seen: RecordedTensor) -> Buffer:
        """Return a storage that a call did not read may be one that another did."""
        return self.storages.get(seen.buffer[1], seen.buffer) if seen.buffer[0] == "storage" else seen.buffer

    def dtype(self, seen: RecordedTensor) -> str | None:
        """Return the dtype as recorded; of a list's member, which profilers leave out, as another call recorded it."""
        known = self.dtypes.get(self.buffer(seen), set())
        return seen.dtype or (next(iter(known)) if len(known) == 1 else None)

    def at(self, seen: RecordedTensor, dtype: str, argument: str) -> int:
        """Return a tensor's value: one with its layout, a view of one, or an input named after an argument."""
        layout, parts = _lies(seen.layout, dtype)
        value = self._at(self.buffer(seen), layout, parts, argument)
        return value if parts == dtype else self.making.view(value, (("aten::view_as_complex", ()),))

    def _at(self, buffer: Buffer, layout: Layout, dtype: str, name: str) -> int:
        """Return the value that lies in memory so."""
        roots = self.roots.setdefault(buffer, [])
        for root in reversed(roots):
            if root.dtype == dtype and layout in root.layouts:
                return root.layouts[layout]
            if root.dtype == dtype and root.layout.covers(layout):
                steps = views(root.layout, layout)
                if steps is not None:
                    value = self.making.view(root.value, steps)
                    root.layouts[layout] = value
                    return value
            begin, end = root.layout.reach
            if root.by_graph and begin < layout.reach[1] and layout.reach[0] < end:
                raise NotRebuilt("a tensor is read in a layout that no slices and views of what was written give")
        return self._input(buffer, layout, dtype, name)

    def _input(self, buffer: Buffer, layout: Layout, dtype: str, name: str) -> int:
        """Return an input: the widest layout of this memory from which this one follows."""
        for wide, kind in self.outside.get(buffer, ()):
            if kind == dtype and wide != layout and wide.covers(layout) and views(wide, layout) is not None:
                self._new_input(buffer, wide, kind, name)
                return self._at(buffer, layout, dtype, name)
        return self._new_input(buffer, layout, dtype, name)

    def _new_input(self, buffer: Buffer, layout: Layout, dtype: str, name: str) -> int:
        """Return an input; of what repeats elements, those that it repeats."""
        if any(n > 1 and not s for n, s in zip(layout.shape, layout.strides, strict=True)):
            once = tuple(n if s else 1 for n, s in zip(layout.shape, layout.strides, strict=True))
            source = Layout(layout.offset, once, layout.strides)
            if not source.covers(layout) or views(source, layout) is None:  # sizes as no recorder writes them
                raise NotRebuilt("a tensor repeats elements in a way that no expand gives")
            self._new_input(buffer, source, dtype, name)
            return self._at(buffer, layout, dtype, name)
        value = self.making.input(name, TensorSpec(layout.shape, dtype, layout.strides))
        beside = self.roots.setdefault(buffer, [])
        if any(r.layout.reach[0] < layout.reach[1] and layout.reach[0] < r.layout.reach[1] for r in beside):
            self.making.assumptions.append("inputs that lie in one memory are tried apart from each other")
        beside.append(_Root(layout, dtype, value, {layout: value}))
        return value

    def made(self, seen: RecordedTensor, value: int, storage: int | None) -> None:
        """Note that a call of the graph gave a value in new memory. storage: its id, where it has one."""
        buffer = self.buffer(seen)
        spec = self.making.specs[value]
        layout, dtype = _lies(Layout(seen.layout.offset, spec.shape, spec.strides or ()), str(spec.dtype))
        if dtype != spec.dtype:
            value = self.making.view(value, (("aten::view_as_real", ()),))
        self.roots[buffer] = [_Root(layout, dtype, value, {layout: value}, by_graph=True)]
        if storage is not None:
            self.storages[storage] = buffer

    def overwritten(self, values: Iterable[int]) -> None:
        """Forget layouts of memory that was written in place: they are read anew."""
        for v in values:
            for roots in self.roots.values():
                for root in roots:
                    if v in root.layouts.values():
                        _alone(root, roots)
                        root.layouts = {root.layout: root.value}

    def lies(self, values: Iterable[int]) -> tuple[Lies | None, ...]:
        """Return where some values lie; None where nothing tells."""
        found = {
            root.value: Lies(buffer, root.layout, root.dtype) for buffer, roots in self.roots.items() for root in roots
        }
        return tuple(found.get(value) for value in values)

    def given(self, seen: RecordedTensor) -> int | None:
        """Return the value of the graph's own that a tensor is, or is a part of."""
        roots = self.roots.get(self.buffer(seen), [])
        layout = seen.layout if seen.dtype is None else _lies(seen.layout, seen.dtype)[0]
        root = next((r for r in roots if layout in r.layouts), None)
        if root is None:
            found = [r for r in roots if not layout.is_known or r.layout.covers(layout)]
            root = found[-1] if found else None
        return root.value if root is not None and root.value not in self.making.inputs else None


def _lies(layout: Layout, dtype: str) -> tuple[Layout, str]:
    """Return how a tensor lies in memory, and of which numbers: complex ones as their parts."""
    parts = real(dtype)
    return (layout, dtype) if parts == dtype else (layout.in_parts, parts)


def _alone(root: _Root, roots: Sequence[_Root]) -> None:
    begin, end = root.layout.reach
    if any(r is not root and r.layout.reach[0] < end and begin < r.layout.reach[1] for r in roots):
        raise NotRebuilt("memory is written in place and read in another layout too")
