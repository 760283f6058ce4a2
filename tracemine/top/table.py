"""The rows of where the time goes as an Arrow table."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tracemine.columns import of_values
from tracemine.top.record import Top

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
