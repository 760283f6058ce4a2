"""The tables of rocpd that are read: a closed list. A database holds a set of them for each process, by a suffix.

What a table or a column says that a set lacks is not known. Views are not read: they would run what the file says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

_TABLES: Final = (
    *("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region", "rocpd_string", "rocpd_event"),
    *("rocpd_info_kernel_symbol", "rocpd_info_agent", "rocpd_info_process", "rocpd_info_thread"),
)
_NAME: Final = re.compile(rf"({'|'.join(_TABLES)})(_[0-9A-Za-z_]{{1,80}})?")
_COLUMN: Final = re.compile(r'\b([a-z])\."?(\w+)"?')


class Query(Struct, frozen=True):
    """Rows of a table, here `r`, and what others say of them."""

    table: str
    columns: Mapping[str, str]
    joins: Mapping[str, tuple[str, str]]  # by the other's letter: its table, and what it is joined on

    def text(self, suffix: str, there: Mapping[str, set[str]]) -> str:
        """Return the query over one set, of tables and columns that are there."""
        tables = {"r": self.table, **{letter: table for letter, (table, _) in self.joins.items()}}
        known = {letter: there.get(table + suffix, set()) for letter, table in tables.items()}
        used = {letter: _holds(on, known) for letter, (_, on) in self.joins.items()}
        known = {letter: columns for letter, columns in known.items() if used.get(letter, True)}
        columns = ", ".join(text if _holds(text, known) else "null" for text in self.columns.values())
        joins = "".join(
            f' left join "{table}{suffix}" {letter} on {on}'
            for letter, (table, on) in self.joins.items()
            if used[letter]
        )
        return f'select {columns} from "{self.table}{suffix}" r{joins} order by r.rowid'  # noqa: S608 - names of ours


def _holds(text: str, known: Mapping[str, set[str]]) -> bool:
    """Return whether all columns that an expression names are there.

    >>> _holds('r."end" - e.start', {"r": {"end"}, "e": {"start"}}), _holds("s.name", {"r": {"name"}})
    (True, False)
    """
    return all(column in known.get(letter, ()) for letter, column in _COLUMN.findall(text))


_EVENT: Final = {"e": ("rocpd_event", "e.id = r.event_id"), "p": ("rocpd_info_process", "p.id = r.pid")}
# A call and what it launches share a number of the profiler's own.
_SHARED: Final = {"start": "r.start", "end": 'r."end"', "correlationId": "e.stack_id", "process": "p.pid"}
_ON_QUEUE: Final = {"streamId": "r.stream_id", "queueId": "r.queue_id"}

# What is read becomes rows of the tables of Nsight Systems: columns have its names, but for what is looked up first.
KERNELS: Final = Query(
    "rocpd_kernel_dispatch",
    _SHARED
    | _ON_QUEUE
    | {f"grid{a.upper()}": f"(r.grid_size_{a} + r.workgroup_size_{a} - 1) / r.workgroup_size_{a}" for a in "xyz"}
    | {f"block{a.upper()}": f"r.workgroup_size_{a}" for a in "xyz"}
    | {
        "name": "r.kernel_id",
        "deviceId": "a.type_index",
        "registersPerThread": "s.arch_vgpr_count",
        "staticSharedMemory": "r.group_segment_size",
    },
    _EVENT | {"a": ("rocpd_info_agent", "a.id = r.agent_id"), "s": ("rocpd_info_kernel_symbol", "s.id = r.kernel_id")},
)
COPIES: Final = Query(
    "rocpd_memory_copy",
    _SHARED | _ON_QUEUE | {"name": "r.name_id", "deviceId": "ifnull(a.type_index, b.type_index)", "bytes": "r.size"},
    _EVENT
    | {
        "a": ("rocpd_info_agent", "a.id = r.dst_agent_id and a.type = 'GPU'"),
        "b": ("rocpd_info_agent", "b.id = r.src_agent_id and b.type = 'GPU'"),
    },
)
REGIONS: Final = Query(
    "rocpd_region",
    _SHARED | {"name": "r.name_id", "thread": "t.tid", "category": "e.category_id"},
    _EVENT | {"t": ("rocpd_info_thread", "t.id = r.tid")},
)
COPY_KINDS: Final = {"HOST_TO_DEVICE": 1, "DEVICE_TO_HOST": 2, "DEVICE_TO_DEVICE": 8, "HOST_TO_HOST": 9}


def part_of(name: str) -> tuple[str, str] | None:
    """Return the table that a name is of, and its set's suffix; None: it is none that is read.

    >>> part_of("rocpd_region_00a7_b"), part_of("rocpd_region"), part_of("rocpd_regions")
    (('rocpd_region', '_00a7_b'), ('rocpd_region', ''), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], found[2] or "")
