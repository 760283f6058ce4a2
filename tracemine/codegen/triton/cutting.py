"""How a walk is cut into blocks: the lines of a plan, and the functions that they call."""

from __future__ import annotations

from tracemine.codegen.loop_ir import loads
from tracemine.codegen.options import LONGEST_ROW
from tracemine.codegen.schedule import ACROSS, ALONG, POINTWISE, WHOLE, writes_across
from tracemine.codegen.triton.expressions import Names, sizes
from tracemine.codegen.triton.subkernel import SubKernel

_MOST_WIDE = {1: 16384, 2: 8192, 3: 8192}  # of one block's columns, by how many inputs are loaded

_TILES = '''
def _tiles(elements, each, rows, columns, dense=False):
    """Tiles of rows and columns, along the columns. dense: rows lie behind each other in all tensors, and are one."""
    rows, columns = (1, rows * columns) if dense else (rows, columns)
    rblock = min(triton.next_power_of_2(max(columns, 1)), elements)
    xblock = min(elements // rblock, triton.next_power_of_2(max(rows, 1)))
    wide = triton.cdiv(columns, rblock) if rows > 1 else 2**31 - 1  # blocks of a row, or more
    blocks = triton.cdiv(rows, xblock) * triton.cdiv(columns, rblock)
    return rows, columns, wide, blocks, xblock, rblock, _warps(xblock * rblock, each)
'''
_TALL_TILES = '''
def _tall_tiles(elements, each, rows, columns, beside=True):
    """Tiles of rows and columns, where some tensors lie along the rows. beside: there are several rows."""
    rblock = 64 if elements >= 4096 else 32
    xblock = elements // rblock if beside else 1
    blocks = triton.cdiv(rows, xblock) * triton.cdiv(columns, rblock)
    return rows, columns, blocks, xblock, rblock, _warps(xblock * rblock, each)
'''
_WHOLE_ROWS = f'''
def _whole_rows(elements, each, rows, columns, high=0, beside=True):
    """Rows that a block holds whole. high: of rows beside each other as many at least; beside: there are several."""
    if columns > {LONGEST_ROW}:
        raise ValueError(f"rows of {{columns}} elements: the kernel holds {LONGEST_ROW} at most")
    rblock = triton.next_power_of_2(max(columns, 1))
    xblock = min(64, max(high, 4096 // rblock), max(1, 16384 // rblock)) if high else max(1, elements // rblock)
    xblock = xblock if beside else 1
    blocks = triton.cdiv(rows, xblock)
    each = each if high or blocks >= 1024 else min(each, 8)  # few blocks leave room: a thread takes less of a row
    return rows, columns, blocks, xblock, rblock, _warps(xblock * rblock, each)
'''
STEP = "max(32, triton.next_power_of_2(columns // 16))"  # columns at a time of a loop that takes several steps
_WALKED_ROWS = '''
def _walked_rows(elements, each, rows, columns, high=1, widest=0, most=16, parts=0, beside=True):
    """Rows that are walked in a loop. high: so many of a block; widest: its columns, where rows lie along memory.

    most: warps; parts: rows are cut into so many. Few rows get larger blocks: as many threads wait for memory then.
    """
    few = 1 if parts else triton.next_power_of_2(max(1024 // max(rows, 1), 1))
    rblock = {widest}
    xblock = high if beside else 1
    blocks = triton.cdiv(rows, xblock) * (parts or 1)
    each = each if parts or blocks >= 1024 else min(each, 8)  # few blocks leave room: a thread takes less of a row
    return rows, columns, blocks, xblock, rblock, _warps(xblock * rblock, each, most)
'''


def cutting(short_steps: bool) -> tuple[str, ...]:
    """Return the functions that choose tiles. short_steps: loops over short rows take several steps."""
    rblock = "min(elements * few, widest) if widest else elements // high"
    walked = _WALKED_ROWS.format(widest=f"min({STEP}, {rblock})" if short_steps else rblock)
    return _TILES, _TALL_TILES, _WHOLE_ROWS, walked


def split_lines(part: SubKernel, names: Names) -> list[str]:
    """How many parts rows are cut into, where they are."""
    kernel = part.kernel
    if kernel.split is None:
        return []
    high = _high(part, names)
    wide = {ALONG: str(min(2048, part.schedule.options.longest_row)), ACROSS: f"2048 // {high}"}.get(part.grain, "64")
    walk = f"{sizes(kernel.rows, names)}, {sizes(kernel.columns, names)}"
    return [f"{kernel.split.name} = _parts({walk}, {wide}, {high})"]


def cut_lines(part: SubKernel, cut: str, names: Names) -> list[str]:
    """The lines that say how a walk is cut into blocks. cut: elements of one and of a thread, as arguments."""
    kernel = part.kernel
    walk = f"{sizes(kernel.rows, names)}, {sizes(kernel.columns, names)}"
    beside = [] if kernel.rows else ["beside=False"]
    cuts = "rows, columns, blocks, xblock, rblock, warps"
    if part.mode == POINTWISE and part.grain == ALONG:
        dense = [" and ".join(part.dense(names)) or "True"] if part.flat else []
        cuts = f"rows, columns, {'wide' if part.flat else '_'}, blocks, xblock, rblock, warps"
        return [f"{cuts} = _tiles({', '.join([cut, walk, *dense])})"]
    if part.mode == POINTWISE:
        return [f"{cuts} = _tall_tiles({', '.join([cut, walk, *beside])})"]
    if part.mode == WHOLE:
        # Rows beside each other: 16 bytes of what is read across and 32 of what is written at once.
        high = [] if part.grain == ALONG else ["16" if writes_across(part.program.buffers, kernel) else "8"]
        return [f"{cuts} = _whole_rows({', '.join([cut, walk, *high, *beside])})"]
    rows = _high(part, names)
    more = [f"widest={_widest(part)}", "most=32"] if part.grain == ALONG else [f"high={rows}"]
    more += [f"parts={names.axis(kernel.split)}"] if kernel.split else []
    return [f"{cuts} = _walked_rows({', '.join([cut, walk, *more, *beside])})"]


def _high(part: SubKernel, names: Names) -> str:
    """How many rows a block has of rows that are walked in a loop: no more than there are."""
    if part.grain == ACROSS:
        return f"min(64, triton.next_power_of_2(max({sizes(part.kernel.rows, names)}, 1)))"
    return "1" if part.grain == ALONG else "16"


def _widest(part: SubKernel) -> int:
    """How many columns a block has at most of rows that are walked in a loop: the fewer inputs, the more."""
    most = part.schedule.options.longest_row if part.kernel.split else _MOST_WIDE.get(len(loads(part.kernel)), 4096)
    return min(most, part.schedule.options.longest_row)
