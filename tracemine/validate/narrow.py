"""Chains whose kernels have sizes in them that no interpreter gets through: the same code with smaller numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracemine.codegen.graph import Graph, Unsupported
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.triton.source import generate
from tracemine.validate.resize import at_sizes
from tracemine.validate.shrink import MOST_ELEMENTS, elements, smaller

_MOST = 32 * MOST_ELEMENTS
_POWERS = 5  # of a size, that others are taken to be: fewer than so many
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


def gets_through(small: Graph) -> bool:
    """Whether an interpreter gets through a chain that is as small as its kernels allow."""
    return elements(small) <= _MOST


def narrower(chain: Graph) -> Graph:
    """The chain with sizes that are part of its kernels halved until an interpreter gets through what is left.

    Itself where it gets through the chain, or where with smaller numbers other code would be generated: what is
    tried differs from the source in whole numbers alone. Raises Unsupported where no kernel can be generated.
    """
    current, code = chain, ""
    while not gets_through(smaller(current)):
        code = code or _code(chain)
        found = next((one for one in _halved(current) if _code(one) == code), None)
        if found is None:
            break
        current = found
    return current


def _halved(chain: Graph) -> Iterator[Graph]:
    """With sizes halved: all even ones, for one may be a multiple of another; those of one number, the largest first;
    or, with one number, what are its powers: windows of 8 × 8 are 64 tokens.
    """
    lowered = lower(chain)
    leaves = {a for tensor in lowered.values for a in lowered.axes.flat(tensor.dims) if lowered.axes.axis(a).pinned}
    whole = {a: lowered.axes.size((a,)) for a in leaves}
    even = {a: n // 2 for a, n in whole.items() if n in range(4, 1 << 62, 2)}
    numbers = sorted(set(even.values()))[::-1]
    alike = [{a: n for a, n in even.items() if n == one} for one in numbers]
    powers = [
        {a: half**k for a, n in whole.items() for k in range(1, _POWERS) if n == (2 * half) ** k} for half in numbers
    ]
    for sizes in (even, *alike, *powers):
        found = at_sizes(chain, sizes) if sizes else None
        if found is not None and found != chain:  # what an axis was before it was split is no call's size
            yield found


def _code(chain: Graph) -> str:
    """A chain's source without its whole numbers; nothing where it has none."""
    try:
        return _NUMBER.sub("#", generate(chain).text)
    except (Unsupported, ArithmeticError, ValueError, LookupError):
        return ""
