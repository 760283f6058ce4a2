"""One walk of a kernel: its lines, and what they take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from tracemine.codegen.loop_ir import Kernel, Program, loads
from tracemine.codegen.options import CodegenOptions
from tracemine.codegen.schedule import (
    ALONG,
    LOOPED,
    POINTWISE,
    SHARE,
    WHOLE,
    flat_orders,
    grain,
    shape_of,
    writes_across,
)
from tracemine.codegen.triton.body import Body
from tracemine.codegen.triton.expressions import sizes


class Part:
    """One walk: its lines, and what they take."""

    def __init__(self, program: Program, kernel: Kernel, options: CodegenOptions) -> None:
        self.program, self.kernel, self.longest_row = program, kernel, options.longest_row
        self.mode = shape_of(program.buffers, kernel, options.longest_row)
        self.grain = grain(program.buffers, kernel)
        along = self.mode == POINTWISE and self.grain == ALONG
        self.flat = flat_orders(program.buffers, kernel) if along else {}
        self.long = self.mode == LOOPED and self.grain == ALONG and kernel.split is None
        self.body = Body(program, kernel, self.mode, options.rounds, bool(self.flat), self.long)
        self.lines = self.body.print()
        # What it takes, and the expressions for it: what differs from launch to launch, then what a plan of it knows.
        self.given = {f"{b}_ptr": b for b in self.body.pointers} | {name: name for name in self.body.scalars}
        places = {name: name.rpartition("_s") for name in self.body.strides}
        self.known = {name: f"{tensor}.stride({dim})" for name, (tensor, _, dim) in places.items()}
        self.known |= {a.name: a.name for a in self.body.sizes}
        self.takes = [*self.given, *self.known]

    @property
    def elements(self) -> int:
        """How many it walks."""
        return prod(axis.size for axis in (*self.kernel.rows, *self.kernel.columns))

    @property
    def order(self) -> int:
        """The place among all tensors of the first that it reads: launches take what they have in common alike."""
        return min((list(self.program.buffers).index(name) for name in large_reads([self])), default=0)

    def parameters(self, names: Iterable[str]) -> list[str]:
        """What it takes, as parameters. Sizes that places are divided by are known to the compiler."""
        known = {a.name for a in self.body.sizes} | self._odd_strides()
        return [f"{name}: tl.constexpr" if name in known else name for name in names]

    def _odd_strides(self) -> set[str]:
        """Strides of large tensors that are no multiple of 16, but of 2: known, they leave reads of 4 to 16 bytes."""
        # Rows beside each other that are only read so are better spread over lanes: what a thread reads at once are
        # several rows, each of which is summed on its own.
        beside = self.mode == WHOLE and self.grain != ALONG
        if self.flat or (beside and not writes_across(self.program.buffers, self.kernel)):
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
    def rows(self) -> str:
        """The parameter of the rows: known to the compiler where some lie side by side, as many as no 16 divide.

        A mask that may end anywhere leaves reads of one element: 392 rows beside each other took an H200 75 µs so.
        """
        count = prod(axis.size for axis in self.kernel.rows)
        odd = self.grain != ALONG and count % 16 and count % 2 == 0
        return "rows: tl.constexpr" if odd else "rows"

    @property
    def columns(self) -> list[str]:
        """The parameters of the columns: known to the compiler where a program divides by their blocks or masks."""
        if self.flat:
            return ["columns", "blocks: tl.constexpr"]
        return ["columns" if self.mode == LOOPED or self.body.flat else "columns: tl.constexpr"]

    @property
    def may_be_chosen(self) -> bool:
        """Whether its code knows nothing of one tensor alone, so that a program may choose among several."""
        plain = not any(":" in name for name in self.parameters(self.takes))
        return plain and self.mode == POINTWISE and self.grain == ALONG and (bool(self.flat) or self.body.flat)

    @property
    def even(self) -> bool:
        """Whether sizes and strides leave reads of 16 bytes; beside one of which they do not, none are."""
        strides = [s for name in self.body.pointers for s in self.program.buffers[name].strides if s != 1]
        return all(n % 16 == 0 for n in (self.elements, *strides))

    @property
    def walk(self) -> str:
        """Its rows and columns, as expressions."""
        return f"({sizes(self.kernel.rows)}, {sizes(self.kernel.columns)})"

    def renamed(self) -> str:
        """Its lines with neutral names: equal for parts that differ in names alone."""
        text = "\n".join([*self.lines, str(len(self.takes)), self.mode, self.grain])
        buffers = list(self.body.pointers)
        names = {b: f"buffer{k}" for k, b in enumerate(buffers)}
        names |= {a.name: f"size{k}" for k, a in enumerate(self.body.sizes)}
        names |= {name: f"scalar{k}" for k, name in enumerate(self.body.scalars)}
        places = {
            name: f"place{k}" for k, name in enumerate(dict.fromkeys(re.findall(r"\b(?:row|column)_n\d+\b", text)))
        }
        text = re.sub(r"\b(?:row|column)_n\d+\b", lambda m: places[m[0]], text)
        text = re.sub(r"[a-z]\w*?(?=_(?:ptr|s\d+|\d+)\b)", lambda m: names.get(m[0], m[0]), text)
        return re.sub(r"\b[a-z]\w*\b", lambda m: names.get(m[0], m[0]), text)

    @property
    def dense(self) -> list[str]:
        """What must hold at a call for its rows to lie behind each other in all tensors."""
        found = []
        for name, (order, outer, inner) in self.flat.items():
            if self.program.buffers[name].role == "input":
                turned = "" if order == tuple(range(len(order))) else f".permute({', '.join(map(str, order))})"
                found.append(f"{name}{turned}.is_contiguous()")
                found += [f"{name}.stride({outer}) == {sizes(inner)}"] * (not self.kernel.columns[0].pinned)
        return found


def large_reads(parts: Iterable[Part]) -> set[str]:
    """The large tensors that parts load."""
    parts = tuple(parts)
    sized = {n.buffer: prod(part.program.buffers[n.buffer].shape) for part in parts for n in loads(part.kernel)}
    largest = max(sized.values(), default=0)
    return {name for name, size in sized.items() if size * SHARE >= largest}
