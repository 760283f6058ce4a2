"""Kernels around matrix products: what they reduce in flight, how full they leave a GPU, and their tile configs."""

from __future__ import annotations

from math import prod

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import LoopKernel
from tracemine.codegen.options import CodegenOptions

TileConfigs = tuple[tuple[int, ...], ...]

PRODUCT = "product"  # the schedule of such a kernel
# Rows that one tile holds, so that weights are read once; columns that it may hold whole; multiprocessors of an H100.
FEW_ROWS, MOST_HELD, MULTIPROCESSORS = 32, 256, 132

# Rows, columns and what is summed of a tile; warps and stages; blocks of rows side by side; programs of a
# multiprocessor that take one tile after another, 0: each program has one. Measured on an H100, within 3 % of the best.
FEW, HELD, WALKED, TWO, PLAIN = "few rows", "columns held", "columns looped over", "two products", "one product"
_PRODUCTS: dict[str, TileConfigs] = {
    FEW: ((32, 64, 128, 4, 5, 1, 0), (32, 32, 256, 4, 4, 1, 0)),
    HELD: ((128, 256, 64, 8, 4, 1, 1), (128, 256, 64, 8, 3, 1, 0)),
    WALKED: ((128, 256, 64, 8, 3, 1, 0),),
    TWO: ((128, 128, 64, 8, 4, 8, 0),),
    PLAIN: ((128, 256, 64, 8, 4, 8, 0),),
}
_SMALL: TileConfigs = ((16, 16, 16, 1, 1, 2, 1),)


def product_class(kernel: LoopKernel) -> str:
    """Return which of the classes a kernel around products is of: what is measured of one holds for its others."""
    if reduces(kernel):
        return HELD if held_columns(kernel) else WALKED
    if prod(axis.size for axis in kernel.rows) <= FEW_ROWS:
        return FEW
    return TWO if len(ir.contractions(kernel)) > 1 else PLAIN


def product_tiles(kernel: LoopKernel, options: CodegenOptions) -> TileConfigs:
    """Return the candidates for a kernel around products."""
    return _SMALL if options.small_tiles else _PRODUCTS[product_class(kernel)]


def reduces(kernel: LoopKernel) -> bool:
    """Return whether a kernel reduces its columns, beside what its products sum."""
    return any(isinstance(n, ir.Reduce) for n in ir.nodes_of(kernel))


def held_columns(kernel: LoopKernel) -> int:
    """Return how many columns a product's tile has at least where it has them all; 0 where they are looped over."""
    length = prod(axis.size for axis in kernel.columns)
    return MOST_HELD if reduces(kernel) and length <= MOST_HELD and kernel.split is None else 0


def looped_again(kernel: LoopKernel) -> bool:
    """Return whether a product's columns are looped over anew for what waits for all of them."""
    if not kernel.contracted or not reduces(kernel) or held_columns(kernel):
        return False
    inside = [n for n in ir.nodes_of(kernel) if isinstance(n, ir.Reduce)]
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
    rows, columns, batch, inner = (
        prod(axis.size for axis in axes) for axes in (kernel.rows, kernel.columns, kernel.batch, kernel.contracted)
    )
    if reduces(kernel):
        places = any(isinstance(n, ir.Reduce) and is_place(n) for n in ir.nodes_of(kernel))
        return not held_columns(kernel) and not places and batch * -(-rows // 128) < 2 * MULTIPROCESSORS
    return rows <= FEW_ROWS and inner >= 2048 and batch * -(-columns // 64) < MULTIPROCESSORS
