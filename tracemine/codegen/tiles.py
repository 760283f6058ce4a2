"""How kernels may be cut into blocks: candidates for each shape of kernel, the default first.

A cut is the elements of a block and those of a thread. Defaults are the best of many tried on an H200 over the recorded
graphs; the others are what was best for some of them. A row that one warp holds needs no barrier to be reduced, which
is worth more than that the warp is short of company; elementwise kernels want 16 bytes of each input in flight.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.codegen.schedule import ACROSS, ALONG, LOOPED, MIXED, POINTWISE, WHOLE

Cuts = tuple[tuple[int, int], ...]

_ALONG: dict[str, Cuts] = {
    POINTWISE: ((1024, 8), (1024, 16), (2048, 16)),
    WHOLE: ((1024, 32), (1024, 16), (2048, 32), (1024, 64)),
    LOOPED: ((2048, 8), (2048, 16), (4096, 8)),
}
_OTHERWISE: dict[str, Cuts] = {  # tiles; the elements of a block of rows that are held are given by how these lie
    POINTWISE: ((1024, 8), (4096, 16), (2048, 8)),
    WHOLE: ((1024, 32), (1024, 16), (1024, 64)),
    LOOPED: ((1024, 32), (1024, 16), (1024, 8)),
}
_LOOPED_ACROSS: Cuts = ((4096, 16), (2048, 8), (2048, 16))
_PARTS_ACROSS: Cuts = ((2048, 8), (2048, 16), (1024, 8))
_PARTS_MIXED: Cuts = ((1024, 8), (1024, 16), (1024, 32))
# A window moves by its step from one element to the next: with 8 of a row in each thread, lanes are so far apart
# that each load of a warp takes 8 turns of the cache, 128 bytes each, in place of one.
_WINDOWS: Cuts = ((256, 2), (512, 2), (512, 8))
# The larger a program, the fewer rows are walked at a time, and the more of them the cache still has for a second walk.
_AGAIN: Cuts = ((8192, 16), (4096, 16), (4096, 8))
# Rows that fill two thirds of a block: of fewer threads, each with more elements, the compiler drops what none has.
_RAGGED: Cuts = ((1024, 64), (1024, 32), (1024, 16), (2048, 32))
# Random numbers are drawn by many instructions, which more warps hide better: of 4,096 float32 138 µs, not 154.
_DRAWN: Cuts = ((1024, 8), (1024, 32), (1024, 16))
# Rows of an odd length lie at any address and are read one element at a time: better by more threads.
_ODD_ROWS: Cuts = ((256, 8), (1024, 32), (1024, 16), (1024, 8))

# Tiles of which so many inputs are loaded keep all of them in flight, in so many registers of a thread.
_MANY_LOADS, _REGISTERS = 16, 64


def cuts(
    mode: str,
    grain: str,
    pieces: int = 1,
    loads: int = 1,
    *,
    odd: bool = False,
    ragged: bool = False,
    again: bool = False,
    parts: bool = False,
    windows: bool = False,
    draws: bool = False,
) -> Cuts:
    """The candidates for kernels of a shape. pieces: of a row that a program walks all, so that a block is one's part.

    loads: how many an element waits for at once. odd: whether rows have an odd length. ragged: whether
    they fill little of a block, whose size is a power of two. again: whether long rows are walked more than once.
    parts: whether each program walks a part of a row. windows: whether what it reads lies in windows along the columns.
    draws: whether it draws random numbers.

    >>> cuts(POINTWISE, ALONG)[0], cuts(POINTWISE, ALONG, pieces=2)[0], cuts(POINTWISE, ALONG, loads=24)[0]
    ((1024, 8), (512, 4), (256, 2))
    """
    if (mode, grain) == (LOOPED, ACROSS):
        return _PARTS_ACROSS if parts else _LOOPED_ACROSS
    if (mode, grain, parts) == (LOOPED, MIXED, True):
        return _PARTS_MIXED
    if again:
        return _AGAIN
    rows = ((odd, _ODD_ROWS), (draws, _DRAWN), (ragged, _RAGGED))
    if (mode, grain) == (WHOLE, ALONG) and (special := next((cuts for there, cuts in rows if there), None)):
        return special
    if windows and (mode, grain) == (POINTWISE, ALONG):
        return _WINDOWS
    if mode == POINTWISE and loads > _MANY_LOADS:
        each = 1 << max((_REGISTERS // loads).bit_length() - 1, 0)
        return ((128 * each, each), (256 * each, 2 * each), (512 * each, 4 * each))
    found = (_ALONG if grain == ALONG else _OTHERWISE)[mode]
    share = 1 << (pieces - 1).bit_length()
    return tuple((max(elements // share, 1), max(each // share, 1)) for elements, each in found)


def blocks_text(kernels: Iterable[tuple[str, Cuts]]) -> str:
    """Return the table as source, for each kernel by name."""
    says = "# Elements of a block and of a thread. The first is taken; on another GPU another may be faster."
    return f"{says}\nBLOCKS = {table_text((name, found, '') for name, found in kernels)}"


def table_text(rows: Iterable[tuple[str, Cuts, str]]) -> str:
    """A dict of cuts as source: of one kernel in one line. rows: a kernel's name, its cuts, a comment behind them.

    >>> table_text([("k", ((1024, 8), (512, 4)), "  # the first")])
    '{"k": [(1024, 8), (512, 4)]}  # the first'
    """
    texts = [(f'"{name}": [{", ".join(map(str, found))}]', says) for name, found, says in rows]
    if len(texts) == 1:
        return f"{{{texts[0][0]}}}{texts[0][1]}"
    return "\n".join(["{", *(f"    {text},{says}" for text, says in texts), "}"])
