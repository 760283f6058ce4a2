"""What one kernel in place of a chain has to read and write: each element once, none that the chain does not need."""

from __future__ import annotations

from typing import NamedTuple

from tracemine.ops import itemsize
from tracemine.verify.chain import Chain, reads

# What looks up as many elements of its first tensor as it gives; what gives some or all of them, in another shape.
_LOOKUPS = frozenset({"index", "index_select", "gather", "embedding", "take"})
_VIEWS = frozenset(
    {"slice", "select", "split", "split_with_sizes", "narrow", "unbind", "as_strided", "alias", "detach", "expand"}
    | {"view", "_unsafe_view", "reshape", "transpose", "t", "permute", "unsqueeze", "squeeze"}
)


class Compulsory(NamedTuple):
    """Bytes."""

    read: int
    written: int

    @property
    def both(self) -> int:
        """Read and written."""
        return self.read + self.written


def compulsory(chain: Chain) -> Compulsory:
    """Of a table that indices are looked up in, as many elements count as are looked up.

    >>> from tracemine.verify import Builder
    >>> b = Builder("rows")
    >>> table, ids = b.input("table", (1000, 8), "float32"), b.input("ids", (3,), "int64", below=1000)
    >>> compulsory(b.done(b.call("aten::embedding", table, ids)))
    Compulsory(read=120, written=96)
    """
    count = len(chain.inputs)
    needed = _needed(chain)
    widths = [itemsize(str(spec.dtype)) or 0 for spec in chain.specs]
    return Compulsory(
        read=sum(needed[v] * widths[v] for v in range(count)),
        written=sum(_distinct(chain, v) * widths[v] for v in (*dict.fromkeys(chain.live), *chain.written)),
    )


def _needed(chain: Chain) -> list[int]:
    """Elements of each value that are read."""
    found = [0] * len(chain.specs)
    for number in reversed(range(len(chain.calls))):
        call, first = chain.calls[number], chain.first_output(number)
        outputs = range(first, first + len(call.outputs))
        name = call.operator.removeprefix("aten::")
        for place, value in enumerate(reads(call)):
            whole = _distinct(chain, value)
            part = whole
            if name in _LOOKUPS and place == 0:
                part = sum(_distinct(chain, v) for v in outputs)
            elif name in _VIEWS:
                part = sum(_distinct(chain, v) if v in chain.live else found[v] for v in outputs)
            found[value] = min(found[value] + part, whole)
    return found


def _distinct(chain: Chain, value: int) -> int:
    """Elements of a value, those that are repeated once."""
    spec, found = chain.specs[value], 1
    for size, stride in zip(spec.shape, spec.strides or (), strict=True):
        found *= size if stride else 1
    return found
