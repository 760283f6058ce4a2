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

    For an interpreter: short_steps: loop over short rows in several steps, and split long ones in two. least_block:
    elements of a block at least.
    """

    rounds: bool = False
    export_masks: bool = False
    longest_row: int = LONGEST_ROW
    short_steps: bool = False
    least_block: int = 0


DEFAULT = CodegenOptions()
