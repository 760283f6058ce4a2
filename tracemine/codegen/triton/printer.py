"""The values of one kernel as text: loads, one line a computed node with the call it comes from, stores.

Where a program stands in rows and columns, and in which loop of them, is body.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeGuard

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, Axis, KernelBuffer, LoopNode
from tracemine.codegen.operators import ONLINE, expression, spelled, table
from tracemine.codegen.schedule import POINTWISE, Schedule
from tracemine.codegen.tensor_ir import CODES
from tracemine.codegen.triton.expressions import Names, constant, index, sizes, tensor, typed

COLUMN = "column"
# By whether what is masked changes across the columns, and down the rows.
_MASKS = {(True, True): "mask", (True, False): "column_mask", (False, True): "row_mask", (False, False): ""}


class Printer:
    """Prints what a kernel computes, and notes what it takes for that.

    block: the number of the program's block. names: how the text calls what it takes.
    """

    def __init__(self, schedule: Schedule, block: str, names: Names) -> None:
        program, kernel, mode = schedule.program, schedule.kernel, schedule.mode
        self.program, self.kernel, self.mode, self.long = program, kernel, mode, schedule.long
        self.exact, self.block, self.names = schedule.options.rounds, block, names
        self.lines: list[str] = []
        self.strides: dict[tuple[str, int], None] = {}
        self.sizes: dict[Axis, None] = {}
        self.scalars: dict[str, None] = {}
        self.pointers: dict[str, None] = {}
        self.words, self.masks = ("row", COLUMN), _MASKS  # how the text calls where a program stands
        self.loops = 0  # over the columns, all together
        self._loops = 0  # over the columns, so far
        self._begin = f"({block} % blocks) * RBLOCK" if mode == POINTWISE else "0"  # of a block of columns
        self._indent = 1
        self._names: dict[LoopNode, str] = {}
        self._taken: dict[str, int] = {}
        self._given = dict(program.scalars)
        self._reserved = set(self._given)
        self._pairs: dict[tuple[str, LoopNode], str] = {}  # results of reductions that are made together
        self._rows = {a.number for a in kernel.rows}
        self._columns = {a.number for a in kernel.columns}
        self.free_axes = ir.FreeAxes(self._columns)
        self.flat = mode == POINTWISE and not kernel.rows and all(self._in_loop(s) for s in kernel.stores)

    # Lines.

    def say(self, text: str, node: LoopNode | None = None) -> None:
        """Print a line, with the call that a node comes from as a comment."""
        origin = self.program.origins.get(node) if node is not None else None
        self.lines.append("    " * self._indent + text + (f"  # {origin}" if origin else ""))

    @contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Print a line, and below it what is said inside: what is named there is forgotten after it."""
        self.say(head)
        before = dict(self._names)
        self._indent += 1
        yield
        self._indent -= 1
        self._names = before

    def _named(self, node: LoopNode, text: str, name: str | None = None) -> str:
        origin = self.program.origins.get(node, "")
        stem = name or origin.removeprefix("aten::").partition(".")[0].strip("_") or "value"
        fresh = self._fresh(stem)
        self.say(f"{fresh} = {text}", node)
        self._names[node] = fresh
        return fresh

    def _fresh(self, stem: str) -> str:
        """Return a name that is no other's."""
        while True:
            count = self._taken[stem] = self._taken.get(stem, 0) + 1
            if (name := f"{stem}_{count}") not in self._reserved:
                return name

    def _note_sizes(self, axes: Iterable[Axis]) -> None:
        self.sizes.update((a, None) for a in axes if not a.pinned)

    # What nodes change along.

    def outer(self, *nodes: LoopNode) -> bool:
        """Return whether any of them changes along the columns."""
        return any(self.free_axes(n) & self._columns for n in nodes)

    def _down(self, *nodes: LoopNode) -> bool:
        return any(self.free_axes(n) & self._rows for n in nodes)

    def _in_loop(self, store: ir.Store) -> bool:
        return self.outer(store.value, *store.index)

    # Nodes.

    def value(self, node: LoopNode) -> str:
        """Return the text of a value, computed on lines before where it is not a name or a number already."""
        if node in self._names:
            return self._names[node]
        if isinstance(node, ir.Constant):
            return constant(node)
        if isinstance(node, ir.SizeValue):
            self._note_sizes(node.axes)
            return f"({sizes(node.axes, self.names)} * 1.0)"
        if isinstance(node, ir.IndexValue):
            text = self._index(node.index)
            return tensor(text, INT) if isinstance(node.index, ir.Int) else f"({text})"
        if isinstance(node, ir.Op):
            return self._named(node, self._computed(node))
        by_kind: dict[type, Callable[[Any], str]] = {
            ir.KernelScalar: self._scalar,
            ir.Load: self._load,
            ir.Rounded: self._rounded,
            ir.Random: self._random,
            ir.RunningSum: self._running_sum,
            ir.Reduce: self._reduce,
            ir.Contraction: self._contract,
        }
        return by_kind[type(node)](node)

    def _scalar(self, node: ir.KernelScalar) -> str:
        self.scalars[node.name] = None
        name = self.names.other(node.name)
        # Correctly rounded division takes nothing but floats.
        return f"({name} * 1.0)" if self.exact and self._is_whole(node) else name

    def _rounded(self, node: ir.Rounded) -> str:
        assert isinstance(node.arg, ir.Value)  # noqa: S101
        arg = self.value(node.arg)
        arg = tensor(arg, node.arg.type) if _is_number(node.arg) else arg
        return self._named(node, typed(typed(arg, node.arg.type, node.dtype), node.dtype, node.type))

    def _running_sum(self, node: ir.RunningSum) -> str:
        arg = self.value(node.arg)
        if not self.outer(node.arg):  # one number for the whole row has no columns yet
            arg = f"tl.where(column_mask, {arg}, 0)"
        return self._named(node, f"tl.cumsum({arg}, 1)")  # what lies beyond the row comes last

    def _computed(self, node: ir.Op) -> str:
        """Return the expression of an operation on its printed arguments."""
        args = [self.value(a) for a in node.args]
        numbers = [a for a in node.args if _is_number(a)]
        if len(numbers) == len(args):  # which no function of Triton's takes alone
            args = [tensor(arg, number.type) for arg, number in zip(args, numbers, strict=True)]
        if not self._by_row(node):
            return spelled("sub_rn" if is_rest(node) else node.name, args, self.exact, node.brief)
        top = largest(*node.args) if self.exact else None
        if top is not None:
            return f"_bounded_quotient({', '.join([*args, self.value(top)])})"
        return f"{'_quotient' if self.exact else '_ratio'}({', '.join(args)})"

    def _random(self, node: ir.Random) -> str:
        """Return a number drawn for a place: where the program loops over whole rows of them, four at once."""
        self.scalars[node.seed] = None
        seed = self.names.other(node.seed)
        before, column = self._index(node.before), self._index(node.column)
        if column != COLUMN or self.flat or self._down(node.column):
            return self._named(node, f"_random_bits_at({seed}, {node.stream}, {before}, {column})", "random")
        text = f"_random_bits({seed}, {node.stream}, {before}, {self._begin}, RBLOCK)"
        return self._named(node, text, "random")

    def _reduce(self, node: ir.Reduce) -> str:
        """Return a reduction of rows that are held whole."""
        arg = self.value(node.arg)
        family, _, part = node.kind.partition("_")
        if family in ONLINE:
            known = self._pairs.get((family, node.arg))
            if known is None:
                known = self._pairs[family, node.arg] = self._fresh(family)
                kept = arg if self._zero(node.arg) else f"tl.where(column_mask, {arg}, 0.0)"
                lower = least(arg, f"{known}_max", node.arg)
                for line in ONLINE[family]["whole"]:
                    self.say(line.format(a=known, x=arg, kept=kept, least=lower), node)
            self._names[node] = f"{known}_{part}"
            return self._names[node]
        row = table().reductions[node.kind]
        kept = arg if self._nothing_beyond(node) else f"tl.where(column_mask, {arg}, {row['other']})"
        return self._named(node, row["end"].format(kept))

    def _contract(self, node: ir.Contraction) -> str:
        """Return an element of a product: `ProductBody` makes them."""
        raise AssertionError(f"a product of {node.dtype} in a kernel of none")

    def _by_row(self, node: ir.Op) -> bool:
        """Return whether many elements are divided by one number: then its inverse is worked out once."""
        if node.name != "div" or (self.exact and self.mode == POINTWISE):
            return False
        return self.outer(node.args[0]) and not self.outer(node.args[1])

    def _nothing_beyond(self, node: ir.Reduce) -> bool:
        """Return whether lanes beyond the row add nothing as they are."""
        return node.kind == "sum" and self._zero(node.arg)

    def _zero(self, value: LoopNode) -> bool:
        """Return whether a value is 0 beyond the row: what is loaded there is."""
        if isinstance(value, ir.Load):
            return self.outer(*value.index, *([value.guard] if value.guard is not None else []))
        if isinstance(value, ir.Rounded):
            return self._zero(value.arg)
        if not isinstance(value, ir.Op):
            return False
        zero_of = expression(value.name).zero_of
        return bool(zero_of) and all(self._zero(value.args[at]) for at in zero_of)

    def _load(self, node: ir.Load) -> str:
        buffer = self.program.buffers[node.buffer]
        guard = None if node.guard is None else self.value(node.guard)
        across, down = self.outer(*node.index), self._down(*node.index)
        if node.guard is not None:
            across, down = across or self.outer(node.guard), down or self._down(node.guard)
        pointer = self._pointer(buffer, node.index, across, down)
        masks = [m for m in (self.masks[across, down], guard) if m]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        text = f"tl.load({pointer}{mask}{self._kept(across and down)})"
        return self._named(node, typed(text, buffer.dtype, node.type), self.names.other(buffer.name))

    def _kept(self, large: bool) -> str:
        """Return what is looped over again is to stay in the cache, what is looped over for the last time is not."""
        if not (large and self.long and self.loops > 1):
            return ""
        return f', eviction_policy="evict_{"first" if self._loops == self.loops else "last"}"'

    def _pointer(self, buffer: KernelBuffer, places: tuple[LoopNode, ...], across: bool, down: bool) -> str:
        """Address of an element, as wide as what it is masked with."""
        self.pointers[buffer.name] = None
        name = self.names.other(buffer.name)
        terms: list[str] = []
        for d, place in enumerate(places):
            if isinstance(place, ir.Int) and place.value == 0:
                continue
            self.strides[buffer.name, d] = None
            terms.append(f"{grouped(self._index(place))} * {name}_s{d}")
        if across and not self.outer(*places):
            terms.append(f"{self.words[1]} * 0")
        if down and not self.flat and not self._down(*places):
            terms.append(f"{self.words[0]} * 0")
        return " + ".join([f"{name}_ptr", *terms])

    def _index(self, node: LoopNode) -> str:
        """Return an index expression; values in it are computed first."""
        todo = [node]
        while todo:
            here = todo.pop()
            if isinstance(here, ir.IndirectIndex):
                self._names.setdefault(here.value, self.value(here.value))
                todo.extend((here.wrap,) if here.wrap is not None else ())
            elif isinstance(here, ir.Size):
                self._note_sizes(here.axes)
            else:
                todo.extend(ir.children(here) if isinstance(here, ir.IndexArithmetic) else ())
        return index(node, self._names, self.names)

    def _is_whole(self, node: ir.KernelScalar) -> bool:
        """Return whether a number that is computed with as a float was given as a whole one."""
        return node.type == FLOAT and isinstance(self._given.get(node.name), int)

    def store(self, store: ir.Store, down: bool = True) -> None:
        """Write one value. down: along the rows."""
        buffer = self.program.buffers[store.buffer]
        node = store.value
        if isinstance(node, ir.Rounded) and node.dtype == buffer.dtype:  # the store casts
            node = node.arg
        value = self.value(node)
        across = self.outer(*store.index)
        pointer = self._pointer(buffer, store.index, across, down)
        assert isinstance(node, ir.Value)  # noqa: S101
        # A number is no tensor: it takes the buffer's type as it is stored. But no integer is a code, no half a truth.
        plain = isinstance(node, ir.Constant | ir.KernelScalar | ir.SizeValue)
        if isinstance(node, ir.KernelScalar) and (buffer.dtype in CODES or buffer.dtype == BOOL):
            plain, value = False, tensor(value, node.type)
        text = value if plain else typed(value, node.type, buffer.dtype)
        if isinstance(node, ir.KernelScalar) and text == self.names.other(node.name) and self._is_whole(node):
            text = f"({text} * 1.0)"  # as 16 bits Triton's interpreter would store its bits, not its value
        mask = "column_mask" if self.flat else self.masks[across, down]
        kept = self._kept(across and self._loops == self.loops)
        self.say(f"tl.store({pointer}, {text}, mask={mask}{kept})", store.value if node is not store.value else None)


def _is_number(node: LoopNode) -> TypeGuard[ir.Constant | ir.KernelScalar]:
    """Return whether it is a number of Python's, or to the compiler may be one."""
    return isinstance(node, ir.Constant | ir.KernelScalar)


def grouped(text: str) -> str:
    return f"({text})" if " " in text else text


_SCALED = frozenset({"div", "mul", "maximum"})
_WITH_INFINITIES = frozenset({"float32", "bfloat16", "float16"})


def largest(x: LoopNode, y: LoopNode) -> LoopNode | None:
    """Return the row's largest |x| where y is that, or its maximum with a number, scaled equally in all rows.

    Then y is infinite or NaN where an x is, and by its row's share no element is beyond the largest.
    """
    while isinstance(y, ir.Rounded | ir.Op):
        if isinstance(y, ir.Rounded):
            if y.dtype not in _WITH_INFINITIES:
                return None
            y = y.arg
        elif y.name in _SCALED and isinstance(y.args[1], ir.KernelScalar | ir.Constant):
            y = y.args[0]
        else:
            return None
    if not (isinstance(y, ir.Reduce) and y.kind == "max"):
        return None
    size = y.arg
    return y if isinstance(size, ir.Op) and size.name == "abs" and size.args == (x,) else None


def is_rest(node: ir.Op) -> bool:
    """Return whether an element is subtracted from its row's extreme or running sum, or that from it.

    Eager's difference is 0 where they are equal. Contracted with a product (FMA) it is that product's rounding error.
    """
    if node.name != "sub":
        return False
    one, other = (_plain(arg) for arg in node.args)
    return any(
        (isinstance(of, ir.RunningSum) or (isinstance(of, ir.Reduce) and of.kind in ("max", "min")))
        and _plain(of.arg) is x
        for of, x in ((one, other), (other, one))
    )


def _plain(node: LoopNode) -> LoopNode:
    while isinstance(node, ir.Rounded):
        node = node.arg
    return node


def least(x: str, top: str, node: LoopNode) -> str:
    """Return an element that the row's largest is subtracted from: with `_under` if computed, as it is if loaded."""
    return x if isinstance(_plain(node), ir.Load) else f"_under({x}, {top})"
