"""Which operators may follow which by a guess, and which run in a backward pass."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from tracemine.columns import numbers, rows_that
from tracemine.flow.record import Flow

_AUTOGRAD: Final = "autograd::engine::evaluate_function: "


def in_backward(flow: Flow) -> frozenset[int]:
    """Return the nodes with a node of autograd around their operator.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta, Timeline
    >>> in_backward(flow(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    frozenset()
    """
    ops = flow.timeline.ops
    autograd = rows_that(ops.column("name"), lambda text: text.startswith(_AUTOGRAD))
    parent, at = numbers(ops.column("parent_row"), -1), flow.nodes.op_row
    found = np.zeros(len(at), np.bool_)
    while (at >= 0).any():
        found |= autograd[at] & (at >= 0)
        at = np.where(at >= 0, parent[at], -1)
    return frozenset(np.flatnonzero(found).tolist())


def guesses(flow: Flow) -> dict[int, list[int]]:
    """Return what may follow each node by a guess."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for before, after in zip(flow.perhaps_before.tolist(), flow.perhaps_after.tolist(), strict=True):
        found[before].append(after)
    return dict(found)
