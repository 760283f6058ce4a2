"""Tables that say something of names by regular expressions: the first row whose pattern fits decides."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class PatternRow(NamedTuple):
    """What a table says of the names that fit a pattern, and names that do."""

    says: str | None  # None: the pattern's first group
    pattern: re.Pattern[str]
    examples: tuple[str, ...]


@cache
def document(file: str) -> dict[str, Any]:
    """Return what a TOML file next to this module holds."""
    return tomllib.loads(Path(__file__).with_name(file).read_text("utf-8"))


@cache
def pattern_rows(file: str, table: str, says: str) -> tuple[PatternRow, ...]:
    """Return the rows of a table of a file next to this module, in order; `says`: the key of what they say.

    >>> [row.says for row in pattern_rows("arithmetic.toml", "unit", "unit")][:1]
    ['vector']
    """
    rows = document(file)[table]
    return tuple(PatternRow(row.get(says), re.compile(row["regex"]), tuple(row["examples"])) for row in rows)
