"""Partition a graph into kernels: as few as loop over the same rows and columns, in order of their loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import gcd, prod

from msgspec.structs import replace

from tracemine.codegen import loop_ir as ir
from tracemine.codegen.axes import Axes, Dim
from tracemine.codegen.choice import refusal
from tracemine.codegen.graph import Graph, Unsupported
from tracemine.codegen.inline import ColumnTile, Inliner
from tracemine.codegen.loop_ir import KernelBuffer, LoopKernel, LoopNode, LoopProgram, Nodes, Store, mapped
from tracemine.codegen.lowering.context import Lowered
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.lowering.product import PRODUCTS
from tracemine.codegen.options import DEFAULT, CodegenOptions
from tracemine.codegen.passes.rows_in_turn import rows_in_turn
from tracemine.codegen.passes.split_reduction import split
from tracemine.codegen.products import looped_again
from tracemine.codegen.schedule import by_memory, few_programs
from tracemine.codegen.tensor_ir import Reduction, Tensor, columns_of, factors, met, nearest_reductions
from tracemine.ops.infer.tensor import contiguous

# Fewer rows than this, each longer than that, would leave most of a GPU idle: the reduction gets a kernel of its own.
_FEW_ROWS, _LONG_ROW = 32, 8192

_LARGE = 16  # kernels of so many times the longest row's elements take longer than a launch
_SHORTEST_COLUMN_TILE, _MOST_COLUMN_TILES = 4, 2  # of columns that are looped over in tiles


@dataclass(slots=True, eq=False)
class _Target:
    """An expression to be stored, and the kernel that suits it."""

    tensor: Tensor
    buffer: str
    columns: Dim
    rows: Dim
    part: Dim  # the axis of parts that its columns are looped over in
    level: int
    behind: frozenset[str]  # buffers that it cannot be made without
    reads: frozenset[str]  # tensors that it loads
    tiles: tuple[ColumnTile, ...] = ()  # its columns are a part of an axis, and it is stored once for each


class _Planner:
    def __init__(
        self,
        graph: Graph,
        lowered: Lowered,
        options: CodegenOptions,
        large: int,
        in_place: frozenset[Tensor] = frozenset(),
    ) -> None:
        self.graph, self.lowered, self.options = graph, lowered, options
        self.large = large  # elements of a kernel that takes some microseconds
        self.nodes = Nodes()
        self.origins: dict[LoopNode, int] = {}
        self.buffers: dict[str, KernelBuffer] = {}
        self.targets: dict[Tensor, _Target] = {}
        self.homes: dict[Tensor, str] = {}  # the buffer each expression is stored in
        self.names: dict[str, str] = {}  # placeholders of what is demanded, and their buffers
        self.in_place = in_place  # what inputs hold at the end
        self.products: Mapping[Tensor, tuple[Tensor, Tensor]] = {}  # sums that are matrix products
        self.stored = False  # products are stored, and loaded by what is made of them

    @property
    def axes(self) -> Axes:
        return self.lowered.axes


def plan(graph: Graph, options: CodegenOptions = DEFAULT) -> LoopProgram:
    """Partition a graph into kernels. Raises Unsupported where none can be generated."""
    lowered = lower(graph)
    program, starved = _planned(graph, lowered, options)
    multiplies = any(call.operator in PRODUCTS for call in graph.calls)
    if multiplies and not options.every_product and (why := refusal(program)) is not None:
        raise Unsupported(why)
    if any(looped_again(kernel) for kernel in program.kernels):  # a product would be made twice
        program, starved = _planned(graph, lowered, options, stored=True)
    if starved:
        program, _ = _planned(graph, split(lowered, starved), options)
    return program


def _products(graph: Graph, lowered: Lowered, options: CodegenOptions) -> dict[Tensor, tuple[Tensor, Tensor]]:
    """Return the sums that are matrix products, and what they multiply."""
    calls = {number for number, call in enumerate(graph.calls) if call.operator in PRODUCTS or options.spelled_out}
    found = {t: factors(lowered.axes, t) for t in met((*lowered.live, *lowered.written.values()))}
    return {t: pair for t, pair in found.items() if pair is not None and t.origin in calls}


def _planned(
    graph: Graph, lowered: Lowered, options: CodegenOptions, stored: bool = False
) -> tuple[LoopProgram, set[Reduction]]:
    """Return a program, and the reductions in it that leave most of a GPU idle."""
    p = _Planner(graph, lowered, options, _LARGE * options.longest_row, in_place=frozenset(lowered.written.values()))
    p.products, p.stored = _products(graph, lowered, options), stored
    for source, entry in zip(lowered.inputs, graph.inputs, strict=True):
        p.buffers[source.buffer] = _buffer(p, source.buffer, source, entry.spec.strides or (), "input")
    outputs = _homes(p)
    for tensor in tuple(p.homes):
        _target(p, tensor)
    kernels: list[LoopKernel] = []
    starved: set[Reduction] = set()
    for members in _groups(p):
        kernel, reduces = _kernel(p, members)
        kernels.append(kernel)
        if few_programs(p.buffers, kernel, options.longest_row):
            flight = reduces - p.products.keys()  # what is reduced of a product is; else the product itself
            starved |= flight or reduces
    kernels = _ordered(p, rows_in_turn(p.nodes, p.buffers, kernels))
    _check_in_place(p, kernels)
    _check_stored(p, kernels)
    program = LoopProgram(
        name=graph.name,
        buffers=p.buffers,
        kernels=tuple(kernels),
        outputs=outputs,
        scalars=(*((s.name, s.value) for s in graph.scalars), *[("seed", 0)] * bool(lowered.drawn)),
        unknown=tuple(s.name for s in graph.scalars if not s.recorded),
        masks=len(outputs) - len(graph.live),
        ulp=lowered.ulp,
        draws=bool(lowered.drawn),
        origins={node: graph.calls[call].label for node, call in p.origins.items()},
    )
    return program, starved


def _buffer(p: _Planner, name: str, tensor: Tensor, strides: Sequence[int], role: str) -> KernelBuffer:
    dims = tuple(tuple(p.axes.axis(leaf) for leaf in p.axes.leaves(dim)) for dim in tensor.dims)
    shape = tuple(map(ir.elements, dims))
    return KernelBuffer(name=name, dtype=tensor.dtype, dims=dims, shape=shape, strides=tuple(strides), role=role)


def _homes(p: _Planner) -> tuple[str, ...]:
    """Return where each wanted expression is stored; the names of what the launcher gives back."""
    for value, tensor in p.lowered.written.items():
        p.homes[tensor] = p.graph.inputs[value].name
    specs = p.graph.specs
    wanted = [(t, specs[v].strides or ()) for v, t in zip(p.graph.live, p.lowered.live, strict=True)]
    if p.options.export_masks:
        masks = (kept for _, kept in p.lowered.drawn)
        wanted += [(t, contiguous([p.axes.size(p.axes.leaves(dim)) for dim in t.dims])) for t in masks]
    found: list[str] = []
    for place, (tensor, strides) in enumerate(wanted):
        name = f"out{place}" if len(wanted) > 1 else "out"
        if tensor not in p.homes:
            p.homes[tensor] = name
            p.buffers[name] = _buffer(p, name, tensor, strides, "output")
        found.append(p.homes[tensor])
    return tuple(found)


def _inliner(p: _Planner, columns: Dim, *roots: Tensor) -> Inliner:
    """Return what inlines tensors that are stored in one loop."""
    products = {t: pair for t, pair in p.products.items() if not p.stored or t in roots}
    return Inliner(p.axes, p.nodes, p.origins, columns, p.options.rounds, p.large, p.in_place, products)


def _target(p: _Planner, tensor: Tensor) -> _Target:
    """Register what must be stored, after what it needs stored before."""
    known = p.targets.get(tensor)
    if known is not None:
        return known
    if tensor not in p.homes:
        p.homes[tensor] = f"scratch{sum(b.role == 'scratch' for b in p.buffers.values())}"
        made = _buffer(p, p.homes[tensor], tensor, (), "scratch")
        p.buffers[made.name] = replace(made, dtype=tensor.type, strides=contiguous(made.shape))
    columns = _columns(p, tensor, p.buffers[p.homes[tensor]])
    part = tensor.part if isinstance(tensor, Reduction) else ()
    rows = tuple(leaf for leaf in p.axes.flat(tensor.dims) if leaf not in columns + part)
    trial = _inliner(p, columns, tensor)
    stored = trial.store(tensor, p.homes[tensor])
    if tensor in trial.demanded:
        raise Unsupported("a reduction that needs its own result elsewhere")
    needs = [_target(p, needed) for needed in trial.demanded]
    p.names.update((placeholder, p.homes[needed]) for needed, placeholder in trial.demanded.items())
    level = 1 + max((n.level for n in needs), default=-1)
    column_tiles = _column_tiles(p, trial, columns, p.buffers[p.homes[tensor]])
    if column_tiles:
        columns = (p.axes.part(columns[0], column_tiles[1][1]),)
    behind = frozenset(n.buffer for n in needs).union(*(n.behind for n in needs))
    reads = frozenset(ir.buffers_of(stored.value))
    target = _Target(tensor, p.homes[tensor], columns, rows, part, level, behind, reads, column_tiles)
    return p.targets.setdefault(tensor, target)


def _column_tiles(p: _Planner, trial: Inliner, columns: Dim, buffer: KernelBuffer) -> tuple[ColumnTile, ...]:
    """Return the parts of the columns between which joins change members, all of one size; none where they are no few.

    A program loops over all of them at once: no element is asked which member it is of, and halves that are turned into
    each other are loaded once. Small kernels are sooner done by more programs.
    """
    if not trial.boundaries or trial.reduces or trial.scans or buffer.role == "input" or len(columns) != 1:
        return ()
    whole = p.axes.size(columns)
    if prod(buffer.shape) < p.large:
        return ()
    size = gcd(whole, *trial.boundaries)
    if not p.axes.axis(columns[0]).pinned or size < _SHORTEST_COLUMN_TILE or whole > size * _MOST_COLUMN_TILES:
        return ()
    return tuple((columns[0], start) for start in range(0, whole, size))


def _columns(p: _Planner, tensor: Tensor, buffer: KernelBuffer) -> Dim:
    """Return the axes to loop over inside a program: what is reduced, or else the innermost."""
    leaves = p.axes.flat(tensor.dims)
    if isinstance(tensor, Reduction) and tensor not in p.products:
        return columns_of(p.axes, tensor)
    covered = set(leaves)
    # A reduction that is repeated along further axes would be computed again for each of their elements.
    found = [
        columns_of(p.axes, t)
        for t in nearest_reductions(tensor)
        if t not in p.products and (set(columns_of(p.axes, t)) <= covered or covered <= set(p.axes.flat(t.dims)))
    ]
    best = max(found, key=p.axes.size, default=())
    rows = p.axes.size([leaf for leaf in leaves if leaf not in best])
    if best and set(best) <= set(leaves) and rows < _FEW_ROWS and p.axes.size(best) > _LONG_ROW:
        best = ()
    if best or not leaves:
        return best
    order = sorted(range(len(buffer.dims)), key=lambda d: (buffer.strides[d] if buffer.strides else 0, -d))
    innermost = next(d for d in order if p.axes.leaves(tensor.dims[d]))
    return (p.axes.leaves(tensor.dims[innermost])[-1],)


def _groups(p: _Planner) -> list[list[_Target]]:
    """Return targets that one kernel can store, in the order of the kernels. Plain ones come last, and join others."""
    groups: list[list[_Target]] = []
    for target in sorted(p.targets.values(), key=lambda t: (not nearest_reductions(t.tensor), -t.level, not t.tiles)):
        group = next((g for g in groups if _joins(p, target, g)), None)
        if group is None:
            groups.append([target])
            continue
        first = group[0]
        if {*first.rows} != {*target.rows}:
            target.rows = tuple(leaf for leaf in p.axes.flat(target.tensor.dims) if leaf in first.rows)
        target.columns, target.tiles = first.columns, first.tiles
        group.append(target)
    return sorted(groups, key=lambda g: g[0].level)


def _joins(p: _Planner, target: _Target, group: Sequence[_Target]) -> bool:
    """Return whether a kernel that stores a group can store another too."""
    first, plain = group[0], not nearest_reductions(target.tensor)
    columns = {leaf for leaf, _ in first.tiles} or {*first.columns}
    own = {leaf for leaf, _ in target.tiles} or {*target.columns}
    if first.tiles != target.tiles and (target.tiles or own != columns or p.buffers[target.buffer].role == "input"):
        return False
    same_axes = {*target.rows, *own} == {*first.rows, *columns}
    same = ({*target.rows}, own, target.part) == ({*first.rows}, columns, first.part)
    if not (same or (plain and same_axes)):
        return False
    return first.level == target.level or (first.level > target.level and _may_wait(p, target, group, plain))


def _may_wait(p: _Planner, target: _Target, group: Sequence[_Target], plain: bool) -> bool:
    """Return whether a target may be made with a later group: nothing waits for it, or a loop over large rows goes."""
    if target.buffer not in p.names.values():
        return True
    shared = target.reads & group[0].reads
    large = any(prod(p.buffers[name].shape) >= p.large for name in shared if name in p.buffers)
    return large and not plain and not any(target.buffer in member.behind for member in group)


def _kernel(p: _Planner, members: list[_Target]) -> tuple[LoopKernel, set[Reduction]]:
    """Return a kernel, and what it reduces."""
    inliner = _inliner(p, members[0].columns, *(target.tensor for target in members))
    raw = [inliner.store(target.tensor, target.buffer, tile) for target in members for tile in target.tiles or (None,)]
    main = max(members, key=lambda t: p.axes.size(t.rows))
    by_leaf = _strides_of(p, main)
    rows = sorted(main.rows, key=lambda leaf: -by_leaf.get(leaf, 0))
    kernel = LoopKernel(
        rows=tuple(p.axes.axis(leaf) for leaf in rows),
        columns=tuple(p.axes.axis(leaf) for leaf in members[0].columns),
        level=max(t.level for t in members),
        stores=tuple(raw),
        split=p.axes.axis(members[0].part[0]) if members[0].part else None,
        column_tiles=len(members[0].tiles) or 1,
        after=frozenset(p.homes[needed] for needed in inliner.demanded if needed in p.in_place),
    )
    if any(load.buffer in kernel.after for load in ir.loads(kernel)):
        raise Unsupported("a kernel reads what is written in place as it was before, and as it is after")
    return _with_product(_arranged(p, kernel, inliner)), inliner.reduces


def _with_product(kernel: LoopKernel) -> LoopKernel:
    """Return a kernel with what its products sum over, and the rows of which a program has one place."""
    found = ir.every(kernel, ir.Contraction)
    if not found:
        return kernel
    if len({node.axes for node in found}) > 1:
        raise Unsupported("products in one loop that sum over different axes")
    free_axes = ir.FreeAxes(())
    apart = {axis for node in found for axis in free_axes(node.right)}
    batch = tuple(axis for axis in kernel.rows if axis.number in apart)
    rows = tuple(axis for axis in kernel.rows if axis not in batch)
    return replace(kernel, rows=rows, batch=batch, contracted=found[0].axes)


def _strides_of(p: _Planner, target: _Target) -> dict[int, int]:
    """Return the stride of each axis that a target's buffer has."""
    dims = zip(target.tensor.dims, p.buffers[target.buffer].strides, strict=False)
    return {leaf: stride for dim, stride in dims for leaf in p.axes.leaves(dim)}


def _arranged(p: _Planner, kernel: LoopKernel, inliner: Inliner) -> LoopKernel:
    """Return a kernel with the buffers that it writes to, and its columns as they lie in memory."""
    memo = dict[LoopNode, LoopNode]()

    def renamed(node: LoopNode) -> LoopNode:  # what is stored before has the name of its buffer for a placeholder
        return rebuilt(p.nodes, node, memo, p.names, p.origins)

    stores = tuple(Store(s.buffer, tuple(map(renamed, s.index)), renamed(s.value)) for s in kernel.stores)
    kernel = replace(kernel, stores=stores)
    if inliner.reduces and not inliner.scans:  # a sum has no order
        return replace(kernel, columns=by_memory(p.buffers, kernel))
    return kernel


def rebuilt(
    nodes: Nodes, node: LoopNode, memo: dict[LoopNode, LoopNode], names: Mapping[str, str], origins: dict[LoopNode, int]
) -> LoopNode:
    """Return the same node with buffers renamed."""
    found = memo.get(node)
    if found is not None:
        return found
    before = {name: getattr(node, name) for name in node.__struct_fields__}
    before |= {"buffer": names.get(node.buffer, node.buffer)} if isinstance(node, ir.Load) else {}
    fields = (mapped(value, LoopNode, lambda n: rebuilt(nodes, n, memo, names, origins)) for value in before.values())
    found = memo[node] = nodes.make(type(node), *fields)
    if node in origins:
        origins.setdefault(found, origins[node])
    return found


def _ordered(p: _Planner, kernels: Sequence[LoopKernel]) -> list[LoopKernel]:
    """Order kernels: each after those that it loads from; in-place writes after all reads of the old content."""
    written = {p.graph.inputs[v].name for v in p.lowered.written}
    reads = [{load.buffer for load in ir.loads(kernel)} for kernel in kernels]
    gives = [{store.buffer for store in kernel.stores} for kernel in kernels]
    pairs = [*permutations(range(len(kernels)), 2)]
    before = [(read & written) - kernel.after for read, kernel in zip(reads, kernels, strict=True)]
    waits = [(k, o) for k, o in pairs if gives[o] & (reads[k] - before[k]) or before[o] & gives[k]]
    levels = _levels([kernel.level for kernel in kernels], waits)
    return [replace(kernels[k], level=levels[k]) for k in sorted(range(len(kernels)), key=levels.__getitem__)]


def _levels(levels: list[int], waits: Sequence[tuple[int, int]]) -> list[int]:
    """Raise levels until each is above those that it waits for."""
    for _ in range(len(levels)):
        for k, other in waits:
            levels[k] = max(levels[k], levels[other] + 1)
    if any(levels[k] <= levels[other] for k, other in waits):
        raise Unsupported("two kernels each write what the other still reads")
    return levels


def _check_stored(p: _Planner, kernels: Sequence[LoopKernel]) -> None:
    """Raises Unsupported where a kernel reads what none before it stores: joined with another, and looping over other
    columns than alone, it may demand what was not planned for.
    """
    stored = {name for name, buffer in p.buffers.items() if buffer.role == "input"}
    for kernel in kernels:
        if any(load.buffer not in stored for load in ir.loads(kernel)):
            raise Unsupported("a kernel reads what no kernel before it stores")
        stored |= {store.buffer for store in kernel.stores}


def _check_in_place(p: _Planner, kernels: Sequence[LoopKernel]) -> None:
    """Check that memory is read only before it is written in place, or by the same program at the same index."""
    written = {p.graph.inputs[v].name for v in p.lowered.written}
    done: set[str] = set()
    for kernel in kernels:
        places = {s.buffer: s.index for s in kernel.stores if s.buffer in written}
        for load in ir.loads(kernel):
            if load.buffer in done and load.buffer not in kernel.after:
                raise Unsupported("a later kernel reads what an earlier one writes in place")
            if load.buffer in places and load.index != places[load.buffer]:
                raise Unsupported("it writes in place what another program still reads")
        done |= places.keys()
