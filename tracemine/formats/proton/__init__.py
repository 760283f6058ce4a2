"""Triton's Proton: trees of sums (`.hatchet`), and traces (`.chrome_trace`).

contexts.py  call stacks: scopes as modules, Python's lines as stacks, and what is Proton's own work
trace.py     kernels with their times, their launches, and the scopes around these
tree.py      sums of kernels by scope, without times
read.py      which of them a file is
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.formats.proton.trace import read_trace
    from tracemine.formats.proton.tree import read_tree

__all__ = ["read_trace", "read_tree"]

# Who reads another format needs none of it.
__getattr__ = on_demand(__name__, {"read_trace": f"{__name__}.trace", "read_tree": f"{__name__}.tree"})
