"""The package's own tables in TOML, which takes Python long to read: tables.tsv holds them as JSON, a line a file.

`docs/generate.py` writes it: a file's place, its size and checksum, and what it holds. A line holds as long as the file
that it was made of is as it was, to the byte; else that is read.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final
from zlib import crc32

PLACE: Final = Path(__file__).with_name("tables.tsv")
_PACKAGE = Path(__file__).parent


def table_beside(module: str, name: str) -> dict[str, Any]:
    """Return what a TOML file next to a module holds.

    >>> table_beside(__file__, "devices.toml")["links"]["pcie4"] > 0
    True
    """
    path = Path(module).with_name(name)
    content = path.read_bytes()
    made_of, kept = _kept().get(path.relative_to(_PACKAGE).as_posix(), ("", "{}"))
    table: dict[str, Any] = json.loads(kept) if made_of == stamp_of(content) else tomllib.loads(content.decode())
    return table


def stamp_of(content: bytes) -> str:
    """Return what shows that a file is as it was.

    >>> stamp_of(b"a")
    '1 3904355907'
    """
    return f"{len(content)} {crc32(content)}"


def text_of(files: Iterable[Path]) -> str:
    """Return what tables.tsv holds for these files of the package."""
    return "".join(sorted(map(_line, files)))


def _line(path: Path) -> str:
    content = path.read_bytes()
    table = json.dumps(tomllib.loads(content.decode()), ensure_ascii=False, separators=(",", ":"))
    return f"{path.relative_to(_PACKAGE).as_posix()}\t{stamp_of(content)}\t{table}\n"


@cache
def _kept() -> dict[str, tuple[str, str]]:
    if not PLACE.is_file():
        return {}
    lines = (line.split("\t", 2) for line in PLACE.read_text("utf-8").split("\n"))
    return {line[0]: (line[1], line[2]) for line in lines if len(line) == 3}
