"""The parquetdir and arrowdir exports: a folder with one file a table.

A file is a stream of messages with a mark in front and an index behind. The index is not used, so that what is counted
is what is read. https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import Counter
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tracemine.columns import Array, fixed_width, is_present
from tracemine.errors import InputError, Location
from tracemine.files import bounded, opened, read_parquet
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.assemble import assemble
from tracemine.formats.nsys.database import NO_NUMBER
from tracemine.formats.nsys.files import files_in
from tracemine.formats.nsys.tables import Numbers, nothing
from tracemine.timeline import Timeline
from tracemine.timeline.arrow import MISSING

_SUFFIXES = (".parquet", ".arrow", ".arrows", ".feather")


_MARK = b"ARROW1\0\0"
_DICTIONARY, _RECORDS = 2, 3  # a message's kinds that have a body
_INT16, _INT32, _INT64 = (struct.Struct(code) for code in ("<H", "<i", "<q"))


def read_arrow(path: Path, wanted: Container[str]) -> pa.Table:
    """Return the wanted columns of an Arrow file.

    Raises InputError for what is no regular file, and where more would be held than a file of its size can say;
    ArrowException and OSError where it is damaged.
    """
    with opened(path) as file:
        if not os.fstat(file.fileno()).st_size:
            raise pa.ArrowInvalid("empty")
        content = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if content[: len(_MARK)] == _MARK:
            content = content.slice(len(_MARK))
        bounded(_inflated(content), file, path)
    names = pa.ipc.open_stream(content).schema.names
    options = pa.ipc.IpcReadOptions(included_fields=[at for at, name in enumerate(names) if name in wanted])
    return pa.ipc.open_stream(content, options=options).read_all()


def _inflated(content: pa.Buffer) -> int:
    """Return how many bytes its messages come to once they are read, each value counted as 8 at least."""
    try:
        return sum(map(_held, pa.ipc.MessageReader.open_stream(content)))
    except (struct.error, IndexError):
        raise pa.ArrowInvalid("a message's header is damaged") from None


def _held(message: pa.Message) -> int:
    header = memoryview(message.metadata)
    (root,) = _INT32.unpack_from(header, 0)
    kind = _field(header, root, 1)
    batch = _table(header, root, 2)
    if not (kind and batch) or header[kind] not in (_DICTIONARY, _RECORDS):
        return 0
    batch = _table(header, batch, 1) if header[kind] == _DICTIONARY else batch
    values = sum(length for length, _ in _pairs(header, batch, 1))
    buffers = _pairs(header, batch, 2)
    if not _field(header, batch, 3):  # nothing is compressed
        return max(8 * values, sum(length for _, length in buffers))
    body = memoryview(message.body)
    return max(8 * values, sum(_size(body, at, length) for at, length in buffers if length))


def _size(body: memoryview, at: int, length: int) -> int:
    """Return a compressed buffer's size, which stands in front of it; -1: it is not compressed."""
    (size,) = _INT64.unpack_from(body, at)
    return length if size < 0 else int(size)


# -- FlatBuffers: a table's fields are found by way of its list of offsets. https://flatbuffers.dev/internals/


def _field(text: memoryview, table: int, number: int) -> int:
    """Return where a table's field stands; 0: it has its default."""
    offsets = table - _INT32.unpack_from(text, table)[0]
    at = 4 + 2 * number
    if at >= _INT16.unpack_from(text, offsets)[0]:
        return 0
    (offset,) = _INT16.unpack_from(text, offsets + at)
    return table + offset if offset else 0


def _table(text: memoryview, table: int, number: int) -> int:
    """Return where the table or list that is a table's field stands; 0: it is not there."""
    field = _field(text, table, number)
    return field + _INT32.unpack_from(text, field)[0] if field else 0


def _pairs(text: memoryview, table: int, number: int) -> list[tuple[int, int]]:
    """Return a field that is a list of two numbers each."""
    at = _table(text, table, number)
    if not at:
        return []
    (count,) = _INT32.unpack_from(text, at)
    numbers = struct.unpack_from(f"<{2 * max(count, 0)}q", text, at + 4)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


_SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def read_folder(path: Path) -> Timeline:
    """Return the timeline of a parquetdir or arrowdir export.

    Raises InputError where a file of it is damaged.
    """
    with Folder(path) as tables:
        return assemble(tables, path.name, blobs=tables.payloads())


class Folder:
    """`Tables` over the files of a folder.

    Raises InputError where a file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.repaired: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.warnings: list[str] = []
        self._files = files_in(path)
        self._tables: dict[str, pa.Table] = {}

    @property
    def names(self) -> set[str]:
        """Names of the tables that are there."""
        return set(self._files)

    def columns(self, table: str) -> set[str]:
        """Return names of a table's columns; empty where it is not there."""
        return set(self._table(table).column_names) if table in self._files else set()

    def numbers(self, table: str) -> Numbers:
        """Return the table's columns of `schema.NUMBERS`, all of one length."""
        if table not in self._files:
            return nothing(schema.NUMBERS[table])
        data = self._table(table)
        columns = nothing(schema.NUMBERS[table], data.num_rows)
        for name in schema.NUMBERS[table]:
            if name in data.column_names:
                columns[name] = self._integers(data.column(name))
        return columns

    def texts(self, table: str) -> dict[str, list[str | None]]:
        """Return the table's columns of `schema.TEXTS`, in the same order of rows."""
        data = self._table(table) if table in self._files else None
        found: dict[str, list[str | None]] = {}
        for name in schema.TEXTS.get(table, ()):
            found[name] = [None] * (0 if data is None else data.num_rows)
            if data is not None and name in data.column_names and _is_text(data.column(name).type):
                found[name] = _texts(data.column(name))
        return found

    def payloads(self) -> dict[int, bytes | str]:
        """Return the payloads of NVTX events, by row."""
        if schema.NVTX_ENTRIES not in self._files or schema.PAYLOAD not in self.columns(schema.NVTX):
            return {}
        said = self._table(schema.NVTX).column(schema.PAYLOAD).to_pylist()
        return {row: each for row, each in enumerate(said) if isinstance(each, bytes | str)}

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: each file is closed once it is read."""

    def _table(self, name: str) -> pa.Table:
        if name not in self._tables:
            path = self._files[name]
            payload = (schema.PAYLOAD,) if name == schema.NVTX and schema.NVTX_ENTRIES in self._files else ()
            known = (*schema.NUMBERS.get(name, ()), *schema.TEXTS.get(name, ()), *payload)
            try:
                table = read_parquet(path, known) if path.suffix == ".parquet" else read_arrow(path, known)
                table.validate(full=True)
            except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
                raise InputError(
                    f"is a damaged {'Parquet' if path.suffix == '.parquet' else 'Arrow'} file"
                    + (" (cut short)" if isinstance(error, OSError | pa.ArrowInvalid) else ""),
                    where=Location(str(path)),
                    hint="export again with nsys",
                ) from None
            self._tables[name] = table
        return self._tables[name]

    def _integers(self, column: pa.ChunkedArray) -> Array:
        if not pa.types.is_integer(column.type):
            self.repaired[NO_NUMBER] += len(column) - column.null_count
            return np.full(len(column), MISSING)
        widths: dict[int, Any] = _SIGNED if pa.types.is_signed_integer(column.type) else _UNSIGNED
        parts = [np.empty(0, np.int64)]
        for chunk in column.chunks:
            values = fixed_width(chunk, widths[column.type.bit_width]).astype(np.int64)
            parts.append(np.where(is_present(chunk), values, MISSING))
        return np.concatenate(parts)


def _is_text(kind: pa.DataType) -> bool:
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the texts of a column; one that is repeated is held once."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    found: list[str | None] = []
    for chunk in column.chunks:
        texts = chunk.dictionary.to_pylist()
        found += [None if at is None else texts[at] for at in chunk.indices.to_pylist()]
    return found
