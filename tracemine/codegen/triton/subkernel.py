"""One kernel of a launch: its lines, and what they take."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from tracemine.codegen.loop_ir import Axis, elements
from tracemine.codegen.products import PRODUCT
from tracemine.codegen.schedule import INNER, LOOPED, PERSISTENT, POINTWISE, SHARE, Schedule, writes_outer_contiguous
from tracemine.codegen.triton.body import Body
from tracemine.codegen.triton.expressions import Names, NeutralNames, sizes
from tracemine.codegen.triton.product import ProductBody

PROGRAM = "tl.program_id(0)"


class Parameter(NamedTuple):
    """A parameter of a kernel."""

    name: str
    constexpr: bool = False  # known to the compiler

    def __str__(self) -> str:
        """Return it as a signature has it."""
        return f"{self.name}: tl.constexpr" if self.constexpr else self.name


class SubKernel:
    """One kernel of a launch, printed. block: the number of a program's block."""

    def __init__(self, schedule: Schedule, block: str = PROGRAM) -> None:
        self.schedule, self.program, self.kernel = schedule, schedule.program, schedule.kernel
        self.mode, self.contiguity = schedule.mode, schedule.contiguity
        self.flat, self.long = schedule.flat, schedule.long
        self.elements = schedule.elements
        self.body = (ProductBody if self.mode == PRODUCT else Body)(schedule, block, Names())
        self.lines = self.body.print()
        # What it takes, and what that is: first what differs from launch to launch, then what a plan of it knows.
        self.given = {f"{b}_ptr": b for b in self.body.pointers} | {name: name for name in self.body.scalars}
        self.known: dict[str, Axis | tuple[str, int]] = {f"{b}_s{d}": (b, d) for b, d in self.body.strides}
        self.known |= {a.name: a for a in self.body.sizes}
        self.takes = [*self.given, *self.known]

    def parameters(self, names: Iterable[str]) -> list[Parameter]:
        """Return what it takes, as parameters. Sizes that indices are divided by are known to the compiler."""
        known = {a.name for a in self.body.sizes} | self._odd_strides()
        return [Parameter(name, name in known) for name in names]

    def _odd_strides(self) -> set[str]:
        """Return even strides of large tensors that 16 does not divide: as constants they leave 4- to 16-byte reads."""
        # Rows next to each other that are only read so are better spread over lanes: what a thread reads at once are
        # several rows, each of which is summed on its own.
        beside = self.mode == PERSISTENT and self.contiguity != INNER
        if self.flat or (beside and not writes_outer_contiguous(self.program.buffers, self.kernel)):
            return set()
        buffers = {name: self.program.buffers[name] for name in self.body.pointers}
        largest = max((prod(b.shape) for b in buffers.values()), default=0)
        return {
            f"{name}_s{d}"
            for name, buffer in buffers.items()
            if prod(buffer.shape) * SHARE >= largest and 1 in buffer.strides
            for d, stride in enumerate(buffer.strides)
            if stride % 16 and stride % 2 == 0
        }

    @property
    def rows(self) -> Parameter:
        """The parameter of the rows: known to the compiler where some lie side by side, as many as no 16 divide.

        A mask that may end anywhere leaves reads of one element: 392 rows next to each other took an H200 75 µs so.
        """
        count = elements(self.kernel.rows)
        return Parameter("rows", self.contiguity != INNER and count % 16 != 0 and count % 2 == 0)

    @property
    def columns(self) -> list[Parameter]:
        """The parameters of the columns: known to the compiler where a program divides by their blocks or masks."""
        if self.flat:
            return [Parameter("columns"), Parameter("blocks", True)]
        return [Parameter("columns", not (self.mode in (LOOPED, PRODUCT) or self.body.flat))]

    @property
    def may_be_chosen(self) -> bool:
        """Whether its code knows nothing of one tensor alone, so that a program may choose among several."""
        plain = not any(parameter.constexpr for parameter in self.parameters(self.takes))
        return plain and self.mode == POINTWISE and self.contiguity == INNER and (bool(self.flat) or self.body.flat)

    @property
    def even(self) -> bool:
        """Whether sizes and strides leave reads of 16 bytes; if one does not, none are."""
        strides = [s for name in self.body.pointers for s in self.program.buffers[name].strides if s != 1]
        return all(n % 16 == 0 for n in (self.elements, *strides))

    def loop(self, names: Names) -> str:
        """Return its rows and columns, as expressions."""
        return f"({sizes(self.kernel.rows, names)}, {sizes(self.kernel.columns, names)})"

    def code(self) -> tuple[object, ...]:
        """Return its lines and what they take, by neutral names: equal for parts that differ in names alone."""
        names = NeutralNames()
        body = type(self.body)(self.schedule, "block", names)
        lines = body.print()
        takes = [names.other(name) for name in (*body.pointers, *body.scalars)]
        takes += [f"{names.other(name)}_s{d}" for name, d in body.strides]
        takes += [names.axis(axis) for axis in body.sizes]
        return (*lines, *takes, self.mode, self.contiguity)

    def dense(self, names: Names) -> list[str]:
        """Return what must hold at a call for its rows to lie behind each other in all tensors."""
        found = []
        for name, (order, outer, inner) in self.flat.items():
            if self.program.buffers[name].role == "input":
                turned = "" if order == tuple(range(len(order))) else f".permute({', '.join(map(str, order))})"
                found.append(f"{name}{turned}.is_contiguous()")
                if not self.kernel.columns[0].pinned:
                    found.append(f"{name}.stride({outer}) == {sizes(inner, names)}")
        return found
