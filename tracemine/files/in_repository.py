"""Which file of a repository a recording means, that was made on another machine or in a container."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_MOST_PARTS = 64
_LONGEST = 4_096


def path_in(root: Path, recorded: str) -> str | None:
    """Return the path from a repository's root of the file that a recording names: the longest end of it that is there.

    None where none is, or the name is no path that could be: nothing outside of the root is looked at.
    """
    parts = [part for part in re.split(r"[\\/]+", recorded) if part not in ("", ".")]
    if not parts or ".." in parts or len(recorded) > _LONGEST or "\0" in recorded:
        return None
    for start in range(max(len(parts) - _MOST_PARTS, 0), len(parts)):
        end = parts[start:]
        with suppress(OSError, ValueError):
            if not end[0].endswith(":") and root.joinpath(*end).is_file():
                return "/".join(end)
    return None
