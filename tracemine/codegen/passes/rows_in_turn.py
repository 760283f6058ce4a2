"""Join a kernel that holds rows with one that sums the same tensors along the other axes, as norms' gradients do.

Alone, the second reads everything again. Joined, a program takes rows in turn and keeps what it adds up along them in
registers; the sums of all programs are added up by the kernel that would have added up the parts. Their order is
fixed, so the result is the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec.structs import replace

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import KernelBuffer, LoopKernel, Nodes, Store
from tracemine.codegen.schedule import INNER, SHARE, contiguity

# A thread holds its elements of a row and of each sum: longer rows spill.
LONGEST_IN_TURN = 8192
_MOST_SUMS = 3
_PLACED = (ir.RunningSum, ir.Random, ir.Contraction, ir.IndirectIndex)


def rows_in_turn(nodes: Nodes, buffers: dict[str, KernelBuffer], kernels: Sequence[LoopKernel]) -> list[LoopKernel]:
    """Return kernels of which each that may is joined with one that sums along its rows."""
    found = list(kernels)
    for summing in kernels:
        sums = _sums(nodes, summing)
        holding = next((k for k in found if k is not summing and _joins(buffers, k, summing)), None) if sums else None
        if holding is not None:
            joined = replace(holding, stores=(*holding.stores, *sums), split=summing.split)
            found = [joined if k is holding else k for k in found if k is not summing]
    return found


def _sums(nodes: Nodes, kernel: LoopKernel) -> tuple[Store, ...]:
    """Return what a kernel stores as sums over rows in turn; nothing where it stores anything else."""
    if kernel.split is None or len(kernel.stores) > _MOST_SUMS:
        return ()
    found = []
    for store in kernel.stores:
        value = store.value
        if not isinstance(value, ir.Reduce) or value.kind != "sum" or isinstance(value.arg, ir.Constant):
            return ()
        if any(isinstance(node, (ir.Reduce, *_PLACED)) for node in (value.arg, *ir.below(value.arg))):
            return ()
        found.append(replace(store, value=nodes.make(ir.RowSum, value.type, value.arg, kernel.columns)))
    return tuple(found)


def _joins(buffers: dict[str, KernelBuffer], holding: LoopKernel, summing: LoopKernel) -> bool:
    """Return whether one kernel reads, row by row, what another sums along these rows."""
    across = {*holding.rows} == {*summing.columns} and {*holding.columns} == {*summing.rows}
    if not across or holding.level != summing.level or not _takes_turns(buffers, holding):
        return False
    sized = {load.buffer: prod(buffers[load.buffer].shape) for load in ir.loads(summing)}
    large = {name for name, size in sized.items() if size * SHARE >= max(sized.values())}
    return bool(large) and large <= {load.buffer for load in ir.loads(holding)}


def _takes_turns(buffers: dict[str, KernelBuffer], kernel: LoopKernel) -> bool:
    """Return whether a kernel holds rows that a program may take one after another, and writes nothing in place."""
    special = kernel.split is not None or kernel.column_tiles > 1 or kernel.after or kernel.contracted
    if special or ir.elements(kernel.columns) > LONGEST_IN_TURN:
        return False
    placed = any(isinstance(node, _PLACED) for node in ir.nodes_of(kernel))
    in_place = any(buffers[store.buffer].role == "input" for store in kernel.stores)
    return not placed and not in_place and contiguity(buffers, kernel) == INNER
