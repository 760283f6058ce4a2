"""What the scanner hands to assembly: the columns of one Kineto trace, in file order, nothing joined yet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct, field

# Sentinels of RawTrace's columns; they never leave this package.
ABSENT = -1  # no string there
MISSING = np.iinfo(np.int64).min  # no number there

Columns = dict[str, np.ndarray[Any, Any]]


class RawTrace(Struct, frozen=True, kw_only=True):
    """Columns of equal length for each table, file order; string columns hold int32 ids into `strings`.

    Which columns a table has stands in `events.TABLES`. Times are absolute int64 nanoseconds. `metadata` holds the
    `M` events as (name, pid, tid, args), one a key, the last one of the file. The counters say what became of every
    event: `events` by category as found, of those `skipped` (no row by design), `dropped` and `repaired` by reason.
    """

    gpu: Columns
    calls: Columns
    syncs: Columns
    ops: Columns
    frames: Columns
    memory: Columns
    strings: list[str]
    header: dict[str, Any] = field(default_factory=dict)
    metadata: list[tuple[str, Any, Any, dict[str, Any]]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    truncated: bool = False
    time_resolution_ns: int = 1
    warnings: tuple[str, ...] = ()
