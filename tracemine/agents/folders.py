"""Which paths are served: those below folders that were named when the server began, links followed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracemine.errors import InputError, Location, UsageError
from tracemine.files import make_folder, writing
from tracemine.report.escape import line

_MOST_ENTRIES = 10_000  # of a folder that is one trace: a timeline has a dozen
_JSON = (".json", ".json.gz", ".jsonl")


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders, resolved. What lies outside is refused in the same words, whether it is there or not."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, given: Sequence[Path]) -> Folders:
        """Return the folders. Raise UsageError for what is none."""
        for path in given:
            if not path.is_dir():
                says = "is a file, not a folder" if path.exists() else "there is no such folder"
                raise UsageError(says, where=Location(str(path)), hint="name folders that hold traces")
        return cls(tuple(dict.fromkeys(path.resolve() for path in given)))

    def readable(self, given: str) -> Path:
        """Return the place of a file or folder that is there, links followed, with all that is read along with it.

        Raise UsageError for a path that leads out of the folders, InputError for one that is not there.
        """
        path = self.inside(given)
        if not path.exists():
            raise InputError(
                "there is no such file", where=Location(shown_argument(given)), hint="`traces` lists those there are"
            )
        self._check_links(path, given)
        return path

    def inside(self, given: str) -> Path:
        """Return the place that a path leads to, there or not. Raise UsageError where that is not below a folder.

        What is not absolute is looked for in each folder, in order.
        """
        places = [place for place in self._places(given) if self._holds(place)]
        if not places:
            roots = ", ".join(line(str(root), 100) for root in self.roots)
            says = f"{shown_argument(given)} is not below a folder that this server reads"
            raise UsageError(says, hint=f"it reads {roots}; `tracemine mcp FOLDER...` names others")
        return next((place for place in places if place.exists()), places[0])

    def shown(self, path: Path) -> str:
        """Return a place as answers name it: as short as `inside` takes it."""
        if len(self.roots) == 1 and path != self.roots[0]:
            return str(path.relative_to(self.roots[0]))
        return str(path)

    def _places(self, given: str) -> Iterator[Path]:
        try:
            for root in self.roots:
                yield Path(os.path.realpath(root / given))
        except (OSError, ValueError):  # of a name with a zero byte
            return

    def _holds(self, place: Path) -> bool:
        return any(place.is_relative_to(root) for root in self.roots)

    def _check_links(self, path: Path, given: str) -> None:
        """Raise UsageError where a link leads out, in a folder that is read, or next to a file that is read.

        An export of Nsight Systems is several files, and SQLite reads a journal next to its database.
        """
        for entry in self._entries(path):
            if entry.is_symlink() and not self._holds(Path(os.path.realpath(entry))):
                says = f"{shown_argument(given)}: {line(entry.name, 80)} is a link to what this server does not read"
                raise UsageError(says, hint="put the file itself there")

    def _entries(self, path: Path) -> Iterable[Path]:
        if path.is_dir():
            return _below(path)
        beside = path.parent.iterdir()
        if path.name.endswith(_JSON):
            return (entry for entry in beside if entry.name.startswith(path.name))
        return beside


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the server may do besides reading."""

    write: bool = False  # below its folders
    run: bool = False  # kernels that it generates

    def check_run(self) -> None:
        """Raise UsageError where generated kernels may not be run."""
        if not self.run:
            says = "verify: runs generated kernels, and this server was started to read only"
            raise UsageError(says, hint="ask the user to start it with `tracemine mcp --allow-run`")

    def folder(self, output: str | None, folders: Folders) -> Path | None:
        """Return the folder that files are written into, made where it is not there; None: none was named.

        Raise UsageError where nothing may be written, and for a folder that is not served.
        """
        if output is None:
            return None
        if not self.write:
            says = "output: this server writes no files"
            raise UsageError(says, hint="leave it out, or ask the user to start it with `tracemine mcp --allow-write`")
        folder = folders.inside(output)
        with writing(folder):
            make_folder(folder)
        return folder


def shown_argument(given: str) -> str:
    """Return a path as errors repeat it: it may be a stranger's."""
    return f"{line(given, 120)!a}"


def _below(folder: Path) -> Iterator[Path]:
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            count += 1
            if count > _MOST_ENTRIES:
                where = Location(line(str(folder), 200))
                raise UsageError("holds too many files for one trace", where=where, hint="name a file in it")
            yield Path(parent, name)
