"""Where the step's time goes: GPU time by kernel, operator, module, line, stream, device or phase; the host's time.

Tops(asked).by("kernel")  → Top, whose rows add up to all GPU time that is looked at
Tops(asked).host("line")  → HostTop, whose rows add up to all steps, to the nanosecond
Tops(asked).waits()       → WaitTop, a row for the waits of each line

Everything is summed over arrays that earlier stages give; only names, modules and call paths are looked at one by one.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tracemine.columns import of_values
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

_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_FIELDS: Final = (
    ("depth", _INT),
    ("instances", _INT),
    ("calls", _INT),
    ("gpu_time_ns", _INT),
    ("own_ns", _INT),
    ("share", _FLOAT),
    ("busy_ns", _INT),
    ("flops", _INT),
    ("flops_per_s", _FLOAT),
    ("flops_reach", _FLOAT),
    ("bytes", _INT),
    ("bytes_per_s", _FLOAT),
    ("bytes_reach", _FLOAT),
)


def top_table(top: Top) -> pa.Table:
    """Return one row a row, named as the fields of `TopRow`: `name` by what the table is of, and three more.

    `part_of`: the name of the row that it is part of. `per_step_ns`: GPU time of a step. `findings`: fingerprints of
    those that say something of it, most time first.
    """
    rows = top.rows
    inside = [None if row.parent is None else rows[row.parent].name for row in rows]
    columns = {
        top.by: of_values([row.name for row in rows], _TEXT),
        "part_of": of_values(inside, _TEXT),
        "per_step_ns": of_values([row.gpu_time_ns // top.steps for row in rows], _INT),
    }
    columns |= {name: of_values([getattr(row, name) for row in rows], kind) for name, kind in _FIELDS}
    claims = [[one.fingerprint for one in row.findings] for row in rows]
    return pa.table(columns | {"findings": of_values(claims, pa.list_(_TEXT))})


def host_table(top: HostTop) -> pa.Table:
    """Return one row a row, named as the fields of `HostRow`: `name` by what the table is of, and two more.

    `part_of`: the name of the row that it is part of. `per_step_ns`: host time of a step.
    """
    rows = top.rows
    columns = {
        top.by: of_values([row.name for row in rows], _TEXT),
        "part_of": of_values([None if row.parent is None else rows[row.parent].name for row in rows], _TEXT),
        "kind": of_values([row.kind for row in rows], _TEXT),
        "per_step_ns": of_values([row.host_ns // top.steps for row in rows], _INT),
    }
    kinds = {"share": _FLOAT} | dict.fromkeys(("depth", "instances", "host_ns", "own_ns"), _INT)
    kinds |= dict.fromkeys(
        [f"{kind}_ns" for kind in ("operator", "launch", "wait", "python", "other", "critical")], _INT
    )
    return pa.table(columns | {name: of_values([getattr(row, name) for row in rows], kinds[name]) for name in kinds})


def wait_table(top: WaitTop) -> pa.Table:
    """Return one row a row, named as the fields of `WaitRow`; a saving is three columns, null where not asked."""
    rows = top.rows
    texts = {
        name: of_values([getattr(row, name) for row in rows], _TEXT) for name in ("line", "operator", "kind", "use")
    }
    numbers = {name: of_values([getattr(row, name) for row in rows], _INT) for name in ("waits", "wait_ns")}
    ends = {
        f"saving{name}_ns": of_values(
            [None if row.saving_ns is None else getattr(row.saving_ns, end) for row in rows], _INT
        )
        for name, end in (("_low", "low"), ("", "mid"), ("_high", "high"))
    }
    return pa.table(texts | numbers | ends)
