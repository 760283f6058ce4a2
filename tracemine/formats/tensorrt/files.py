"""Which of trtexec's exports a file is, by how it begins, and the others of the same engine in its folder."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from os.path import commonprefix
from pathlib import Path
from typing import Any

import msgspec

from tracemine.errors import InputError, Location, TracemineError
from tracemine.formats.source import FileSource
from tracemine.patterns import deferred

_MOST_FILES = 400  # of a folder that are looked at
_LARGEST_BYTES = 1 << 28  # of one file; real ones have some hundred kilobytes


class Export(Enum):
    """A file that trtexec writes of an engine; the last is what NVIDIA's Engine Explorer notes of its log and GPU."""

    LAYERS = rb'\A\{\s*"(?:Layers|Bindings)"\s*:\s*\['
    PROFILE = rb'\A\[\s*\{\s*"count"\s*:\s*\d+\s*\}|\A\[\s*\{[^{}]*"averageMs"\s*:'
    TIMES = rb'\A\[\s*\{[^{}]*"startEnqMs"\s*:'
    SUMMARY = rb'\A\{\s*"performance_summary"\s*:|\A\[\s*\{\s*"Name"\s*:\s*"[^"]*"\s*,\s*"ComputeCapability"\s*:'


_BEGINS = {kind: deferred(kind.value) for kind in Export}


def export_of(head: bytes) -> Export | None:
    """Return what a file that begins so is.

    >>> export_of(b'[ { "count" : 10 }').name, export_of(b'{"Layers": ["a"]}').name, export_of(b"{}")
    ('PROFILE', 'LAYERS', None)
    """
    text = head.lstrip()
    return next((kind for kind, begins in _BEGINS.items() if begins.match(text)), None)


def exports_beside(path: Path, part: Path | None = None) -> dict[Export | None, list[Path]]:
    """Return the exports that lie in a file's folder, itself among them, by kind: those named most like it first.

    part: a file or a folder elsewhere, whose exports come before these. Raises InputError where that file is none.
    """
    exports: dict[Export | None, list[Path]] = defaultdict(list)
    given = [] if part is None else _files_in(part, path.name) if part.is_dir() else [part]
    for file in (*given, *_files_in(path.parent, path.name)):
        exports[_kind_of(file, named=file is part)].append(file)
    return exports


def _files_in(folder: Path, name: str) -> list[Path]:
    """Return the files of a folder that may be exports, those named most like another one first."""
    files = [file for file in folder.iterdir() if file.name.endswith((".json", ".json.gz"))]
    files.sort(key=lambda file: (-len(commonprefix((file.name, name))), file))  # noqa: RUF071 - no parts of a path
    return files[:_MOST_FILES]


def profile_of(path: Path) -> Path | None:
    """Return the profile of the engine that a file is an export of, or whose exports lie in a folder.

    None: it is no export, none lies next to it, or a folder holds those of several engines.

    >>> profile_of(Path("fixtures/kineto/chain.json.gz")) is None
    True
    """
    is_folder = path.is_dir()
    if not is_folder and _kind_of(path) is None:
        return None
    exports = exports_beside(path / "profile.json" if is_folder else path)
    profiles = exports[Export.PROFILE]
    alone = len(profiles) == 1 and exports[Export.LAYERS]
    return profiles[0] if profiles and (alone or not is_folder) else None


def decoded(path: Path, kind: Any) -> Any:
    """Return what a JSON file holds, as a type. Raises InputError where it holds another, is cut off, or too large."""
    with FileSource(path) as source:
        text = source.whole(most_bytes=_LARGEST_BYTES, writer="trtexec")
    try:
        return msgspec.json.decode(bytes(text).decode("utf-8", "replace"), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise damaged(path, str(error)) from None


def damaged(path: Path, says: str) -> InputError:
    """Return the error of an export that holds something else than it should."""
    return InputError(f"is damaged: {says}", where=Location(str(path)), hint="export it again with trtexec")


def _kind_of(path: Path, *, named: bool = False) -> Export | None:
    """Return what a file is; of one that was named as an export raises InputError where it is none, or not there."""
    try:
        with FileSource(path) as source:
            kind = export_of(source.head)
    except TracemineError:
        if named:
            raise
        return None
    if named and kind is None:
        what, hint = "is no export of trtexec", "name what --exportLayerInfo wrote"
        raise InputError(what, where=Location(str(path)), hint=hint)
    return kind
