"""How a loop is divided into tiles: the lines of a plan, and the functions that they call."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.loop_ir import loads
from tracemine.codegen.options import LONGEST_ROW
from tracemine.codegen.passes.rows_in_turn import LONGEST_IN_TURN
from tracemine.codegen.products import FEW_ROWS, MOST_HELD, MULTIPROCESSORS, PRODUCT, reduces
from tracemine.codegen.schedule import IN_TURN, INNER, OUTER, PERSISTENT, POINTWISE, writes_outer_contiguous
from tracemine.codegen.triton.expressions import Names, sizes
from tracemine.codegen.triton.product import ProductBody
from tracemine.codegen.triton.subkernel import SubKernel
from tracemine.tables import table_beside

_MAX_COLUMNS = {1: 16384, 2: 8192, 3: 8192}  # of one block's columns, by how many inputs are loaded

_TEXTS = table_beside(__file__, "texts.toml")
_TILES: str = _TEXTS["tiles"]
_TILES_OUTER: str = _TEXTS["tiles_outer"]
_PERSISTENT_TILES = f'''
def _persistent_tiles(elements, elements_per_thread, rows, columns, min_rows=0, many_rows=True):
    """Return tiles of complete rows. min_rows: where rows are adjacent in memory; many_rows: there are several."""
    if columns > {LONGEST_ROW}:
        raise ValueError(f"rows of {{columns}} elements: the kernel holds {LONGEST_ROW} at most")
    rblock = triton.next_power_of_2(max(columns, 1))
    xblock = min(64, max(min_rows, 4096 // rblock), max(1, 16384 // rblock)) if min_rows else max(1, elements // rblock)
    xblock = xblock if many_rows else 1
    blocks = triton.cdiv(rows, xblock)
    if not min_rows and blocks < 1024:  # few blocks: fewer elements a thread give more threads
        elements_per_thread = min(elements_per_thread, 8)
    return rows, columns, blocks, xblock, rblock, _warps(xblock * rblock, elements_per_thread)
'''
_TURNS = f'''
def _turns(elements, elements_per_thread, programs, rows, columns):
    """Return programs that take rows in turn, so many a multiprocessor at most, and the tiles of their blocks."""
    if columns > {LONGEST_IN_TURN}:
        raise ValueError(f"rows of {{columns}} elements: the kernel holds {LONGEST_IN_TURN} at most")
    rblock = triton.next_power_of_2(max(columns, 1))
    xblock = max(1, elements // rblock)
    blocks = max(1, min(triton.cdiv(rows, xblock), programs * _multiprocessors()))
    return blocks, xblock, rblock, _warps(xblock * rblock, elements_per_thread)
'''
STEP = "max(32, triton.next_power_of_2(columns // 16))"  # columns at a time of a loop that takes several steps
_LOOPED_TILES: str = _TEXTS["looped_tiles"]


_PRODUCT_TILES = f'''
def _product_tiles(tile_config, rows, columns, apart=1, held=False, reduced=False):
    """Return blocks and tiles of products. apart: batches and parts; held: a tile has all columns; they are reduced."""
    xblock, rblock, kblock, warps, stages, group, resident = tile_config
    if held and columns > {MOST_HELD}:
        raise ValueError(f"rows of {{columns}} elements: the kernel holds {MOST_HELD} at most")
    xblock = min(xblock, max(16, triton.next_power_of_2(max(rows, 1))))
    rblock = max(16, triton.next_power_of_2(max(columns, 1))) if held else rblock
    blocks = triton.cdiv(rows, xblock) * apart * (1 if reduced else triton.cdiv(columns, rblock))
    if resident:
        blocks = min(blocks, resident * _multiprocessors())
    return rows, columns, blocks, xblock, rblock, kblock, group, resident > 0, warps, stages
'''
_PRODUCT_PARTS = f'''
def _product_parts(length, tiles, least):
    """Return in how many parts what is looped over is taken: enough for two waves of tiles, none too short."""
    return max(1, min(length // least, triton.cdiv(2 * {MULTIPROCESSORS}, max(tiles, 1))))
'''
_MULTIPROCESSORS = """
def _multiprocessors():
    found = torch.cuda.is_available() and torch.cuda.get_device_properties(0).multi_processor_count
    return found or 2  # an interpreter's
"""
_DESCRIBABLE: str = _TEXTS["describable"]
PRODUCT_CONSTANTS = [f"{name}: tl.constexpr" for name in ("KBLOCK", "GROUP", "FLAT", "DESCRIBED")]
PRODUCT_TAKES = ("rows", "columns", "index", "xblock", "rblock", "*tile", "bool(described)")


def product_lines(part: SubKernel, tile_config: str, given: Sequence[str], names: Names) -> list[str]:
    """Return a plan's lines that say how a kernel around products is divided. given: what it takes of a call."""
    body = part.body
    assert isinstance(body, ProductBody)  # noqa: S101  (what a kernel of this schedule has)
    loop = [tile_config, *(sizes(axes, names) for axes in (part.kernel.rows, part.kernel.columns))]
    loop += [" * ".join(body.apart(names))] * bool(body.apart(names)) + ["held=True"] * bool(body.held)
    loop += ["reduced=True"] * reduces(part.kernel)
    blocks = []
    for place, name in enumerate(given):
        if (found := body.described.get(name)) is not None:
            sides = {found.lines: found.block.lower(), found.inner: "tile[0]"}
            dims = range(len(part.program.buffers[name].dims))
            blocks.append(f"{place}: [{', '.join(sides.get(d, '1') for d in dims)}]")
    described = f"{{{', '.join(blocks)}}} if _describable({', '.join(body.described)}) else {{}}" if blocks else "{}"
    tile = "rows, columns, blocks, xblock, rblock, *tile, warps, stages"
    return [f"{tile} = _product_tiles({', '.join(loop)})", f"described = {described}"]


def cutting(short_steps: bool) -> tuple[str, ...]:
    """Return the functions that choose tiles. short_steps: loops over short rows take several steps."""
    rblock = "min(elements * few, max_columns) if max_columns else elements // min_rows"
    looped = _LOOPED_TILES.format(widest=f"min({STEP}, {rblock})" if short_steps else rblock)
    products = (_PRODUCT_PARTS, _MULTIPROCESSORS, _TURNS, _PRODUCT_TILES, _DESCRIBABLE)
    return _TILES, _TILES_OUTER, _PERSISTENT_TILES, looped, *products


def split_lines(part: SubKernel, tile_config: str, names: Names) -> list[str]:
    """Return how many parts rows are split into, where they are."""
    kernel = part.kernel
    if kernel.split is None:
        return []
    loop = f"{sizes(kernel.rows, names)}, {sizes(kernel.columns, names)}"
    if part.mode == IN_TURN:
        return [f"{kernel.split.name}, *{kernel.split.name}_tile = _turns(*{tile_config}, {loop})"]
    if part.mode == PRODUCT:
        flight = reduces(kernel)
        along, blocks, least = (kernel.columns, 128, 1024) if flight else (kernel.contracted, FEW_ROWS, 512)
        tiles = [f"triton.cdiv({sizes(kernel.rows, names)}, {blocks})", sizes(kernel.batch, names)]
        tiles += [] if flight else [f"triton.cdiv({sizes(kernel.columns, names)}, 64)"]
        least = 16 if part.schedule.options.small_tiles else least
        return [f"{kernel.split.name} = _product_parts({sizes(along, names)}, {' * '.join(tiles)}, {least})"]
    high = _high(part, names)
    wide = {INNER: str(min(2048, part.schedule.options.longest_row)), OUTER: f"2048 // {high}"}.get(
        part.contiguity, "64"
    )
    return [f"{kernel.split.name} = _num_splits({loop}, {wide}, {high})"]


def tile_lines(part: SubKernel, tile_config: str, names: Names) -> list[str]:
    """Return the lines that say how a loop is divided into tiles.

    tile_config: elements of a block and of a thread, as arguments.
    """
    kernel = part.kernel
    loop = f"{sizes(kernel.rows, names)}, {sizes(kernel.columns, names)}"
    beside = ["many_rows=False"] * (not kernel.rows)
    tile_configs = "rows, columns, blocks, xblock, rblock, warps"
    if kernel.split is not None and part.mode == IN_TURN:  # `split_lines` has asked for its tile
        found = f"{kernel.split.name}, *{kernel.split.name}_tile"
        return [f"{tile_configs} = {loop}, {found}"]
    if part.mode == POINTWISE and part.contiguity == INNER:
        dense = [" and ".join(part.dense(names)) or "True"] if part.flat else []
        tile_configs = f"rows, columns, {'blocks_per_row' if part.flat else '_'}, blocks, xblock, rblock, warps"
        return [f"{tile_configs} = _tiles({', '.join([tile_config, loop, *dense])})"]
    if part.mode == POINTWISE:
        return [f"{tile_configs} = _tiles_outer({', '.join([tile_config, loop, *beside])})"]
    if part.mode == PERSISTENT:
        # Rows next to each other that a block has at least: 16 bytes of what is read across, 32 of what is written.
        least = 8 << writes_outer_contiguous(part.program.buffers, part.kernel)
        beside = [*[str(least)] * (part.contiguity != INNER), *beside]
        return [f"{tile_configs} = _persistent_tiles({', '.join([tile_config, loop, *beside])})"]
    rows = _high(part, names)
    more = [f"max_columns={_max_columns(part)}", "max_warps=32"] if part.contiguity == INNER else [f"min_rows={rows}"]
    more += [f"splits={names.axis(kernel.split)}"] if kernel.split else []
    return [f"{tile_configs} = _looped_tiles({', '.join([tile_config, loop, *more, *beside])})"]


def _high(part: SubKernel, names: Names) -> str:
    """Return how many rows a block has of rows that are looped over: no more than there are."""
    if part.contiguity == OUTER:
        return f"min(64, triton.next_power_of_2(max({sizes(part.kernel.rows, names)}, 1)))"
    return "1" if part.contiguity == INNER else "16"


def _max_columns(part: SubKernel) -> int:
    """Return how many columns a block has at most of rows that are looped over: the fewer inputs, the more."""
    along = sum(part.body.outer(*load.index) for load in loads(part.kernel))
    most = part.schedule.options.longest_row if part.kernel.split else _MAX_COLUMNS.get(along, 4096)
    return min(most, part.schedule.options.longest_row)
