"""How every file is opened that is read, and how every file is written.

reading.py   regular files alone, without waiting, within bounds
writing.py   whole or not at all, and through no link that was not named
"""

from tracemine.files.reading import bounded, opened, read_file, read_head, read_parquet
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

__all__ = [
    "beside",
    "bounded",
    "check_plain",
    "folder_beside",
    "locked",
    "make_folder",
    "opened",
    "path_text",
    "read_file",
    "read_head",
    "read_parquet",
    "resolved",
    "write_file",
    "write_pieces",
    "writing",
]
