"""A database of rocprofv3 laid out as an export of Nsight Systems: in tables of the connection's own, in memory."""

from __future__ import annotations

from typing import Final

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.nsys import database
from tracemine.formats.nsys import schema as nsys
from tracemine.formats.nsys.about import Recorder
from tracemine.formats.rocpd import schema
from tracemine.formats.source import FileSource
from tracemine.formats.sqlite import columns_in, tables_in
from tracemine.timeline import Timeline

_AGAIN: Final = "record again with rocprofv3 --sys-trace --output-format rocpd"
ROCPROF: Final = Recorder(
    "rocpd",
    "rocprofv3",
    f"No GPU activity was recorded: {_AGAIN}.",
    "No operators were recorded, so no activity has an owner: those of a PyTorch program come with --marker-trace, "
    "under torch.autograd.profiler.emit_nvtx(record_shapes=True).",
    "Shapes were not recorded, so bytes and savings cannot be derived: use emit_nvtx(record_shapes=True).",
)


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a database. Raises InputError where it is damaged or packed, or holds no recording."""
    return database.read_database(source, progress, Database, ROCPROF)


class Database(database.Database):
    """`Tables` over a database of rocpd."""

    again = _AGAIN
    reads_ahead = False

    def _plain_tables(self) -> list[str]:
        """Fill tables of Nsight Systems with the rows of each set, and return what they are called."""
        plain = {
            name: schema.TABLE.fullmatch(name) for name, own_rows in tables_in(self._connection).items() if own_rows
        }
        there = {name: columns_in(self._connection, name) for name, found in plain.items() if found}
        suffixes = sorted({found["suffix"] or "" for found in plain.values() if found})
        if not suffixes:
            what = "is a database of rocprofv3 (rocpd) of another layout than is known"
            raise InputError(what, where=Location(self.path), hint=_AGAIN)
        self._answer("pragma temp_store = memory")
        for name, own in schema.COLUMNS.items():
            columns = ", ".join(f'"{column}"' for column in own)
            self._answer(f'create temp table "{name}" ({columns}{", unique (id)" if name == nsys.GPU else ""})')
        for at, suffix in enumerate(suffixes):
            for query in schema.QUERIES:
                if query.table + suffix in there:
                    self._answer(query.text(suffix, there, texts=(2 * len(suffixes), 2 * at)))
        return list(schema.COLUMNS)
