"""Kernels around matrix products: what they reduce in flight, how full they leave a GPU, and their tile configs."""

from __future__ import annotations

from collections.abc import Mapping

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import KernelBuffer, LoopKernel
from tracemine.codegen.operators import expression
from tracemine.codegen.options import CodegenOptions
from tracemine.ops.dtypes import itemsize

TileConfigs = tuple[tuple[int, ...], ...]

PRODUCT = "product"  # the schedule of such a kernel
# Rows that one tile holds, so that weights are read once; columns that it may hold whole; multiprocessors of an H100.
FEW_ROWS, MOST_HELD, MULTIPROCESSORS = 32, 256, 132
_CHEAP_ULP = 2  # of an expression of a few instructions
_REGISTERS, _SHARED_BYTES = 255, 232_448  # of a thread; of a program, on an H100

# Rows, columns and what is summed of a tile; warps and stages; blocks of rows side by side; programs of a
# multiprocessor that take one tile after another, 0: each program has one. The first was fastest on an H200, or within
# 3 % of that.
FEW, HELD, WALKED, TWO, PLAIN = "few rows", "columns held", "columns looped over", "two products", "one product"
_EVERY = 1 << 62
_FEW_16: TileConfigs = ((32, 64, 128, 4, 5, 1, 0), (32, 32, 256, 4, 4, 1, 0))
_HELD_ALL: TileConfigs = ((128, 256, 64, 8, 4, 1, 1), (128, 256, 64, 8, 3, 1, 0), (64, 256, 64, 8, 4, 1, 1))
_PRODUCTS = (  # class, the most rows (of few) or columns (that are held), tile configs
    (FEW, 8, (*_FEW_16[::-1],)),
    (FEW, 16, _FEW_16),
    (FEW, _EVERY, ((32, 64, 256, 4, 3, 1, 0), *_FEW_16)),
    (HELD, 128, (*_HELD_ALL[1::-1],)),
    (HELD, _EVERY, _HELD_ALL),
    (WALKED, _EVERY, ((128, 256, 64, 8, 3, 1, 0), (64, 256, 64, 8, 4, 1, 0))),
    (TWO, _EVERY, ((128, 128, 64, 8, 4, 16, 0), (128, 128, 64, 8, 4, 8, 0))),
    (PLAIN, _EVERY, ((128, 256, 64, 8, 4, 8, 0),)),
)
_SMALL: TileConfigs = ((16, 16, 16, 1, 1, 2, 1),)


def product_class(kernel: LoopKernel) -> str:
    """Return which of the classes a kernel around products is of: what is measured of one holds for its others."""
    if reduces(kernel):
        return HELD if held_columns(kernel) else WALKED
    if ir.elements(kernel.rows) <= FEW_ROWS:
        return FEW
    return TWO if len(ir.every(kernel, ir.Contraction)) > 1 else PLAIN


def product_tiles(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, options: CodegenOptions) -> TileConfigs:
    """Return the candidates for a kernel around products: those that fit a multiprocessor, where any does."""
    mine, size = product_class(kernel), ir.elements(kernel.columns if reduces(kernel) else kernel.rows)
    every = next(tiles for kind, most, tiles in _PRODUCTS if kind == mine and size <= most)
    fitting = tuple(tile for tile in every if fits(*predicted(buffers, kernel, tile)))
    return _SMALL if options.small_tiles else fitting or every


def fits(registers: int, shared: int) -> bool:
    """Return whether a thread has so many registers, and a multiprocessor so much memory: else it spills."""
    return registers <= _REGISTERS and shared <= _SHARED_BYTES


def predicted(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, tile: tuple[int, ...]) -> tuple[int, int]:
    """Return about how many registers a thread takes, and bytes of shared memory, of what ptxas makes of a tile."""
    high, wide, deep, warps, stages, *_ = tile
    few, (rows, columns, *_) = product_class(kernel) == FEW, kernel.sizes
    high = 16 if few and rows <= 16 else high
    if held_columns(kernel):
        wide = max(16, 1 << (columns - 1).bit_length())
    shared = (stages - few) * deep * _depth_bytes(buffers, kernel, high, wide)
    return 40 + int(high * wide / (32 * warps) * _tiles_held(kernel)), shared


def _depth_bytes(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, high: int, wide: int) -> int:
    """Return the bytes of operands' tiles for each element of the depth; what several products read counts once."""
    products = ir.every(kernel, ir.Contraction)
    sides = {(n.left, high) for n in products} | {(n.right, wide) for n in products}
    return sum(lines * min(itemsize(buffers[b].dtype) or 4 for b in ir.buffers_of(side)) for side, lines in sides)


def _tiles_held(kernel: LoopKernel) -> float:
    """Return how many tiles of float32 a program's registers hold: sums, what is reduced in flight, what is loaded."""
    inside = ir.every(kernel, ir.Reduce)
    flight = {below for n in inside for below in (n, *ir.below(n))}
    far = any(isinstance(n, ir.Op) and expression(n.name).ulp > _CHEAP_ULP for n in flight)
    dear = far or any(map(is_place, inside))
    free_axes, mine = ir.FreeAxes(()), {axis.number for axis in (*kernel.rows, *kernel.columns)}
    beside = sum(free_axes(load) >= mine for load in ir.loads(kernel))
    return len(ir.every(kernel, ir.Contraction)) + dear + beside / 2


def reduces(kernel: LoopKernel) -> bool:
    """Return whether a kernel reduces its columns, apart from what its products sum."""
    return bool(ir.every(kernel, ir.Reduce))


def held_columns(kernel: LoopKernel) -> int:
    """Return how many columns a product's tile has at least where it has them all; 0 where they are looped over."""
    return MOST_HELD if reduces(kernel) and ir.elements(kernel.columns) <= MOST_HELD and kernel.split is None else 0


def looped_again(kernel: LoopKernel) -> bool:
    """Return whether a product's columns are looped over anew for what waits for all of them."""
    if not kernel.contracted or not reduces(kernel) or held_columns(kernel):
        return False
    inside = ir.every(kernel, ir.Reduce)
    if any(n.kind.startswith("welford") for n in inside):
        return True
    waits = any(isinstance(below, ir.Reduce) for n in inside if not is_place(n) for below in ir.below(n))
    free_axes, columns = ir.FreeAxes(a.number for a in kernel.columns), {a.number for a in kernel.columns}
    return waits or any(free_axes(n) & columns for s in kernel.stores for n in (s.value, *s.index))


def is_place(node: ir.Reduce) -> bool:
    """Return whether it is the first place where a row has its extreme: both are found in one loop."""
    made = node.arg
    if node.kind != "min_int32" or not isinstance(made, ir.Op) or made.name != "where":
        return False
    there = made.args[0]
    return isinstance(there, ir.Op) and there.name == "eq | isnan" and isinstance(there.args[1], ir.Reduce)


def few_tiles(kernel: LoopKernel) -> bool:
    """Return whether a product's tiles leave multiprocessors idle, and what is looped over is long."""
    rows, columns, batch, inner = kernel.sizes
    if reduces(kernel):
        places = any(map(is_place, ir.every(kernel, ir.Reduce)))
        return not held_columns(kernel) and not places and batch * -(-rows // 128) < 2 * MULTIPROCESSORS
    return rows <= FEW_ROWS and inner >= 2048 and batch * -(-columns // 64) < MULTIPROCESSORS
