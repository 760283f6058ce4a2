"""Choose between a kernel around products and the library's product with a kernel behind it, by measured rates."""

from __future__ import annotations

from functools import cache, partial

import msgspec
from msgspec import Struct

from tracemine.codegen import loop_ir as ir
from tracemine.codegen import products
from tracemine.codegen.loop_ir import LoopKernel, LoopProgram
from tracemine.codegen.options import DEFAULT
from tracemine.codegen.products import FEW, HELD, MULTIPROCESSORS, TWO, WALKED
from tracemine.tables import table_beside

_LAUNCH_US = 3.0
_CHEAP = frozenset({"max", "min", "sum"})  # reductions in flight that were measured
_TILES = {HELD: (128, 256), WALKED: (128, 256), TWO: (128, 128)}
_BEND = 4  # how sharply one limit gives way to the other: of the shapes that were measured
_ALIGNED = 64  # words
_CODES = frozenset({"int8", "uint8"})


class ClassRates(Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "class"}, kw_only=True):
    """What was measured of a class: the fields are explained where the rows stand."""

    kind: str
    refused: str | None = None
    ours: float = 0.0
    half: float = 0.0
    reuse: float = 0.0
    uneven: float = 1.0
    library: float = 0.0
    library_half: float = 0.0
    rest: float = 0.0
    rest_aligned: float = 0.0
    passes: int = 0
    gain: float = 1.0


@cache
def rates() -> dict[str, ClassRates]:
    """Return what was measured of each class."""
    rows = msgspec.convert(table_beside(__file__, "product_rates.toml")["rates"], list[ClassRates])
    return {row.kind: row for row in rows}


def refusal(program: LoopProgram) -> str | None:
    """Return why the kernels of a program with products are not made; None where they are."""
    kernels = [kernel for kernel in program.kernels if kernel.contracted]
    if not kernels:  # of one row
        return None if any(map(partial(_has_codes, program), program.kernels)) else rates()[FEW].refused
    if len(kernels) > 1:
        return "several products, each stored: the library's are faster"
    (kernel,) = kernels
    row = rates()[_class(program, kernel)]
    if row.refused is not None or row.kind.startswith(FEW):
        return row.refused
    tiles = products.product_tiles(program.buffers, kernel, DEFAULT)
    takes = min(products.predicted(program.buffers, kernel, tile) for tile in tiles)
    if not products.fits(*takes):
        return f"a tile takes {takes[0]} registers of a thread, or {takes[1]:,} bytes of shared memory: it spills"
    ours, others = times_us(kernel, row)
    if others >= ours * row.gain:
        return None
    return f"it would take {ours:.0f} µs, the library's product with a kernel behind it {others:.0f} µs"


def _class(program: LoopProgram, kernel: LoopKernel) -> str:
    """Return the class that a kernel was measured in: codes of 8 bits are one of their own."""
    found = products.product_class(kernel)
    if _has_codes(program, kernel):
        return f"{FEW}, codes" if found == FEW else "many rows, codes"
    dear = any(n.kind not in _CHEAP for n in ir.every(kernel, ir.Reduce))
    return "exponentials in flight" if found == WALKED and dear else found


def _has_codes(program: LoopProgram, kernel: LoopKernel) -> bool:
    return any(program.buffers[load.buffer].dtype in _CODES for load in ir.loads(kernel))


def times_us(kernel: LoopKernel, row: ClassRates) -> tuple[float, float]:
    """Return what a kernel is predicted to take, and the library's product with a kernel behind it, in microseconds."""
    rows, columns, batch, inner = kernel.sizes
    elements = rows * columns * batch
    flops = 2e-6 * elements * inner * len(ir.every(kernel, ir.Contraction))
    high, wide = _TILES[row.kind]
    wide = min(wide, max(16, 1 << (columns - 1).bit_length()))
    tiles = -(-rows // high) * -(-columns // wide) * batch
    waves = -(-tiles // MULTIPROCESSORS) / (tiles / MULTIPROCESSORS)
    padding = tiles * high * wide / elements
    rate = row.ours * inner / (inner + row.half) * (row.uneven if columns % wide else 1.0)
    if row.reuse:  # near both limits neither is reached
        rate = (rate**-_BEND + (row.reuse * high * wide / (high + wide)) ** -_BEND) ** (-1 / _BEND)
    ours = flops / rate * max(1.0, waves * padding)
    library = flops / (row.library * inner / (inner + row.library_half))
    as_it_is = row.rest_aligned and rows % _ALIGNED == 0  # not padded: torch.compile's kernel reads it in one pass
    rest = 2e-6 * elements * row.passes / (row.rest_aligned if as_it_is else row.rest)
    return _LAUNCH_US + ours, 2 * _LAUNCH_US + library + rest
