"""Choose the schedule of a kernel: pointwise, persistent or looped reduction, by its rows and their contiguity.

Or rows in turn: a program takes one after another, and adds up along them what is summed over all rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import Axis, KernelBuffer, LoopKernel, LoopNode, LoopProgram
from tracemine.codegen.options import LONGEST_ROW, CodegenOptions
from tracemine.codegen.products import PRODUCT, few_tiles

POINTWISE, PERSISTENT, LOOPED, IN_TURN = "pointwise", "persistent", "looped", "rows in turn"
INNER, OUTER, MIXED = "inner-contiguous", "outer-contiguous", "mixed"

# Elements of a row that is held with others, where elements side by side in memory are of several rows: so many rows
# that 32 bytes of each column are taken at once, and 32 elements a thread.
_LONGEST_OUTER, _LONGEST_MIXED = 64, 1024
# Rows that are looped over by few programs, each by one or so many by one, leave most of a GPU idle: they are split
# into parts. Unless they are as short as that, where some lie side by side.
_SHORT_OUTER, _HIGH = 512, {INNER: 1, MIXED: 16, OUTER: 64}
# Rows of so many times what registers hold keep a program busy for so long that even four to a multiprocessor leave it
# half idle: 128 rows of 524,288 elements took an H200 396 µs, and torch.compile's kernels, in parts, 176.
_VERY_LONG = 16
SHARE = 4  # a tensor of less than one part in so many of the largest one's elements does not say how a kernel loops


def schedule_kind(buffers: dict[str, KernelBuffer], kernel: LoopKernel, longest_row: int) -> str:
    """Return which of the schedules a kernel has: see body.py. Raises Unsupported for too long a running sum."""
    if ir.every(kernel, ir.RowSum):
        return IN_TURN
    runs, (_, length, *_) = bool(ir.every(kernel, ir.RunningSum)), kernel.sizes
    if kernel.contracted:
        if runs or ir.every(kernel, ir.Random):
            raise Unsupported("a running sum, or random numbers, behind a product in one loop")
        return PRODUCT
    if not runs and not ir.every(kernel, ir.Reduce):
        return POINTWISE
    if runs:
        if length > LONGEST_ROW:
            raise Unsupported(f"a running sum over more than {LONGEST_ROW} elements")
        return PERSISTENT
    if kernel.split is not None:
        return LOOPED
    limits = {INNER: longest_row, OUTER: _LONGEST_OUTER, MIXED: min(_LONGEST_MIXED, longest_row)}
    return PERSISTENT if length <= limits[contiguity(buffers, kernel)] else LOOPED


class Schedule:
    """How a kernel is looped over: its kind, how its tensors lie, and whether its rows may be one.

    flat: how each tensor must lie at a call for all rows to be one; empty where they may not. long: rows that a loop
    goes over lie one behind the other, and those that programs loop over at a time may be more than the cache holds.
    """

    def __init__(self, program: LoopProgram, kernel: LoopKernel, options: CodegenOptions) -> None:
        self.program, self.kernel, self.options = program, kernel, options
        self.mode = schedule_kind(program.buffers, kernel, options.longest_row)
        self.contiguity = INNER if self.mode == PRODUCT else contiguity(program.buffers, kernel)
        along = self.mode == POINTWISE and self.contiguity == INNER
        self.flat = flat_orders(program.buffers, kernel) if along else {}
        self.long = self.mode == LOOPED and self.contiguity == INNER and kernel.split is None

    @property
    def elements(self) -> int:
        """Return how many elements it computes."""
        return ir.elements((*self.kernel.rows, *self.kernel.columns))

    @property
    def order(self) -> int:
        """Return the number of the first large tensor that it reads: launches group by that."""
        return min((list(self.program.buffers).index(name) for name in large_reads([self])), default=0)


def large_reads(schedules: Iterable[Schedule]) -> set[str]:
    """Return the large tensors that kernels load."""
    sized = {n.buffer: prod(s.program.buffers[n.buffer].shape) for s in schedules for n in ir.loads(s.kernel)}
    largest = max(sized.values(), default=0)
    return {name for name, size in sized.items() if size * SHARE >= largest}


def few_programs(buffers: dict[str, KernelBuffer], kernel: LoopKernel, longest_row: int) -> bool:
    """Return whether a kernel loops over so long rows by so few programs that each should be split into parts."""
    if kernel.contracted and kernel.split is None:
        return few_tiles(kernel)
    if kernel.split is not None or schedule_kind(buffers, kernel, longest_row) != LOOPED:
        return False
    (rows, length, *_), lies = kernel.sizes, contiguity(buffers, kernel)
    shortest = longest_row if lies == INNER else min(_SHORT_OUTER, longest_row)
    few = max(4, longest_row // (32 if lies == OUTER else 128))  # fewer where rows are looped over for trial
    if length >= _VERY_LONG * longest_row:
        few *= 4
    return length > shortest and rows < few * _HIGH[lies]


def by_memory(buffers: dict[str, KernelBuffer], kernel: LoopKernel) -> tuple[Axis, ...]:
    """Return the columns in the order in which the largest tensor that is loaded along all of them lies in memory."""
    sized = ((prod(buffers[n.buffer].shape), n) for n in ir.loads(kernel))
    for _, load in sorted(sized, key=lambda item: -item[0]):
        steps = {axis: abs(_step(buffers[load.buffer], load.index, axis)) for axis in kernel.columns}
        if all(steps.values()):
            return tuple(sorted(kernel.columns, key=lambda axis: -steps[axis]))
    return kernel.columns


def contiguity(buffers: dict[str, KernelBuffer], kernel: LoopKernel) -> str:
    """Return the contiguity of the largest tensors that a kernel loads and stores: inner, outer, or mixed."""
    if not kernel.columns or not kernel.rows:
        return INNER
    found_at = ir.accesses(kernel)
    kinds = {(prod(buffers[name].shape), _kind(buffers[name], index, kernel)) for name, index in found_at}
    largest = max((size for size, kind in kinds if kind), default=0)
    found = {kind for size, kind in kinds if kind and size * SHARE >= largest}
    return MIXED if len(found) > 1 else found.pop() if found else INNER


def reads_windows(kernel: LoopKernel) -> bool:
    """Return whether what it reads along the columns lies at places that are worked out, as a window's do."""
    free_axes, columns = ir.FreeAxes(()), {axis.number for axis in kernel.columns}
    places = (place for load in ir.loads(kernel) for place in load.index)
    return any(isinstance(p, ir.IndirectIndex) and free_axes(p) & columns and not ir.reads(p) for p in places)


def writes_outer_contiguous(buffers: dict[str, KernelBuffer], kernel: LoopKernel) -> bool:
    """Return whether what it stores lies with elements of several rows side by side."""
    return any(_kind(buffers[s.buffer], s.index, kernel) == OUTER for s in kernel.stores)


def _kind(buffer: KernelBuffer, index: tuple[LoopNode, ...], kernel: LoopKernel) -> str:
    """Return how one access lies; empty where neither columns nor rows are side by side."""
    column = abs(_step(buffer, index, kernel.columns[-1]))
    if column == 1:
        return INNER
    return OUTER if column and any(abs(_step(buffer, index, row)) == 1 for row in kernel.rows) else ""


def _step(buffer: KernelBuffer, index: tuple[LoopNode, ...], axis: Axis) -> int:
    """Return the stride in memory of one step along an axis; 0 where there is none, or where it cannot be said."""
    return sum(_moves(place, axis) * stride for place, stride in zip(index, buffer.strides, strict=False))


def _moves(place: LoopNode, axis: Axis) -> int:
    if isinstance(place, ir.LoopIndex):
        return int(place.axis == axis)
    if not isinstance(place, ir.IndexArithmetic):
        return 0
    left, right = _moves(place.left, axis), _moves(place.right, axis)
    if place.symbol in "+-":
        return left + right if place.symbol == "+" else left - right
    size = place.right
    count = size.value if isinstance(size, ir.Int) else ir.elements(size.axes) if isinstance(size, ir.Size) else 0
    return {"*": left * count, "//": left // max(count, 1), "%": left}[place.symbol]


def flat_orders(
    buffers: dict[str, KernelBuffer], kernel: LoopKernel
) -> dict[str, tuple[tuple[int, ...], int, tuple[Axis, ...]]]:
    """Return how each tensor that an elementwise kernel takes must lie for it to be launched as if it had a single row:
    its order, an outer dimension and inner axes.

    Its dimensions lie without gaps in that order. Of one element, a dimension may have any stride; but the outer one,
    of the outermost column, is looped over beyond its end where all rows are one: its stride is as many elements as the
    inner axes have.

    Empty where it may not, as the tensors were recorded.
    """
    if not kernel.rows or not kernel.columns or kernel.column_tiles > 1 or any(map(_is_placed, ir.nodes_of(kernel))):
        return {}
    axes = (*kernel.rows, *kernel.columns)
    steps = [ir.elements(axes[place + 1 :]) for place in range(len(axes))]
    free_axes = ir.FreeAxes(())
    found: dict[str, tuple[tuple[int, ...], int, tuple[Axis, ...]]] = {}
    for name, index in ir.accesses(kernel):
        buffer = buffers[name]
        if not any(map(free_axes, index)):
            continue  # one element, for all
        if any(_step(buffer, index, axis) != step for axis, step in zip(axes, steps, strict=True)):
            return {}
        outer = next(d for d, place in enumerate(index) if _moves(place, kernel.columns[0]))
        inner = tuple(axis for axis in kernel.columns[1:] if not _moves(index[outer], axis))
        order = sorted(range(len(buffer.shape)), key=lambda d: (-buffer.strides[d], d))
        found[name] = tuple(order), outer, inner
    return found


def _is_placed(node: LoopNode) -> bool:
    """Return whether what a node is depends on where it stands in its row."""
    placed = (ir.Reduce, ir.RunningSum, ir.IndexValue, ir.Random, ir.IndirectIndex)
    return isinstance(node, placed) or getattr(node, "symbol", "") in ("//", "%")
