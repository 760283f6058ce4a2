"""The recorded call: an operator, and what it was called with.

calls_of(timeline)     → Calls: of each row of `ops` the number of its call; identical rows share one
Calls[number]          → Call: overload, arguments, shapes, dtypes; results, bytes and FLOPs that follow from them

A trace is calls; a call reads and writes tensors. Later stages ask a `Call`; nothing reads the texts again.
"""

from __future__ import annotations

import weakref

from tracemine.calls.call import Call
from tracemine.calls.calls import DTYPES, NAME, SHAPES, STRIDES, Calls
from tracemine.timeline import Timeline

__all__ = ["DTYPES", "NAME", "SHAPES", "STRIDES", "Call", "Calls", "calls_of"]

_known: dict[int, tuple[weakref.ref[object], Calls]] = {}  # by the id of a table of operators, while there is one


def calls_of(timeline: Timeline) -> Calls:
    """Return the calls of a timeline: the same object while its table of operators is the same.

    >>> from tracemine.timeline import Meta
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> len(calls_of(empty)), calls_of(empty) is calls_of(empty)
    (0, True)
    """
    key = id(timeline.ops)
    entry = _known.get(key)
    if entry is None or entry[0]() is not timeline.ops:
        gone = weakref.ref(timeline.ops, lambda _: _known.pop(key, None))
        entry = _known[key] = (gone, Calls(timeline.ops))
    return entry[1]
