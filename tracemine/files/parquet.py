"""Parquet files: read within bounds, and written several at once. Arrow is loaded with this module alone."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracemine.errors import Location
from tracemine.files.reading import Inflation, bounded, opened

_SMALL_BYTES = 1 << 20  # of a file that one thread reads about as fast as several
_PACKED = "zstd"


def read_parquet(path: Path, wanted: Container[str] | None = None) -> pa.Table:
    """Return the wanted columns of a Parquet file; texts as dictionaries, so that one which is repeated is held once.

    Raises InputError for what is no regular file, and where more would be held than a file of its size can say;
    ArrowException and OSError where it is damaged.
    """
    with opened(path) as file:
        metadata = pq.read_metadata(file)
        inflated, texts = _held(metadata, wanted)
        bounded(inflated, file, path)
        # Not pq.read_table: that adds a column for each folder named key=value on the path.
        table = pq.ParquetFile(file, metadata=metadata, read_dictionary=texts, pre_buffer=False)
        names = [name for name in table.schema_arrow.names if wanted is None or name in wanted]
        # Where a column is damaged, threads that still read others may outlive the process, which Arrow then aborts.
        return table.read(names, use_threads=os.fstat(file.fileno()).st_size > _SMALL_BYTES)


def parquet_of(content: bytes, wanted: Container[str], inflation: Inflation, where: Location) -> pa.Table:
    """Return the wanted columns of what a Parquet file holds, as `read_parquet`, within a bound over several files."""
    file = pa.BufferReader(content)
    metadata = pq.read_metadata(file)
    inflated, texts = _held(metadata, wanted)
    inflation.add(inflated, len(content), where)
    table = pq.ParquetFile(file, metadata=metadata, read_dictionary=texts)
    return table.read([name for name in table.schema_arrow.names if name in wanted], use_threads=False)


def parquet_rows(path: Path) -> int:
    """Return how many rows a Parquet file has. Raises InputError, ArrowException and OSError as `read_parquet`."""
    with opened(path) as file:
        return int(pq.read_metadata(file).num_rows)


def parquet_marks(path: Path) -> dict[bytes, bytes]:
    """Return what a Parquet file says of itself, by name. Raises as `parquet_rows`."""
    with opened(path) as file:
        return dict(pq.read_schema(file).metadata or {})


def parquet_bytes(table: pa.Table) -> bytes:
    """Return what a Parquet file of a table holds."""
    packed = BytesIO()
    pq.write_table(table, packed, compression=_PACKED)
    return packed.getvalue()


def write_tables(folder: Path, tables: Iterable[tuple[str, pa.Table, Mapping[str, Any]]]) -> None:
    """Write each table of a name, with its options, to a new file NAME.parquet in a folder.

    Two at once, as Arrow encodes and compresses without Python's lock. A signal that ends the process ends it once the
    tables under way are written: the others are not begun.
    """
    writers = ThreadPoolExecutor(max_workers=2)
    try:
        for written in [writers.submit(_write, folder, *each) for each in tables]:
            written.result()
    finally:
        writers.shutdown(cancel_futures=True)


def _write(folder: Path, name: str, table: pa.Table, options: Mapping[str, Any]) -> None:
    with (folder / f"{name}.parquet").open("xb") as file:
        pq.write_table(table, file, compression=_PACKED, **options)


def _held(metadata: Any, wanted: Container[str] | None) -> tuple[int, list[str]]:
    """Return how many bytes the wanted columns of a Parquet file hold once read, and which of them are texts."""
    inflated, texts = 0, dict[str, None]()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(metadata.num_columns)):
            if wanted is None or column.path_in_schema.partition(".")[0] in wanted:
                inflated += max(column.total_uncompressed_size, 8 * max(column.num_values, group.num_rows))
                if column.physical_type == "BYTE_ARRAY":
                    texts[column.path_in_schema] = None
    return inflated, list(texts)
