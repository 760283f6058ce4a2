"""What other packages add, found by their entry points: formats of traces, and reports.

A distribution says in its pyproject.toml what it adds and where that lies:

    [project.entry-points."tracemine.formats"]
    kernel_table = "my_package.kernel_table:FORMAT"   # a tracemine.formats.format.Format

    [project.entry-points."tracemine.reports"]
    table = "my_package.table:render"                 # as every `render` in tracemine.report

They are looked for only where nothing built in fits, so a scan that needs none does not wait for them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tracemine.errors import TracemineError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["FORMATS", "REPORTS", "Plugin", "plugins"]

FORMATS, REPORTS = "tracemine.formats", "tracemine.reports"
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


def _title(distribution: Any) -> str:
    return f"{distribution.name} {distribution.version}"
