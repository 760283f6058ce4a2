"""The same source at sizes that an interpreter gets through: axes that kernels take as arguments are made small."""

from __future__ import annotations

from tracemine.codegen.graph import Graph
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.triton.source import generate
from tracemine.validate.resize import at_sizes, free_axes

# What an interpreter gets through in the time, block by block; larger chains are tried smaller where they can be.
MOST_ELEMENTS = 4_096
_SIZES = (5, 3, 7, 2, 4, 6)  # told apart, and no multiple of a block
_SHORTEST = 2  # where other axes are long, and part of the kernel; of 1 exchanged strides would not show


def smaller(chain: Graph) -> Graph:
    """The chain at sizes that an interpreter gets through, and that its source takes.

    Axes whose size the kernels take as an argument are made small, all at once or, where calls do not allow that, one
    by one, the largest first. Raises Unsupported where no kernel can be generated.
    """
    generate(chain)
    if elements(chain) <= MOST_ELEMENTS:
        return chain
    axes = _largest_first(chain)
    whole = at_sizes(chain, {axis: min(size, _SIZES[k % len(_SIZES)]) for k, (axis, size) in enumerate(axes)})
    if whole is not None and elements(whole) <= MOST_ELEMENTS:
        return whole
    current = whole or chain
    for size in _SIZES * 4 if whole is None else [_SHORTEST] * len(axes):
        if elements(current) <= MOST_ELEMENTS:
            break
        tried = (at_sizes(current, {axis: size}) for axis, here in _largest_first(current) if here > size)
        found = next((one for one in tried if one is not None), None)
        if found is None:
            break
        current = found
    return current


def _largest_first(chain: Graph) -> list[tuple[int, int]]:
    return sorted(free_axes(lower(chain)).items(), key=lambda item: -item[1])


def elements(chain: Graph) -> int:
    """Elements of the chain's largest tensor."""
    return max((spec.elements for spec in chain.specs), default=0)
