"""Collapse axes that are contiguous in every tensor of a kernel: a launcher loops over them as one.

The kernel stays as it is. It is given one place for the outer ones and all of them for the innermost, so that a block
holds more than one short row, and reads of a row are as wide as they can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.loop_ir import Axis, KernelBuffer, LoopKernel, LoopNode

_WIDE = 16  # elements that lie side by side: more are not read at once


class AxisRun(NamedTuple):
    """Axes to loop over as one, the outermost first, and what must hold of the tensors at a call."""

    axes: tuple[Axis, ...]
    conditions: tuple[str, ...]

    @property
    def line(self) -> str:
        """The launcher's line that says how they are looped over.

        >>> AxisRun((Axis(1, 4, False), Axis(2, 8, False)), ("x.stride(1) == n2 * x.stride(2)",)).line
        'n1_collapsed, n2_collapsed = (1, n1 * n2) if x.stride(1) == n2 * x.stride(2) else (n1, n2)'
        """
        names = [axis.name for axis in self.axes]
        one = ", ".join([*("1" for _ in names[1:]), " * ".join(names)])
        held = " and ".join(self.conditions) or "True"
        return f"{', '.join(f'{n}_collapsed' for n in names)} = ({one}) if {held} else ({', '.join(names)})"


def runs(buffers: Mapping[str, KernelBuffer], kernels: Sequence[tuple[LoopKernel, bool]]) -> list[AxisRun]:
    """Return the axes that may be looped over as one in kernels that share a launch, as their tensors were recorded.

    With each kernel, whether it reduces nothing, so that its rows may become columns.
    """
    found: dict[tuple[Axis, ...], None] = {}
    for kernel, pointwise in kernels:
        for loop in _loops(kernel, pointwise):
            for axes in _behind(buffers, kernel, loop):
                if axes[-1] not in kernel.columns:
                    continue  # rows that are looped over as one save a division each
                if axes[0] == loop[0] and axes[-1].size % _WIDE == 0:
                    continue  # reads are wide as it is, and another batch would compile once more
                found[axes] = None
    return [
        AxisRun(
            axes, tuple(dict.fromkeys(text for kernel, _ in kernels for text in _conditions(buffers, kernel, axes)))
        )
        for axes in found
        if all(_agrees(buffers, kernel, pointwise, axes) for kernel, pointwise in kernels)
    ]


def _loops(kernel: LoopKernel, pointwise: bool) -> tuple[tuple[Axis, ...], ...]:
    """Return the axes that a kernel loops over as one."""
    if kernel.column_tiles > 1:
        return (kernel.rows,)
    return ((*kernel.rows, *kernel.columns),) if pointwise else (kernel.rows, kernel.columns)


def _agrees(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, pointwise: bool, axes: tuple[Axis, ...]) -> bool:
    """Return whether a kernel too loops over axes one behind the other, or none of them."""
    if not _may(buffers, kernel, axes):
        return False
    size = len(axes)
    behind = any(loop[k : k + size] == axes for loop in _loops(kernel, pointwise) for k in range(len(loop)))
    return behind or not {*axes} & {*kernel.rows, *kernel.columns}


def _behind(
    buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, loop: Sequence[Axis]
) -> Iterable[tuple[Axis, ...]]:
    """Yield the longest runs of a loop's axes."""
    run: list[Axis] = []
    for axis in loop:
        if run and not _may(buffers, kernel, (run[-1], axis)):
            if len(run) > 1:
                yield tuple(run)
            run = []
        run.append(axis)
    if len(run) > 1:
        yield tuple(run)


def _may(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, axes: tuple[Axis, ...]) -> bool:
    """Return whether axes are contiguous in all tensors that have any of them, and no index separates them."""
    mine = {*axes}
    if any(axis.pinned for axis in axes) or not _laid_out_alike(buffers, kernel, axes):
        return False
    for node in ir.nodes_of(kernel):
        sized = node.axes if isinstance(node, ir.Size | ir.SizeValue) else ()
        if mine & {*sized} and not mine <= {*sized}:
            return False
        if not isinstance(node, ir.Load) and mine & _indices(ir.children(node)):
            return False
    return True


def _laid_out_alike(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, axes: tuple[Axis, ...]) -> bool:
    """Return whether every access has all of the axes, each as far as the next ones reach, or none of them."""
    mine = {*axes}
    for buffer, index in ir.accesses(kernel):
        dims = [_dim(index, axis) for axis in axes]
        if mine & _indices(index) != (mine if None not in dims else set()):
            return False
        strides = buffers[buffer].strides
        for (_, outer), (axis, inner) in pairwise(zip(axes, dims, strict=True)):
            if outer is not None and inner is not None and strides[outer] != axis.size * strides[inner]:
                return False
    return True


def _conditions(buffers: Mapping[str, KernelBuffer], kernel: LoopKernel, axes: tuple[Axis, ...]) -> Iterable[str]:
    """Yield the conditions that they are contiguous at a call; in what the launcher allocates they are."""
    for buffer, index in ir.accesses(kernel):
        if buffers[buffer].role == "input" and _dim(index, axes[0]) is not None:
            for outer, inner in pairwise(axes):
                first, second = _dim(index, outer), _dim(index, inner)
                yield f"{buffer}.stride({first}) == {inner.name} * {buffer}.stride({second})"


def _indices(nodes: Iterable[LoopNode]) -> set[Axis]:
    return {node.axis for node in nodes if isinstance(node, ir.LoopIndex)}


def _dim(index: Sequence[LoopNode], axis: Axis) -> int | None:
    """Return the dimension along which an access goes with an axis."""
    return next((d for d, place in enumerate(index) if isinstance(place, ir.LoopIndex) and place.axis == axis), None)
