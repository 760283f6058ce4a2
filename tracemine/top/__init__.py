"""Where the step's time goes: GPU time by kernel, operator, module, line, stream, device or phase; the host's time.

Tops(asked).by("kernel")  → Top, whose rows add up to all GPU time that is looked at
Tops(asked).host("line")  → HostTop, whose rows add up to all steps, to the nanosecond
Tops(asked).waits()       → WaitTop, a row for the waits of each line

Everything is summed over arrays that earlier stages give; only names, modules and call paths are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from tracemine.columns import of_values
from tracemine.top.build import Tops
from tracemine.top.record import BY, HOST_BY, By, GraphTop, HostRow, HostTop, Top, TopRow, Utilisation, WaitRow, WaitTop
from tracemine.top.words import KIND_WORDS

__all__ = [
    "BY",
    "HOST_BY",
    "KIND_WORDS",
    "By",
    "GraphTop",
    "HostRow",
    "HostTop",
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
_FIELDS: Final = {
    name: _FLOAT if name.endswith(("share", "_per_s", "_reach")) else _INT
    for name in (
        *("depth", "instances", "calls", "gpu_time_ns", "own_ns", "share", "busy_ns"),
        *("flops", "flops_per_s", "flops_reach", "bytes", "bytes_per_s", "bytes_reach"),
    )
}
_HOST_FIELDS: Final = {"share": _FLOAT} | dict.fromkeys(
    (
        *("depth", "instances", "host_ns", "own_ns", "operator_ns"),
        *("launch_ns", "wait_ns", "python_ns", "other_ns", "critical_ns"),
    ),
    _INT,
)
_WAIT_FIELDS: Final = dict.fromkeys(("line", "operator", "kind", "use"), _TEXT) | dict.fromkeys(
    ("waits", "wait_ns"), _INT
)


def top_table(top: Top) -> pa.Table:
    """Return one row a row, named as the fields of `TopRow`: `name` by what the table is of, and three more.

    `part_of`: the name of the row that it is part of. `per_step_ns`: GPU time of a step. `findings`: fingerprints of
    those that say something of it, most time first.
    """
    times = {"per_step_ns": of_values([row.gpu_time_ns // top.steps for row in top.rows], _INT)}
    claims = of_values([[finding.fingerprint for finding in row.findings] for row in top.rows], pa.list_(_TEXT))
    return pa.table(_names(top) | times | _columns(top.rows, _FIELDS) | {"findings": claims})


def host_table(top: HostTop) -> pa.Table:
    """Return one row a row, named as the fields of `HostRow`: `name` by what the table is of, and two more.

    `part_of`: the name of the row that it is part of. `per_step_ns`: host time of a step.
    """
    times = {"per_step_ns": of_values([row.host_ns // top.steps for row in top.rows], _INT)}
    return pa.table(_names(top) | _columns(top.rows, {"kind": _TEXT}) | times | _columns(top.rows, _HOST_FIELDS))


def wait_table(top: WaitTop) -> pa.Table:
    """Return one row a row, named as the fields of `WaitRow`; a saving is three columns, null where not asked."""
    saved = [row.saving_ns for row in top.rows]
    ends = {
        f"saving{name}_ns": of_values([None if one is None else getattr(one, end) for one in saved], _INT)
        for name, end in (("_low", "low"), ("", "mid"), ("_high", "high"))
    }
    return pa.table(_columns(top.rows, _WAIT_FIELDS) | ends)


def _columns(rows: Sequence[object], fields: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    return {name: of_values([getattr(row, name) for row in rows], kind) for name, kind in fields.items()}


def _names(top: Top | HostTop) -> dict[str, pa.Array]:
    """Return what each row is, and the row that it is part of."""
    inside = [None if row.parent is None else top.rows[row.parent].name for row in top.rows]
    return {top.by: of_values([row.name for row in top.rows], _TEXT), "part_of": of_values(inside, _TEXT)}
