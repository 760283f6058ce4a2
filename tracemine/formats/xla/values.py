"""What the instructions of a module read and give: which value, how much of it, and what is written where it lies."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from msgspec import Struct

from tracemine.formats.xla.hlo import HloInstruction, HloModule, Index, Shape

_PASSING: Final = frozenset({"bitcast", "opt-barrier", "copy-done", "domain", "add-dependency", "all-reduce-done"})
_DONE: Final = frozenset({"async-done", "async-update"})
_CALLS: Final = frozenset({"call", "async-start"})
_UPDATES: Final = {"dynamic-update-slice": 1, "scatter": -1}  # which operand is written into the first one
_PARTIAL: Final = frozenset({"slice", "dynamic-slice", "gather"})
_WORKSPACES: Final = frozenset({"s8", "u8"})
_LONGEST: Final = 1 << 8  # steps from a value to what defines it
_DEEPEST: Final = 64
Value = tuple[int, Index]  # what an instruction defines


class ArrayPart(Struct, frozen=True):
    """Which elements of an array: where the first lies, their shape and strides."""

    offset: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]


class TakenArray(Struct, frozen=True):
    """An array that an instruction takes."""

    position: int  # of the operand
    value: Value
    shape: Shape
    part: ArrayPart | None  # None: all of it


class GivenArray(Struct, frozen=True):
    """An array that an instruction gives."""

    value: Value
    shape: Shape
    into: int  # position of the operand in whose memory it lies; −1: memory of its own
    updates: int  # elements of it that are written


class WhileLoop(Struct, frozen=True):
    """A `while`: what its body gets and gives."""

    parameter: int
    root: int
    counter: int  # position of the induction variable among what it carries; −1: not known
    carried: Shape
    nested: bool  # in another loop


class Values:
    """The values of a module."""

    def __init__(self, module: HloModule) -> None:
        self.module = module

    @cached_property
    def callers(self) -> dict[int, HloInstruction]:
        """Return what calls each computation, of those that start work."""
        callers = {}
        for instruction in self.module.instructions.values():
            if instruction.opcode in _CALLS or instruction.opcode == "while":
                callers.update(dict.fromkeys(instruction.called[:1], instruction))
        return callers

    @cached_property
    def loops(self) -> dict[int, WhileLoop]:
        """Return the loops by their instruction's id."""
        loops = {}
        for instruction in self.module.instructions.values():
            body = self.module.called(instruction) if instruction.opcode == "while" else None
            parameters = [] if body is None else [one for one in body.instructions if one.opcode == "parameter"]
            if body is None or not parameters or not instruction.operands:
                continue
            text = str(instruction.setting("known_induction_variable", "tuple_index"))
            around = self.callers.get(instruction.computation)
            loops[instruction.id] = WhileLoop(
                parameter=parameters[0].id,
                root=body.root,
                counter=int(text) if text.isdecimal() else -1,
                carried=instruction.shape,
                nested=around is not None and around.opcode == "while",
            )
        return loops

    def origin(self, instruction: int, index: Index) -> Value:
        """Return what defines a value, through what only passes it on. A loop's parameter and result stay as they are:
        what they hold depends on the iteration.
        """
        for _ in range(_LONGEST):
            each = self.module.instructions.get(instruction)
            before = None if each is None else self._passed(each, index) or self._called(each, index)
            if before is None:
                break
            instruction, index = before
        return instruction, index

    def _passed(self, each: HloInstruction, index: Index) -> Value | None:
        """Return what an instruction only passes on; None: it does something with it."""
        if each.opcode == "tuple" and index and 0 <= index[0] < len(each.operands):
            return each.operands[index[0]], index[1:]
        if not each.operands:
            return None
        if each.opcode == "get-tuple-element":
            return each.operands[0], (each.tuple_index, *index)
        if each.opcode in _DONE:
            return each.operands[0], (1, *index)
        return (each.operands[0], index) if each.opcode in _PASSING else None

    def _called(self, each: HloInstruction, index: Index) -> Value | None:
        """Return the same across a call: what a parameter is given, or what the computation returns."""
        if each.opcode == "parameter":
            caller = self.callers.get(each.computation)
            known = caller is not None and caller.opcode != "while" and 0 <= each.parameter < len(caller.operands)
            return (caller.operands[each.parameter], index) if caller is not None and known else None
        body = self.module.called(each) if each.opcode in _CALLS else None
        if body is None:
            return None
        if each.opcode == "call":
            return body.root, index
        return (body.root, index[1:]) if index[:1] == (1,) else None

    def reads(self, instruction: HloInstruction) -> list[TakenArray]:
        """Return what an instruction takes."""
        reads = []
        for position, operand in enumerate(instruction.operands):
            given = self.module.instructions.get(operand)
            for index, shape in () if given is None else given.shape.leaves:
                part = self._part(instruction, position) if not index else None
                reads.append(TakenArray(position, self.origin(operand, index), shape, part))
        return reads

    def results(self, instruction: HloInstruction) -> list[GivenArray]:
        """Return what an instruction gives, but for the workspace of a library's call."""
        leaves = instruction.shape.leaves
        if instruction.opcode == "custom-call" and len(leaves) > 1:
            taken = {user.tuple_index for user in self.module.users.get(instruction.id, ())}
            leaves = tuple(
                (index, shape)
                for index, shape in leaves
                if index[0] in taken or len(shape.dims) != 1 or shape.dtype not in _WORKSPACES
            )
        results = []
        for index, shape in leaves:
            into, count = self._update(instruction, index)
            results.append(GivenArray((instruction.id, index), shape, into, shape.elements if into < 0 else count))
        return results

    @cached_property
    def kept(self) -> frozenset[Value]:
        """Return the values that the module gives to its caller."""
        entry = self.module.computations.get(self.module.entry)
        root = None if entry is None else self.module.instructions.get(entry.root)
        kept: set[Value] = set()
        left = [] if root is None else [self.origin(root.id, index) for index, _ in root.shape.leaves]
        while left:
            value = left.pop()
            if value in kept:
                continue
            kept.add(value)
            loop = self.loops.get(value[0])
            if loop is not None:
                left += [self.origin(loop.root, value[1]), (loop.parameter, value[1])]
        return frozenset(kept)

    def carried(self, loop: int) -> frozenset[Index]:
        """Return what a loop's body gets of the iteration before: neither its counter nor what it only passes on."""
        of_loop = self.loops[loop]
        return frozenset(
            index
            for index, _ in of_loop.carried.leaves
            if index[:1] != (of_loop.counter,) and self.origin(of_loop.root, index) != (of_loop.parameter, index)
        )

    def _inner(self, each: HloInstruction, index: Index) -> HloInstruction | None:
        """Return the instruction in a fusion's body that makes a result."""
        inner: HloInstruction | None = each
        for _ in range(_DEEPEST):
            if inner is None:
                return None
            body = self.module.called(inner) if inner.opcode == "fusion" else None
            if body is not None:
                following = body.root
            elif inner.opcode == "tuple" and index and 0 <= index[0] < len(inner.operands):
                following, index = inner.operands[index[0]], index[1:]
            elif inner.opcode == "bitcast" and inner.operands:
                following = inner.operands[0]
            else:
                return inner
            inner = self.module.instructions.get(following)
        return None

    def _update(self, instruction: HloInstruction, index: Index) -> tuple[int, int]:
        """Return the operand whose memory a result updates, and how many elements it writes; (−1, 0): none."""
        maker = self._inner(instruction, index)
        if maker is None or maker.opcode not in _UPDATES or len(maker.operands) < 2:
            return -1, 0
        update = self.module.instructions.get(maker.operands[_UPDATES[maker.opcode]])
        target = self.module.instructions.get(maker.operands[0])
        while target is not None and target.opcode == "bitcast" and target.operands:
            target = self.module.instructions.get(target.operands[0])
        if update is None or target is None:
            return -1, 0
        position = 0 if instruction is maker else target.parameter if target.opcode == "parameter" else -1
        if not 0 <= position < len(instruction.operands):
            return -1, 0
        places, given = self.module.places, self.origin(instruction.operands[position], ())
        # What a loop carries has its place by another name: XLA copies what cannot be updated where it lies.
        same = given not in places or places.get((instruction.id, index)) == places[given]
        return (position, update.shape.elements) if same else (-1, 0)

    def _part(self, instruction: HloInstruction, position: int) -> ArrayPart | None:
        """Return the part of an operand that is read; None: all of it."""
        given = self.module.instructions.get(instruction.operands[position])
        if instruction.opcode != "fusion":
            return None if position or given is None else self._read_by([instruction], given.shape)
        taken = self.module.parameters.get((instruction.called[0], position)) if instruction.called else None
        users = self._users(taken)
        for _ in range(_DEEPEST):
            if [user.opcode for user in users] != ["bitcast"]:
                break
            taken, users = users[0], self._users(users[0])
        if taken is None or not users or any(user.operands.index(taken.id) for user in users):
            return None
        return self._read_by(users, taken.shape)

    def _users(self, of: HloInstruction | None) -> list[HloInstruction]:
        return [] if of is None else self.module.users.get(of.id, [])

    def _read_by(self, users: list[HloInstruction], whole: Shape) -> ArrayPart | None:
        """Return what slices, lookups and updates read of the array that they take first."""
        if any(user.opcode not in _PARTIAL and user.opcode not in _UPDATES for user in users):
            return None
        if len(users) == 1 and _is_dense(users[0], whole):
            slices = zip(users[0].slices, whole.strides, strict=True)
            offset = sum(start * stride for (start, *_), stride in slices)
            inside = 0 <= offset < max(whole.elements, 1)
            return ArrayPart(offset, users[0].shape.dims, whole.strides) if inside else None
        count = 0
        for user in users:
            part: HloInstruction | None = user
            if user.opcode in _UPDATES and len(user.operands) > 1:
                part = self.module.instructions.get(user.operands[_UPDATES[user.opcode]])
            count += whole.elements if part is None else part.shape.elements
        return ArrayPart(0, (count,), (1,)) if count < whole.elements else None


def _is_dense(user: HloInstruction, whole: Shape) -> bool:
    """Return whether an instruction slices an array along each axis, without leaving elements out between."""
    return len(user.slices) == len(whole.dims) > 0 and max(step for *_, step in user.slices) <= 1
