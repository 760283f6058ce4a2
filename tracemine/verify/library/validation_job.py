"""A library call's validation, asked of a process of its own, and the sizes at which it is tried."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import msgspec

from tracemine.codegen.graph import Graph
from tracemine.codegen.index_inputs import within
from tracemine.errors import TracemineError
from tracemine.processes import worker
from tracemine.validate.downsize import elements
from tracemine.verify.library.record import Replacement
from tracemine.verify.library.replace import find
from tracemine.verify.library.sizes import free_sizes, scaled

WORKER = worker("tracemine.verify.library.worker")
MOST_ELEMENTS = 1 << 20  # of the largest tensor: calls that cannot be made smaller are not tried beyond
LIBRARY_ULP = 8.0  # that a call's functions may be off by, of float32
_MOST_FREE = 4  # sizes that are tried at others, each
# All different, and no multiple of a block; the second, where products of many axes are large with the first.
_SMALL = (33, 17, 9, 5, 3, 2, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16), (7, 5, 3, 2, 4, 6, 8, 9, 10, 11, 12, 13)
_ENOUGH = 1 << 14  # elements of the largest tensor, for the first


# What is asked for: a graph as MessagePack, for JSON has no infinities; `unread` as in `find`; whether with mutants.
CallJob = tuple[bytes, tuple[int, ...], bool]


class Sizes:
    """A graph made small, where its calls allow it, and other sizes for it."""

    def __init__(self, graph: Graph, unread: tuple[int, ...], replacement: Replacement | None = None) -> None:
        """replacement: of the graph as recorded; None: it is looked for where no smaller graph has one."""
        self._recorded = graph
        self._small: dict[int, int] = {}
        self.graph, self.replacement = graph, replacement
        free = free_sizes(graph)
        for sizes in _SMALL:
            small = {n: min(n, sizes[k % len(sizes)]) for k, n in enumerate(free)}
            with contextlib.suppress(TracemineError, ArithmeticError, ValueError, LookupError):
                made = within(scaled(graph, small))
                if (found := find(made, unread).replacement) is not None:
                    self.graph, self._small, self.replacement = made, small, found
            if elements(self.graph) <= _ENOUGH:
                break
        if self.replacement is None:
            self.replacement = find(graph, unread).replacement
        self.free = {n: self._small[n] for n in free[:_MOST_FREE] if n in self._small}

    def at(self, sizes: Mapping[int, int]) -> Graph:
        """Return the graph with other sizes for some. Raises TracemineError where its calls do not allow them."""
        return within(scaled(self._recorded, {**self._small, **sizes})) if sizes else self.graph


def job(graph: Graph, unread: tuple[int, ...] = (), mutants: bool = True) -> bytes:
    """Return a line that the process reads."""
    return msgspec.json.encode((msgspec.msgpack.encode(graph), unread, mutants))
