"""Whose memory the values of a graph in the making lie in, so that it shows which of them a tensor is.

Views between calls launch nothing: they follow from offset, shape and strides (view_recovery.py). Complex numbers lie
as their parts, two real numbers along a last axis: so they come in, so they leave, and in between view calls make them
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tracemine.ops.infer import TensorSpec
from tracemine.ops.infer.promotion import real
from tracemine.verify.rebuild.call_facts import Seen
from tracemine.verify.rebuild.draft import Making, NotRebuilt
from tracemine.verify.rebuild.view_recovery import Look, views

Buffer = tuple[str, int]  # as in `Seen`


@dataclass(frozen=True, slots=True)
class Lies:
    """Where a value of the graph lies."""

    buffer: Buffer
    look: Look
    dtype: str


@dataclass(slots=True)
class _Root:
    """A tensor of the graph that lies in memory: as an input, or given by a call."""

    look: Look
    dtype: str
    value: int  # number in the making
    looks: dict[Look, int] = field(default_factory=dict)
    by_graph: bool = False


@dataclass(slots=True)
class Memory:
    """Where the values of a graph lie."""

    making: Making
    roots: dict[Buffer, list[_Root]] = field(default_factory=dict)
    storages: dict[int, Buffer] = field(default_factory=dict)  # of a storage the buffer met last
    dtypes: dict[Buffer, set[str]] = field(default_factory=dict)  # of what lies in a buffer
    outside: dict[Buffer, list[tuple[Look, str]]] = field(default_factory=dict)

    def saw(self, seen: Iterable[Seen]) -> None:
        """Notes dtypes: not every profiler records those of a list's members."""
        for one in seen:
            if one.dtype is not None:
                self.dtypes.setdefault(one.buffer, set()).add(one.dtype)

    def expect(self, taken: Iterable[tuple[Sequence[Seen], Sequence[Seen]]]) -> None:
        """Notes all looks at memory from outside, so that the widest becomes the input and the rest views of it.

        taken: of each call what it takes, and what it gives in new memory.
        """
        made: set[Buffer] = set()
        for takes, gives in taken:
            for seen in takes:
                told = seen.dtype is not None and seen.look.is_told
                if told and seen.buffer not in made:
                    self.outside.setdefault(seen.buffer, []).append(_lies(seen.look, str(seen.dtype)))
            made.update(seen.buffer for seen in gives)
        for found in self.outside.values():
            found.sort(key=lambda one: one[0].reach[0] - one[0].reach[1])

    def buffer(self, seen: Seen) -> Buffer:
        """A storage that a call did not read may be one that another did."""
        return self.storages.get(seen.buffer[1], seen.buffer) if seen.buffer[0] == "storage" else seen.buffer

    def dtype(self, seen: Seen) -> str | None:
        """As recorded; of a list's member, which profilers leave out, as another call recorded that memory's."""
        known = self.dtypes.get(self.buffer(seen), set())
        return seen.dtype or (next(iter(known)) if len(known) == 1 else None)

    def at(self, seen: Seen, dtype: str, argument: str) -> int:
        """The value that a tensor is: one that lies there so, a view of one, or an input, named after an argument."""
        look, parts = _lies(seen.look, dtype)
        value = self._at(self.buffer(seen), look, parts, argument)
        return value if parts == dtype else self.making.view(value, (("aten::view_as_complex", ()),))

    def _at(self, buffer: Buffer, look: Look, dtype: str, name: str) -> int:
        """The value that lies in memory so."""
        roots = self.roots.setdefault(buffer, [])
        for root in reversed(roots):
            if root.dtype == dtype and look in root.looks:
                return root.looks[look]
            if root.dtype == dtype and root.look.covers(look):
                steps = views(root.look, look)
                if steps is not None:
                    value = self.making.view(root.value, steps)
                    root.looks[look] = value
                    return value
            begin, end = root.look.reach
            if root.by_graph and begin < look.reach[1] and look.reach[0] < end:
                raise NotRebuilt("a tensor is read in a look that no slices and views of what was written give")
        return self._input(buffer, look, dtype, name)

    def _input(self, buffer: Buffer, look: Look, dtype: str, name: str) -> int:
        """An input: the widest look at this memory from which this one follows."""
        for wide, kind in self.outside.get(buffer, ()):
            if kind == dtype and wide != look and wide.covers(look) and views(wide, look) is not None:
                self._new_input(buffer, wide, kind, name)
                return self._at(buffer, look, dtype, name)
        return self._new_input(buffer, look, dtype, name)

    def _new_input(self, buffer: Buffer, look: Look, dtype: str, name: str) -> int:
        """An input; of what repeats elements, those that it repeats."""
        if any(n > 1 and not s for n, s in zip(look.shape, look.strides, strict=True)):
            once = tuple(n if s else 1 for n, s in zip(look.shape, look.strides, strict=True))
            source = Look(look.offset, once, look.strides)
            if not source.covers(look) or views(source, look) is None:  # sizes as no recorder writes them
                raise NotRebuilt("a tensor repeats elements in a way that no expand gives")
            self._new_input(buffer, source, dtype, name)
            return self._at(buffer, look, dtype, name)
        value = self.making.input(name, TensorSpec(look.shape, dtype, look.strides))
        beside = self.roots.setdefault(buffer, [])
        if any(r.look.reach[0] < look.reach[1] and look.reach[0] < r.look.reach[1] for r in beside):
            self.making.assumptions.append("inputs that lie in one memory are tried apart from each other")
        beside.append(_Root(look, dtype, value, {look: value}))
        return value

    def made(self, seen: Seen, value: int, storage: int | None) -> None:
        """A call of the graph gave a value in new memory. storage: its id, where it has one."""
        buffer = self.buffer(seen)
        spec = self.making.specs[value]
        look, dtype = _lies(Look(seen.look.offset, spec.shape, spec.strides or ()), str(spec.dtype))
        if dtype != spec.dtype:
            value = self.making.view(value, (("aten::view_as_real", ()),))
        self.roots[buffer] = [_Root(look, dtype, value, {look: value}, by_graph=True)]
        if storage is not None:
            self.storages[storage] = buffer

    def overwritten(self, values: Iterable[int]) -> None:
        """After a write in place, looks at that memory are taken anew."""
        for v in values:
            for roots in self.roots.values():
                for root in roots:
                    if v in root.looks.values():
                        _alone(root, roots)
                        root.looks = {root.look: root.value}

    def lies(self, values: Iterable[int]) -> tuple[Lies | None, ...]:
        """Where some values lie; None where nothing tells."""
        found = {
            root.value: Lies(buffer, root.look, root.dtype) for buffer, roots in self.roots.items() for root in roots
        }
        return tuple(found.get(value) for value in values)

    def given(self, seen: Seen) -> int | None:
        """The value of the graph's own that a tensor is, or is a part of."""
        roots = self.roots.get(self.buffer(seen), [])
        look = seen.look if seen.dtype is None else _lies(seen.look, seen.dtype)[0]
        root = next((r for r in roots if look in r.looks), None)
        if root is None:
            found = [r for r in roots if not look.is_told or r.look.covers(look)]
            root = found[-1] if found else None
        return root.value if root is not None and root.value not in self.making.inputs else None


def _lies(look: Look, dtype: str) -> tuple[Look, str]:
    """How a tensor lies in memory, and of which numbers: complex ones as their parts."""
    parts = real(dtype)
    return (look, dtype) if parts == dtype else (look.in_parts, parts)


def _alone(root: _Root, roots: Sequence[_Root]) -> None:
    begin, end = root.look.reach
    if any(r is not root and r.look.reach[0] < end and begin < r.look.reach[1] for r in roots):
        raise NotRebuilt("memory is written in place and read in another look beside it")
