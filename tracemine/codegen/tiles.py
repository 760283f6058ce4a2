"""Tile configs of a kernel: candidates for each schedule, the default first.

A tile config is the elements of a block and those of a thread, of rows in turn also how many programs take them on a
multiprocessor. Defaults are the best of many tried on an H200 over the recorded graphs; the others are what was best
for some of them. A row that one warp holds needs no barrier to be reduced, which is worth more than that the warp is
short of company; elementwise kernels want 16 bytes of each input in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tracemine.codegen.products import TileConfigs
from tracemine.codegen.schedule import INNER, LOOPED, MIXED, OUTER, PERSISTENT, POINTWISE

_INNER: dict[str, TileConfigs] = {
    POINTWISE: ((1024, 8), (1024, 16), (2048, 16)),
    PERSISTENT: ((1024, 32), (1024, 16), (2048, 32), (1024, 64)),
    LOOPED: ((2048, 8), (2048, 16), (4096, 8)),
}
_OTHERWISE: dict[str, TileConfigs] = {  # of rows that are held a block's elements are given by how these lie
    POINTWISE: ((1024, 8), (4096, 16), (2048, 8)),
    PERSISTENT: ((1024, 32), (1024, 16), (1024, 64)),
    LOOPED: ((1024, 32), (1024, 16), (1024, 8)),
}
# Rows in turn, with programs a multiprocessor: as many as it holds at once, so that all end together.
_TURNS: TileConfigs = ((4096, 16, 2), (2048, 16, 4), (4096, 32, 4), (4096, 32, 3))
_LOOPED_OUTER: TileConfigs = ((4096, 16), (2048, 8), (2048, 16))
_PARTS_OUTER: TileConfigs = ((2048, 8), (2048, 16), (1024, 8))
_PARTS_MIXED: TileConfigs = ((1024, 8), (1024, 16), (1024, 32))
# A window moves by its step from one element to the next: with 8 of a row in each thread, lanes are so far apart
# that each load of a warp takes 8 accesses of the cache, 128 bytes each, in place of one.
_WINDOWS: TileConfigs = ((256, 2), (512, 2), (512, 8))
# The larger a program, the fewer rows are looped over at a time, and the more of them the cache still has for a second
# loop.
_AGAIN: TileConfigs = ((8192, 16), (4096, 16), (4096, 8))
# Rows that fill two thirds of a block: of fewer threads, each with more elements, the compiler drops what none has. And
# the widest that are held: softmax of 16,384 columns took an H200 131.5 us so, and 135.9 with half the elements.
_RAGGED: TileConfigs = ((1024, 64), (1024, 32), (1024, 16), (2048, 32))
# Random numbers are drawn by many instructions, which more warps hide better: of 4,096 float32 138 µs, not 154.
_RANDOM: TileConfigs = ((1024, 8), (1024, 32), (1024, 16))
# Rows of an odd length lie at any address and are read one element at a time: better by more threads.
_ODD_ROWS: TileConfigs = ((256, 8), (1024, 32), (1024, 16), (1024, 8))

# Tiles of which so many inputs are loaded keep all of them in flight, in so many registers of a thread.
_MANY_LOADS, _REGISTERS = 16, 64


# Schedule, contiguity, and what else is so of a kernel: the first that fits has tile configs of its own.
_SPECIAL: tuple[tuple[str, str, str, TileConfigs], ...] = (
    (LOOPED, OUTER, "each program loops over a part of a row", _PARTS_OUTER),
    (LOOPED, OUTER, "", _LOOPED_OUTER),
    (LOOPED, MIXED, "each program loops over a part of a row", _PARTS_MIXED),
    (LOOPED, INNER, "long rows are looped over again", _AGAIN),
    (PERSISTENT, INNER, "rows have an odd length", _ODD_ROWS),
    (PERSISTENT, INNER, "random numbers are drawn", _RANDOM),
    (PERSISTENT, INNER, "rows fill little of a block", _RAGGED),
    (POINTWISE, INNER, "windows are read", _WINDOWS),
)


def tile_configs(
    mode: str, contiguity: str, column_tiles: int = 1, loads: int = 1, so: Collection[str] = ()
) -> TileConfigs:
    """Return the candidates for kernels of a schedule.

    column_tiles: of a row, where a program loops over all of them: a block is a part of one. loads: how many an element
    waits for at once. so: what else is so, by the table's words.

    >>> [tile_configs(POINTWISE, INNER, **how)[0] for how in ({}, {"column_tiles": 2}, {"loads": 24})]
    [(1024, 8), (512, 4), (256, 2)]
    """
    for *case, what, special in _SPECIAL:
        if case == [mode, contiguity] and what in ("", *so):
            return special
    if mode == POINTWISE and loads > _MANY_LOADS:
        each = 1 << max((_REGISTERS // loads).bit_length() - 1, 0)
        return ((128 * each, each), (256 * each, 2 * each), (512 * each, 4 * each))
    found = (_INNER if contiguity == INNER else _OTHERWISE)[mode]
    share = 1 << (column_tiles - 1).bit_length()
    return tuple((max(elements // share, 1), max(each // share, 1)) for elements, each in found)


def turn_configs(longest_row: int) -> TileConfigs:
    """Return the candidates for rows in turn: small blocks where short rows are looped over, for trial."""
    return tuple((min(elements, 4 * longest_row), *rest) for elements, *rest in _TURNS)


def blocks_text(kernels: Iterable[tuple[str, TileConfigs]]) -> str:
    """Return the table as source, for each kernel by name."""
    rows = list(kernels)
    turns = " (and programs of a multiprocessor)" * any(len(found[0]) == len(_TURNS[0]) for _, found in rows)
    says = f"# Elements of a block and of a thread{turns}. The first is taken; on another GPU another may be faster."
    return f"{says}\nBLOCKS = {table_text((name, found, '') for name, found in rows)}"


def table_text(rows: Iterable[tuple[str, TileConfigs, str]]) -> str:
    """Return a dict of tile configs as source: of one kernel in one line.

    rows: a kernel's name, its tile configs, a comment behind them.

    >>> table_text([("k", ((1024, 8), (512, 4)), "  # the first")])
    '{"k": [(1024, 8), (512, 4)]}  # the first'
    """
    texts = [(f'"{name}": [{", ".join(map(str, found))}]', says) for name, found, says in rows]
    if len(texts) == 1:
        return f"{{{texts[0][0]}}}{texts[0][1]}"
    return "\n".join(["{", *(f"    {text},{says}" for text, says in texts), "}"])
