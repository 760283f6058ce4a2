"""How every file is opened that is read, and how every file is written.

reading.py   regular files alone, without waiting, within bounds
writing.py   whole or not at all, and through no link that was not named
parquet.py   tables, as Parquet: loaded when one is read or written, not when the command line starts
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.files.reading import Inflation, bounded, opened, read_file, read_head, within
from tracemine.files.writing import (
    beside,
    check_plain,
    folder_beside,
    locked,
    make_folder,
    path_text,
    resolved,
    write_file,
    write_pieces,
    writing,
)
from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.files.parquet import (
        parquet_bytes,
        parquet_marks,
        parquet_of,
        parquet_rows,
        read_parquet,
        write_tables,
    )

__all__ = [
    "Inflation",
    "beside",
    "bounded",
    "check_plain",
    "folder_beside",
    "locked",
    "make_folder",
    "opened",
    "parquet_bytes",
    "parquet_marks",
    "parquet_of",
    "parquet_rows",
    "path_text",
    "read_file",
    "read_head",
    "read_parquet",
    "resolved",
    "within",
    "write_file",
    "write_pieces",
    "write_tables",
    "writing",
]

__getattr__ = on_demand(
    __name__,
    dict.fromkeys(
        ("parquet_bytes", "parquet_marks", "parquet_of", "parquet_rows", "read_parquet", "write_tables"),
        f"{__name__}.parquet",
    ),
)
