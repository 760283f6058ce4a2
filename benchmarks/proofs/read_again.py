"""What has to be read from memory a second time, however few kernels there are.

Where a tensor's elements are wanted together with a reduction over more of them than any multiprocessor holds, they are
gone by when the reduction is done.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.codegen.axes import Axes
from tracemine.codegen.graph import Graph
from tracemine.codegen.lowering.context import Lowered
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.tensor_ir import Input, Reduction, Tensor, met
from tracemine.ops import itemsize
from tracemine.verify.repro.text import distinct_elements

# Registers and shared memory of a multiprocessor, 256 and 228 KiB since A100 and H100.
_HELD_BYTES = 484 * 1024


def read_again(graph: Graph, cache_bytes: int) -> int:
    """Return bytes that have to be read from memory a second time.

    Of each input that an output needs element by element and also under a reduction whose elements no multiprocessor
    holds. As much as the cache holds (`cache_bytes`) is taken to be in it still, which is the most there can be.
    Raises Unsupported where no kernel can be generated.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("softmax")
    >>> rows = b.input("x", (8, 1 << 24), "float32")
    >>> read_again(b.done(b.call("aten::_softmax", rows, -1, False)), 50 << 20) == (8 << 24) * 4 - (50 << 20)
    True
    """
    lowered = lower(graph)
    again: set[str] = set()
    for wanted in (*lowered.live, *lowered.written.values()):
        direct, sums = _reached(lowered, (wanted,))
        under: set[str] = set()
        while sums:
            more, sums = _reached(lowered, [total.arg for total in sums])
            under |= more
        again |= direct & under
    sized = {
        i.name: distinct_elements(graph, v) * (itemsize(str(i.spec.dtype)) or 0) for v, i in enumerate(graph.inputs)
    }
    return max(sum(sized[name] for name in again) - cache_bytes, 0)


def _reached(lowered: Lowered, begin: Iterable[Tensor]) -> tuple[set[str], set[Reduction]]:
    """Return the inputs that expressions come to short of reductions that are too long to hold, and these."""

    def is_long(tensor: Tensor) -> bool:
        return isinstance(tensor, Reduction) and _row_bytes(lowered.axes, tensor) > _HELD_BYTES

    found = met(begin, is_long)
    sources = {t.buffer for t in found if isinstance(t, Input)}
    return sources, {t for t in found if isinstance(t, Reduction) and is_long(t)}


def _row_bytes(axes: Axes, total: Reduction) -> int:
    """Return the inputs' elements that one element of a reduction is made of, short of other reductions."""
    over = {leaf for d in total.over for leaf in axes.leaves(total.arg.dims[d])}
    inputs = [t for t in met((total.arg,), lambda t: isinstance(t, Reduction)) if isinstance(t, Input)]
    return sum(axes.size(over & {*axes.flat(t.dims)}) * (itemsize(t.dtype) or 0) for t in inputs)
