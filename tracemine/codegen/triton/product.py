"""The body of a kernel around matrix products: tiles of operands, a loop with `tl.dot`, and what is made of its tile.

A program has tiles of rows and columns one after another; `along` and `down` are where it stands in what a product sums
over, across its left operand and down its right one. Columns that are reduced a tile holds whole, or it loops over
them: then each of a row's numbers is joined with what the blocks before gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import LoopNode
from tracemine.codegen.operators import ONLINE, table
from tracemine.codegen.products import FEW, held_columns, is_place, product_class, reduces
from tracemine.codegen.schedule import Schedule
from tracemine.codegen.triton.body import Body
from tracemine.codegen.triton.expressions import TRITON_TYPE, Names, sizes

_TILE = (
    "row_blocks, column_blocks = tl.cdiv(rows, XBLOCK), {column_blocks}",
    "tiles = row_blocks * column_blocks * {apart}",
    "for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):",
)
# Blocks of rows in groups, so that what they share is still in the cache. Batches that share a side come first.
_PLACE = (
    "group = {block} // (GROUP * column_blocks) * GROUP",
    "height = tl.minimum(row_blocks - group, GROUP)",
    "row_block = group + {block} % (GROUP * column_blocks) % height",
    "row = (tl.cast(row_block, INDEX) * XBLOCK + tl.arange(0, XBLOCK))[:, None]",
    "row_mask = row < rows",
)
_COLUMN_BLOCK = "column_block = {block} % (GROUP * column_blocks) // height"
_COLUMN = (
    "column = (tl.cast({begin}, INDEX) * RBLOCK + tl.arange(0, RBLOCK))[None, :]",
    "column_mask = column < columns",
    "mask = row_mask & column_mask",
)
_INNER = (
    "along = (start + tl.arange(0, KBLOCK))[None, :].to(INDEX)",
    "down = (start + tl.arange(0, KBLOCK))[:, None].to(INDEX)",
    "along_mask = (along < {inner}) | ({inner} % KBLOCK == 0)",
    "down_mask = (down < {inner}) | ({inner} % KBLOCK == 0)",
    "left_mask = row_mask & along_mask",
    "right_mask = down_mask & column_mask",
)
_SIDES = {
    "left": (("row", "along"), ("row_mask", "along_mask")),
    "right": (("down", "column"), ("down_mask", "column_mask")),
}
# Where columns are looped over: how a block's number and the one before become one.
_JOINED = {"sum": "{run} + {block}", "count": "{run} + {block}", "max": "_larger({run}, {block})"}
_JOINED |= {"min": "-_larger(-{run}, -{block})"}
_ONLINE = (
    "{top} = _larger({run}_max, {block}_max)",
    "finite_max = tl.where({top} == -float('inf'), 0.0, {top})",
    "{block}_sum = tl.where({block}_max == -float('inf'), 0.0, {block}_sum * _exp({block}_max - finite_max))",
    "{run}_sum = {run}_sum * _exp({run}_max - finite_max) + {block}_sum",
    "{run}_max = {top}",
)
_PLACED = (  # of equal ones the first block's stays; NaN is the largest and the smallest
    "{better} = ({top} {than} {best}) | (({top} != {top}) & ({best} == {best})) | (walked == 0)",
    "{run} = tl.where({better}, {block}, {run})",
)


class Described(NamedTuple):
    """An operand that may be read by a descriptor: which of its dimensions the tile's lines and its sum are along."""

    buffer: str
    lines: int
    inner: int
    block: str  # the name of the tile's size along the lines


class ProductBody(Body):
    """Prints one kernel that has products."""

    def __init__(self, schedule: Schedule, block: str, names: Names) -> None:
        super().__init__(schedule, block, names)
        self.described: dict[str, Described] = {}
        self._raw: dict[LoopNode, str] = {}  # loads of the loop at hand, in the types that they have in memory
        self._inner = sizes(self.kernel.contracted, names)
        self._note_sizes(self.kernel.contracted)
        self.held = held_columns(self.kernel)
        self.walked = reduces(self.kernel) and not self.held  # columns are looped over

    def print(self) -> list[str]:
        """Return the lines, indented."""
        self._say_tile()
        self._indices(self.kernel.rows, "row")
        if self.walked:
            self._walk()
        else:
            self._say_columns("0" if self.held else "column_block")
        for store in self.kernel.stores:
            self.store(store)
        return self.lines

    def _say_tile(self) -> None:
        """Print which part of a sum, batch and block of rows and columns a tile is of."""
        batches, split = sizes(self.kernel.batch, self.names), self.kernel.split
        self._note_sizes((*self.kernel.batch, *([split] if split else [])))
        apart = self.apart(self.names)
        blocks = "1" if reduces(self.kernel) else "tl.cdiv(columns, RBLOCK)"
        for line in _TILE:
            self.say(line.format(column_blocks=blocks, apart=" * ".join(apart) or "1"))
        self._indent += 1
        block = "tile"
        if split:
            self.say(f"part, tile_of = tile % {apart[-1]}, tile // {apart[-1]}")
            self._name_part(split)
            block = "tile_of"
        if self.kernel.batch:
            self.say(f"batch, block = tl.cast({block} % ({batches}), INDEX), {block} // ({batches})")
            self._indices(self.kernel.batch, "batch")
            block = "block"
        for line in _PLACE if reduces(self.kernel) else (*_PLACE, _COLUMN_BLOCK):
            self.say(line.format(block=block))

    def apart(self, names: Names) -> list[str]:
        """Return how many batches there are, and how many parts of a sum, where there are such."""
        batch, split = self.kernel.batch, self.kernel.split
        return [*[sizes(batch, names)] * bool(batch), *([names.axis(split)] if split else [])]

    def _say_columns(self, begin: str) -> None:
        for line in _COLUMN:
            self.say(line.format(begin=begin))
        self._indices(self.kernel.columns, "column")

    # Columns that are looped over.

    def _walk(self) -> None:
        """Print a loop over blocks of columns, and how each reduction joins what they give."""
        split = self.kernel.split
        first, step = ("part", self.names.axis(split)) if split else ("0", "1")
        found = ir.every(self.kernel, ir.Reduce)[::-1]
        runs = {node: self._fresh("online" if _is_online(node) else node.kind.partition("_")[0]) for node in found}
        runs |= {node: runs[_twin(node, found)] for node in found if _is_online(node)}
        firsts = dict.fromkeys(_twin(n, found) for n in found)  # of those that one walk gives together
        for node in firsts:
            self._begin_run(node, runs[node])
        with self.inside(f"for walked in range({first}, tl.cdiv(columns, RBLOCK), {step}):"):
            self._say_columns("walked")
            blocks = {node: self.value(node) for node in found}
            for node in sorted(firsts, key=is_place, reverse=True):
                self._join(node, runs, blocks)
        self._names |= {n: f"{runs[n]}_{n.kind.partition('_')[2]}" if _is_online(n) else runs[n] for n in found}

    def _begin_run(self, node: ir.Reduce, name: str) -> None:
        online = {"_max": "-float('inf')", "_sum": "0.0"}
        for part, start in (online if _is_online(node) else {"": table().reductions[node.kind]["other"]}).items():
            self.say(f"{name}{part} = tl.full((XBLOCK, 1), {start}, {TRITON_TYPE[node.type]})")

    def _join(self, node: ir.Reduce, runs: dict[ir.Reduce, str], blocks: dict[ir.Reduce, str]) -> None:
        names = {"run": runs[node], "block": blocks[node], "top": self._fresh("top"), "better": self._fresh("better")}
        if _is_online(node):
            names["block"] = names["block"].removesuffix("_max").removesuffix("_sum")
            lines: Sequence[str] = _ONLINE
        elif is_place(node):
            best = next(below for below in ir.below(node) if isinstance(below, ir.Reduce))
            names |= {"top": blocks[best], "best": runs[best], "than": ">" if best.kind == "max" else "<"}
            lines = _PLACED
        else:
            lines = (f"{{run}} = {_JOINED.get(node.kind, table().reductions[node.kind]['lanes'])}",)
            lines = tuple(line.replace("{0}", "{run}").replace("{1}", "{block}") for line in lines)
        for line in lines:
            self.say(line.format(**names))

    # Products.

    def _contract(self, node: ir.Contraction) -> str:
        """Print the loop of all products: they share what they have in common."""
        found = [n for n in ir.every(self.kernel, ir.Contraction)[::-1] if n not in self._names]
        names = {n: self._fresh("product") for n in found}
        split = self.kernel.split is not None and not self.walked
        before = dict(self._names)
        for side in _SIDES:
            with self._side(side):
                self._hoist_operands([getattr(n, side) for n in found])
        for name in names.values():
            self.say(f"{name} = tl.zeros((XBLOCK, RBLOCK), tl.float32)")
        parts = self.names.axis(self.kernel.split) if split and self.kernel.split else ""
        first, step = ("part * KBLOCK", f"{parts} * KBLOCK") if split else ("0", "KBLOCK")
        with self.inside(f"for start in range({first}, {self._inner}, {step}):"):
            self._add_products(names)
        self._names = before | names
        return names[node]

    def _add_products(self, names: Mapping[ir.Contraction, str]) -> None:
        """Print the loop's body: it loads a tile of each operand, and adds each product to its sum, which is named."""
        for line in _INNER:
            self.say(line.format(inner=self._inner))
        operands: dict[str, list[str]] = {}
        self._raw = {}
        for side in _SIDES:
            with self._side(side):
                self._indices(self.kernel.contracted, _SIDES[side][0][side == "left"])
                operands[side] = [self._operand(getattr(n, side), n.dtype, side) for n in names]
        for left, right, (n, name) in zip(operands["left"], operands["right"], names.items(), strict=True):
            precise = ', input_precision="ieee"' if n.dtype == "float32" else ""
            self.say(f"{name} = tl.dot({left}, {right}, {name}{precise})", n)

    @contextmanager
    def _side(self, side: str) -> Iterator[None]:
        """Print an operand inside: its tile is rows by what is summed over, or that by columns."""
        kept = self.words, self.masks, self._rows, self._columns, self.free_axes
        (row, column), (down, across) = _SIDES[side]
        inner = {axis.number for axis in self.kernel.contracted}
        self.words = row, column
        self.masks = {(True, True): f"{side}_mask", (True, False): across, (False, True): down, (False, False): ""}
        self._rows, self._columns = (self._rows, inner) if side == "left" else (inner, self._columns)
        self.free_axes = ir.FreeAxes(())
        yield
        self.words, self.masks, self._rows, self._columns, self.free_axes = kept

    def _hoist_operands(self, operands: Sequence[LoopNode]) -> None:
        """Print before the loop what an operand loads that does not change along it, as codes' zero points."""
        inner = {axis.number for axis in self.kernel.contracted}
        for operand in operands:
            for node in (operand, *ir.below(operand)):
                if isinstance(node, ir.Load) and not self.free_axes(node) & inner:
                    self.value(node)

    def _operand(self, node: LoopNode, dtype: str, side: str) -> str:
        """Return an operand's tile in the dtype that is multiplied; of codes as they are, and of what a load gives."""
        while isinstance(node, ir.Rounded) and node.dtype in ("float32", dtype):
            node = node.arg
        if not isinstance(node, ir.Load):
            return self._named(node, f"({self.value(node)}).to({TRITON_TYPE[dtype]})", f"{side}_tile")
        buffer = self.program.buffers[node.buffer]
        raw = self._loaded(node, side)
        return raw if buffer.dtype == dtype else self._named(node, f"{raw}.to({TRITON_TYPE[dtype]})", f"{side}_tile")

    def _loaded(self, node: ir.Load, side: str) -> str:
        """Return a load's tile as it lies; by a descriptor where the launcher gives one."""
        if node in self._raw:
            return self._raw[node]
        fits = self._describes(node, side)
        across, down = self.outer(*node.index), self._down(*node.index)
        buffer = self.program.buffers[node.buffer]
        pointer = self._pointer(buffer, node.index, across, down)
        name = self._fresh(self.names.other(buffer.name))
        text = f"tl.load({pointer}, mask={self.masks[across, down]}, other=0)"
        if fits is None:
            self.say(f"{name} = {text}")
        else:
            self.described[buffer.name] = fits
            lines, place = fits.block, "row_block * XBLOCK"
            if side == "right":
                place = "walked * RBLOCK" if self.walked else "0" if self.held else "column_block * RBLOCK"
            here = {fits.lines: place, fits.inner: "start"}
            at = [here.get(d) or f"tl.cast({self._index(each)}, tl.int32)" for d, each in enumerate(node.index)]
            turned = ".T" if (fits.lines < fits.inner) == (side == "right") else ""
            shape = f"({lines}, KBLOCK)" if fits.lines < fits.inner else f"(KBLOCK, {lines})"
            reshaped = f".reshape{shape}" if len(node.index) > 2 else ""
            self.say("if DESCRIBED:")
            self.say(f"    {name} = {self.names.other(buffer.name)}_ptr.load([{', '.join(at)}]){reshaped}{turned}")
            self.say("else:")
            self.say(f"    {name} = {text}")
        self._raw[node] = name
        return name

    def _may_describe(self, node: ir.Load) -> bool:
        """Return whether a descriptor may read what is loaded: all of it, once, along one axis that is summed."""
        if product_class(self.kernel) == FEW:  # nothing is gained by them
            return False
        uses = [buffer for buffer, _ in ir.accesses(self.kernel)]
        return node.guard is None and uses.count(node.buffer) == 1 and len(self.kernel.contracted) == 1

    def _describes(self, node: ir.Load, side: str) -> Described | None:
        """Return how an operand lies that a descriptor reads: a tile's lines and its sum are one axis each of it."""
        if not self._may_describe(node):
            return None
        tile = self.kernel.rows if side == "left" else self.kernel.columns
        places = [place.axis if isinstance(place, ir.LoopIndex) else None for place in node.index]
        if len(tile) != 1 or None in places or not {tile[0], self.kernel.contracted[0]} <= {*places}:
            return None
        lines, inner = places.index(tile[0]), places.index(self.kernel.contracted[0])
        strides = self.program.buffers[node.buffer].strides
        if strides[max(lines, inner)] != 1 or max(lines, inner) != len(places) - 1:
            return None
        return Described(node.buffer, lines, inner, "XBLOCK" if side == "left" else "RBLOCK")


def _is_online(node: ir.Reduce) -> bool:
    return node.kind.partition("_")[0] in ONLINE


def _twin(node: ir.Reduce, found: Sequence[ir.Reduce]) -> ir.Reduce:
    """Return the first of those that one walk gives together."""
    if not _is_online(node):
        return node
    return next(n for n in found if _is_online(n) and n.arg is node.arg)
