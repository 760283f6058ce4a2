"""How a graph's kernels are generated."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_ROW = 16_384  # elements of a row that is held in registers: 64 a thread of the largest block


@dataclass(frozen=True, slots=True, kw_only=True)
class CodegenOptions:
    """Options of `generate`.

    rounds: the build that rounds after every call as eager does, to validate the dataflow bit for bit; else values stay
    in float32 until they are stored. export_masks: give back what dropout kept too, after the live values. longest_row:
    elements of a row that a kernel may hold in registers; longer ones are looped over.

    every_product: matrix products are made whether or not that is faster than the library's. spelled_out: so are sums
    of products that are no calls of their own, else reduced by rows.

    For an interpreter: small_tiles: of products, 16 numbers wide. short_steps: loop over short rows in several steps,
    and split long ones in two. least_block: elements of a block at least.
    """

    rounds: bool = False
    export_masks: bool = False
    longest_row: int = LONGEST_ROW
    every_product: bool = False
    spelled_out: bool = False
    small_tiles: bool = False
    short_steps: bool = False
    least_block: int = 0


DEFAULT = CodegenOptions()
WHATEVER = CodegenOptions(every_product=True)  # whatever can be generated, be it slower than what it replaces
