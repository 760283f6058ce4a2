"""Tell a folder that nsys export wrote from others: what is asked of each folder loads no reader."""

from __future__ import annotations

from pathlib import Path

from tracemine.formats.nsys import schema

_SUFFIXES = (".parquet", ".arrow", ".arrows", ".feather")


def files_in(folder: Path) -> dict[str, Path]:
    """Return the tables in a folder: name → file. Empty where it is no export.

    >>> files_in(Path("no/such/folder"))
    {}
    """
    if not folder.is_dir():
        return {}
    found = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES}
    return found if schema.is_export(set(found)) else {}
