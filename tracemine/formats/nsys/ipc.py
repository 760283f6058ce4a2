"""Arrow's own files, as arrowdir exports and `feather` are: what they hold once inflated is counted before it is read.

A file is a stream of messages with a mark in front and an index behind. The index is not used, so that what is counted
is what is read. https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Container
from pathlib import Path

import pyarrow as pa

from tracemine.files import bounded, opened

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
