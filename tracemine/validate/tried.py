"""What of a chain the CPU proves: its source with fewer members of lists, at sizes that it gets through."""

from __future__ import annotations

from typing import NamedTuple

from tracemine.codegen.graph import Graph
from tracemine.validate.narrow import gets_through, narrower
from tracemine.validate.shorten import shorter
from tracemine.validate.shrink import MOST_ELEMENTS, elements, smaller

_MOST = 64 * MOST_ELEMENTS
_SHORTER = "the proof on the CPU is of a few members of each kind of its lists, whose code the others share"
_NARROWER = "the proof on the CPU is of the same source but for sizes that are written into it, which are smaller there"
_SMALLER = "the proof on the CPU is of the same source at smaller sizes"


class Tried(NamedTuple):
    """A chain as it is proved."""

    small: Graph
    recorded: Graph  # the same source at the sizes that were recorded
    says: tuple[str, ...]  # how it differs from the chain

    @property
    def too_large(self) -> str | None:
        """Why the CPU cannot prove it; None where it can."""
        count = elements(self.small)
        return f"the chain has {count:,} elements that no size of an argument makes fewer" if count > _MOST else None


def tried(chain: Graph) -> Tried:
    """How a chain is proved. Raises Unsupported where no kernel is generated."""
    short = shorter(chain)
    recorded, small = short, smaller(short)
    if not gets_through(small):
        recorded = narrower(short)
        small = smaller(recorded)
    changes = ((_SHORTER, short != chain), (_NARROWER, recorded != short), (_SMALLER, small != recorded))
    return Tried(small, recorded, tuple(says for says, changed in changes if changed))
