"""What a trace is called: its own name, not the one that every tool gives its files and folders."""

from __future__ import annotations

import re

from tracemine.patterns import deferred

_ANY = deferred(
    r"^(runs?|traces?|profiles?|captures?|timelines?|results?|outputs?|logs?|findings|report|rank_?\d+)"
    r"(\.pt)?(\.(json|sqlite|nsys-rep))?(\.(gz|zst))?$",
    re.IGNORECASE,
)


def trace_name(path: str) -> str:
    """Return the last part of a path that names this trace alone; where none does, the last one.

    >>> [trace_name(path) for path in ("runs/decoder/run", "a/b.pt.trace.json.gz", "bert/trace.json", "run")]
    ['decoder', 'b.pt.trace.json.gz', 'bert', 'run']
    """
    parts = [part for part in path.replace("\\", "/").split("/") if part]
    if not parts:
        return path
    return next((part for part in reversed(parts) if not _ANY.match(part)), parts[-1])
