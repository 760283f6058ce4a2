"""Baselines by name: `.tracemine/NAME.json`, one for each program and GPU whose recordings are comparable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tracemine.comparison.baseline import Baseline, read_baseline
from tracemine.errors import TracemineError

FOLDER = ".tracemine"
_SUFFIX = ".json"


def file_of(name: str, folder: Path | None = None) -> Path:
    """Return where a baseline of this name is kept.

    >>> file_of("decoder").as_posix()
    '.tracemine/decoder.json'
    """
    return (folder or Path()) / FOLDER / f"{name}{_SUFFIX}"


def file_meant(given: Path) -> Path:
    """Return the file that a path names, or a name that a baseline is kept by; a file goes before a name."""
    kept = file_of(given.name, given.parent)
    return kept if kept.is_file() and not given.is_file() else given


def kept_in(folder: Path | None = None) -> Iterator[tuple[Path, Baseline | TracemineError]]:
    """Yield each baseline that is kept by name, by name; what is wrong with one in its place."""
    place = (folder or Path()) / FOLDER
    for file in sorted(place.glob(f"*{_SUFFIX}")) if place.is_dir() else ():
        try:
            yield file, read_baseline(file)
        except TracemineError as error:
            yield file, error
