"""Where the step's time goes: GPU time by kernel, operator, module, line, stream, device or phase; the host's time.

Tops(asked).by("kernel")  → Top, whose rows add up to all GPU time that is looked at
Tops(asked).host("line")  → HostTop, whose rows add up to all steps, to the nanosecond
Tops(asked).waits()       → WaitTop, a row for the waits of each line

Everything is summed over arrays that earlier stages give; only names, modules and call paths are looked at one by one.
"""

from tracemine.top.build import Asked, Tops
from tracemine.top.record import (
    BY,
    HOST_BY,
    By,
    Claim,
    GraphTop,
    HostBy,
    HostKind,
    HostRow,
    HostTop,
    LeftOut,
    Top,
    TopRow,
    Utilisation,
    WaitRow,
    WaitTop,
)
from tracemine.top.table import host_table, top_table, wait_table
from tracemine.top.words import KIND_WORDS

__all__ = [
    "BY",
    "HOST_BY",
    "KIND_WORDS",
    "Asked",
    "By",
    "Claim",
    "GraphTop",
    "HostBy",
    "HostKind",
    "HostRow",
    "HostTop",
    "LeftOut",
    "Top",
    "TopRow",
    "Tops",
    "Utilisation",
    "WaitRow",
    "WaitTop",
    "host_table",
    "top_table",
    "wait_table",
]
