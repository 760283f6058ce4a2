"""Which events carry rows, and which of their arguments: with events.toml the one place that knows Kineto's names.

Names are exact, blanks and case included, as torch 1.8 to 2.15 wrote them.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from tracemine.tables import table_beside

Kind = Literal["integer", "number", "text", "raw"]


class EventArgument(Struct, frozen=True):
    """One column read from `args`. A raw one keeps its JSON text, such as `[1, 2, 3]` or `"triton"` with quotes."""

    column: str
    key: str
    kind: Kind = "integer"
    aliases: tuple[str, ...] = ()  # other spellings, read where `key` is absent


class EventTable(Struct, frozen=True):
    """One table of RawTrace: the event's own fields first, then its arguments."""

    name: str
    columns: tuple[str, ...]  # of the event itself: category, name, start_ns, dur_ns, pid, tid
    arguments: tuple[EventArgument, ...] = ()
    phases: tuple[str, ...] = ("X",)  # as the event calls what it is: X has a duration, i and I are instants
    only: str | None = None  # events of another name carry no row


_KNOWN = table_beside(__file__, "events.toml")
TABLES = {table.name: table for table in msgspec.convert(_KNOWN["tables"], tuple[EventTable, ...])}
CATEGORIES = msgspec.convert(_KNOWN["categories"], dict[str, tuple[str, int]])


def row_of(spelling: str) -> tuple[str, int] | None:
    """Return the table of a category's events and the value of its `category` column; None: they carry no row.

    >>> row_of("Kernel"), row_of("ac2g")
    (('gpu', 0), None)
    """
    return CATEGORIES.get(spelling.lower())


# The exporter before Kineto wrote no category but named the process.
LEGACY_PROCESSES: dict[str, str] = {"CPU functions": "cpu_op", "CUDA functions": "kernel"}

# Spellings that every scan may meet; any other is learnt when it is met.
KNOWN_SPELLINGS: tuple[str, ...] = (
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync"),
    *("cpu_op", "user_annotation", "python_function"),
    *("ac2g", "fwdbwd", "cpu_instant_event", "gpu_user_annotation", "overhead", "Trace"),
)
