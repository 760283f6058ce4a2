"""What other packages add, found by their entry points: formats of traces, reports, and causes of slowness.

A distribution says in its pyproject.toml what it adds and where that lies:

    [project.entry-points."tracemine.formats"]
    kernel_table = "my_package.kernel_table:FORMAT"   # a tracemine.formats.format.Format

    [project.entry-points."tracemine.reports"]
    table = "my_package.table:render"                 # as every `render` in tracemine.report

    [project.entry-points."tracemine.causes"]
    my_cause = "my_package.my_cause:CAUSE"            # a tracemine.causes.Cause, named like its rule

Formats and reports are looked for only where nothing built in fits. Causes are part of every scan: the metadata of
packages is read in full where one of them names a cause.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracemine.errors import TracemineError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["CAUSES", "FORMATS", "REPORTS", "Plugin", "plugins"]

CAUSES, FORMATS, REPORTS = "tracemine.causes", "tracemine.formats", "tracemine.reports"
_LONGEST = 200  # characters of what an error says


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point: its group, its name, and the distribution that it is of, with its version."""

    group: str
    name: str
    distribution: str
    entry: EntryPoint

    @property
    def says(self) -> str:
        """What it is, in words.

        >>> Plugin("tracemine.reports", "table", "my-package 1.0", None).says
        "the report 'table' of my-package 1.0"
        """
        what = self.group.rpartition(".")[2].removesuffix("s")
        return f"the {what} {self.name!r} of {self.distribution}"

    def load(self) -> Any:
        """Import what it names. Raises TracemineError, in one line with its distribution, where that fails."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            raise self.error("cannot be loaded", error) from error

    def error(self, says: str, cause: BaseException | None = None) -> TracemineError:
        """Return an error that names the distribution, whose authors are to be informed."""
        why = "" if cause is None else f": {type(cause).__name__}: {' '.join(str(cause).split())}"[:_LONGEST]
        return TracemineError(f"{self.says} {says}{why}", hint="tell its authors, or uninstall it")


def plugins(group: str) -> tuple[Plugin, ...]:
    """Return all plug-ins of a group, by name, then by distribution.

    Raises TracemineError where what is installed cannot be listed.

    >>> plugins("tracemine.no_such_group")
    ()
    """
    return _plugins(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _plugins(group: str, path: tuple[str, ...]) -> tuple[Plugin, ...]:
    if not any(_may_name(folder, group.encode()) for folder in dict.fromkeys(path)):
        return ()
    from importlib.metadata import entry_points

    try:
        found = [
            Plugin(group, entry.name, "an unnamed package" if entry.dist is None else _title(entry.dist), entry)
            for entry in entry_points(group=group)
        ]
    except Exception as error:
        raise TracemineError(
            f"the packages installed here cannot be listed: {type(error).__name__}: {error}"[:_LONGEST],
            hint="one of them has a damaged folder *.dist-info",
        ) from error
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.distribution)))


def _may_name(folder: str, group: bytes) -> bool:
    """Return whether a package in a folder of `sys.path` may have entry points of a group.

    A millisecond for a hundred packages, of what `importlib.metadata` takes twenty and more for.
    """
    try:
        with os.scandir(folder or ".") as entries:
            about = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        return any(group in _content(f"{each}/entry_points.txt") for each in about)
    except NotADirectoryError:
        return True  # an archive
    except OSError:
        return False


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _title(distribution: Any) -> str:
    return f"{distribution.name} {distribution.version}"
