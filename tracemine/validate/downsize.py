"""Downsize a graph for an interpreter: fewer members of lists, smaller axes, smaller constants of kernels.

What is validated differs from the generated source in sizes alone, and how it differs is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tracemine.codegen.graph import Graph, GraphCall, Refs, Scalars, Unsupported, Value, renumbered, tensors
from tracemine.codegen.graph_builder import check
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.lowering.product import PRODUCTS
from tracemine.codegen.options import WHATEVER
from tracemine.codegen.triton.source import generate, kernel_codes
from tracemine.ops.infer.tensor import is_contiguous
from tracemine.validate.resize import at_sizes, free_axes

# What an interpreter gets through in the time, block by block; larger graphs are tried smaller where they can be.
MOST_ELEMENTS = 4_096
_SIZES = (5, 3, 7, 2, 4, 6)  # distinct, and no multiple of a block
_SIZES_OF_PRODUCTS = (37, 21, 26, 2, 19, 3)  # beyond a tile of theirs, which is 16 wide there
_SHORTEST = 2  # where other axes are long, and part of the kernel; of 1 exchanged strides would not show
MOST_MEMBERS = 16  # of a list: as many tensors are tried as they are
_OF_A_KIND = 3
MOST_INTERPRETED = 32 * MOST_ELEMENTS
_POWERS = 5  # of a size, that others are taken to be: fewer than so many
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_MOST = 64 * MOST_ELEMENTS
_SHORTER = "the CPU validated a few members of each kind of its lists, whose code the others share"
_NARROWER = "the CPU validated the same source but for sizes that are written into it, which are smaller there"
_SMALLER = "the CPU validated the same source at smaller sizes"


class Downsized(NamedTuple):
    """A graph as it is validated."""

    small: Graph
    recorded: Graph  # the same source at the sizes that were recorded
    says: tuple[str, ...]  # how it differs from the graph

    @property
    def too_large(self) -> str | None:
        """Why the CPU cannot validate it; None where it can."""
        count = elements(self.small)
        return f"the graph has {count:,} elements that no size of an argument makes fewer" if count > _MOST else None


def tried(graph: Graph) -> Downsized:
    """Make a graph small enough to be validated. Raises Unsupported where no kernel is generated."""
    short = shorter(graph)
    recorded, small = short, smaller(short)
    if not gets_through(small):
        recorded = narrower(short)
        small = smaller(recorded)
    changes = ((_SHORTER, short != graph), (_NARROWER, recorded != short), (_SMALLER, small != recorded))
    return Downsized(small, recorded, tuple(says for says, changed in changes if changed))


def shorter(graph: Graph) -> Graph:
    """Return the graph with a few members of each kind of its lists; itself where those are short or its calls others.

    Kinds differ by rank, dtype, axes of one element and layout, and by which results are wanted. Raises Unsupported
    where no kernel can be generated.
    """
    count = _length(graph)
    if count is None or count <= MOST_MEMBERS:
        return graph
    kept = _kept(graph, count)
    short = _of_members(graph, kept)
    return short if kernel_codes(graph) <= kernel_codes(short) else graph


def _lists(call: GraphCall) -> list[Refs | Scalars]:
    return [v for v in call.arguments if isinstance(v, Refs | Scalars)]


def _length(graph: Graph) -> int | None:
    """Return how many members all lists have; None where a call takes none, or others do not have as many."""
    lengths = {len(each.values) for call in graph.calls for each in _lists(call)}
    lengths |= {len(call.outputs) for call in graph.calls if call.outputs}
    alone = any(not call.operator.startswith("aten::_foreach_") for call in graph.calls)
    return lengths.pop() if len(lengths) == 1 and not alone else None


def _kept(graph: Graph, count: int) -> list[int]:
    specs, live = graph.specs, {*graph.live}
    gives = [graph.first_output(number) for number, call in enumerate(graph.calls) if call.outputs]
    seen: Counter[tuple[object, ...]] = Counter()
    found: list[int] = []
    for at in range(count):
        members = [each.values[at] for call in graph.calls for each in _lists(call) if isinstance(each, Refs)]
        kinds: list[object] = [first + at in live for first in gives]
        for spec in (specs[v] for v in members if v is not None):
            plain = is_contiguous(spec.shape, spec.strides or ())
            kinds.append((spec.dtype, tuple(n == 1 for n in spec.shape), plain, None if plain else spec.strides))
        if seen[tuple(kinds)] < _OF_A_KIND:
            found.append(at)
        seen[tuple(kinds)] += 1
    return found


def _inputs_of(taken: Iterable[Iterable[Value]], count: int) -> list[int]:
    return sorted({v for arguments in taken for value in arguments for v in tensors(value) if v < count})


def _of_members(graph: Graph, kept: Sequence[int]) -> Graph:
    taken = [_taken(call, kept) for call in graph.calls]
    used = _inputs_of(taken, len(graph.inputs))
    order = {v: k for k, v in enumerate(used)}
    calls: list[GraphCall] = []
    for number, (call, arguments) in enumerate(zip(graph.calls, taken, strict=True)):
        values = tuple(renumbered(v, order.__getitem__) for v in arguments)
        places = kept if call.outputs else ()
        order |= {graph.first_output(number) + at: len(order) + k for k, at in enumerate(places)}
        calls.append(GraphCall(call.operator, call.overload, values, tuple(call.outputs[at] for at in places)))
    inputs = tuple(graph.inputs[v] for v in used)
    live = tuple(order[v] for v in graph.live if v in order)
    return check(Graph(graph.name, inputs, tuple(calls), live))


def _taken(call: GraphCall, kept: Sequence[int]) -> list[Value]:
    return [
        msgspec.structs.replace(v, values=tuple(v.values[at] for at in kept)) if isinstance(v, Refs | Scalars) else v
        for v in call.arguments
    ]


def smaller(graph: Graph) -> Graph:
    """Return the graph at sizes that an interpreter gets through, and that its source takes.

    Axes whose size the kernels take as an argument are made small, all at once or, where calls do not allow that, one
    by one, the largest first. Raises Unsupported where no kernel can be generated.
    """
    generate(graph, WHATEVER)
    if elements(graph) <= MOST_ELEMENTS:
        return graph
    axes = _largest_first(graph)
    sizes = _SIZES_OF_PRODUCTS if any(call.operator in PRODUCTS for call in graph.calls) else _SIZES
    whole = at_sizes(graph, {axis: min(size, sizes[k % len(sizes)]) for k, (axis, size) in enumerate(axes)})
    if whole is not None and elements(whole) <= MOST_ELEMENTS:
        return whole
    return _one_by_one(graph, sizes * 4) if whole is None else _one_by_one(whole, [_SHORTEST] * len(axes))


def _one_by_one(graph: Graph, sizes: Iterable[int]) -> Graph:
    """Return the graph with one axis after another at these sizes, the largest that a call allows first."""
    for size in sizes:
        if elements(graph) <= MOST_ELEMENTS:
            break
        tried = (at_sizes(graph, {axis: size}) for axis, here in _largest_first(graph) if here > size)
        made = next((one for one in tried if one is not None), None)
        if made is None:
            break
        graph = made
    return graph


def _largest_first(graph: Graph) -> list[tuple[int, int]]:
    return sorted(free_axes(lower(graph)).items(), key=lambda item: -item[1])


def elements(graph: Graph) -> int:
    """Return elements of the graph's largest tensor."""
    return max((spec.elements for spec in graph.specs), default=0)


def gets_through(small: Graph) -> bool:
    """Return whether an interpreter gets through a graph that is as small as its kernels allow."""
    return elements(small) <= MOST_INTERPRETED


def narrower(graph: Graph) -> Graph:
    """Return the graph with sizes that are part of its kernels halved until an interpreter gets through what is left.

    Itself where it gets through the graph, or where with smaller numbers other code would be generated: what is
    tried differs from the source in integers alone. Raises Unsupported where no kernel can be generated.
    """
    current, code = graph, ""
    while not gets_through(smaller(current)):
        code = code or _code(graph)
        found = next((one for one in _halved(current) if _code(one) == code), None)
        if found is None:
            break
        current = found
    return current


def _pinned_sizes(graph: Graph) -> dict[int, int]:
    lowered = lower(graph)
    leaves = {a for tensor in lowered.values for a in lowered.axes.flat(tensor.dims) if lowered.axes.axis(a).pinned}
    return {a: lowered.axes.size((a,)) for a in leaves}


def _halved(graph: Graph) -> Iterator[Graph]:
    """Yield the graph with sizes halved: all even ones, as one may be a multiple of another; those of one number, the
    largest first; or one number with what are its powers: windows of 8 × 8 are 64 tokens.
    """
    whole = _pinned_sizes(graph)
    even = {a: n // 2 for a, n in whole.items() if n in range(4, 1 << 62, 2)}
    numbers = sorted(set(even.values()))[::-1]
    alike = [{a: n for a, n in even.items() if n == one} for one in numbers]
    powers = [
        {a: half**k for a, n in whole.items() for k in range(1, _POWERS) if n == (2 * half) ** k} for half in numbers
    ]
    for sizes in (even, *alike, *powers):
        found = at_sizes(graph, sizes) if sizes else None
        if found is not None and found != graph:  # what an axis was before it was split is no call's size
            yield found


def _code(graph: Graph) -> str:
    """Return a graph's source without its integers; "" where no kernel can be generated."""
    try:
        return _NUMBER.sub("#", generate(graph, WHATEVER).text)
    except (Unsupported, ArithmeticError, ValueError, LookupError):
        return ""
