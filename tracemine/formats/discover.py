"""Which traces a text names: files, timelines, folders of them, patterns."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.formats import format_of, is_nsys_folder, recording_in
from tracemine.formats.source import FileSource
from tracemine.formats.tensorrt.files import profile_of
from tracemine.formats.xla.read import xplane_of
from tracemine.timeline import Timeline
from tracemine.units import count_text

_REMOTE = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_SUFFIXES = (".json", ".json.gz", ".hatchet", ".chrome_trace")  # the last two: of Triton's Proton
# In the first 64 kB of a trace; the second where process groups fill them.
_KEYS = (b'"traceEvents"', b'"schemaVersion"')
_SHOWN = 3  # names in a message


def traces(given: str, note: Callable[[str], None] | None = None) -> Iterator[Path]:
    """Yield the traces that one argument names.

    A file, a timeline, a recording (a folder that holds a trace and its execution trace) or an nsys export is itself,
    of what trtexec exported of one engine its profile, a folder all of these below it, a pattern (`runs/*.json.gz`,
    `**` for any depth) what it fits.

    Files of a folder that are no traces are left out, and passed to `note`. Raises UsageError or InputError if none is
    there.
    """
    remote = _REMOTE.match(given)
    if remote:
        raise UsageError(
            f"{given}: {remote[1]}:// is not supported yet", hint="copy the trace here and pass the file's path"
        )
    path = Path(given)
    if path.is_dir() and not (Timeline.lies_in(path) or is_nsys_folder(path) or recording_in(path) is not None):
        yield from _below(path, note)
    elif glob.has_magic(given) and not path.exists():
        yield from _fitting(given)
    else:
        # What it is, and whether it is there, is said when it is opened.
        yield (profile_of(path) if path.is_file() else None) or path


def _fitting(pattern: str) -> Sequence[Path]:
    found = sorted(Path(name) for name in glob.glob(pattern, recursive=True))  # noqa: PTH207 - the pattern may be absolute
    if not found:
        raise InputError("no file matches this pattern", where=Location(pattern))
    return found


def _below(folder: Path, note: Callable[[str], None] | None) -> Sequence[Path]:
    timelines = {path.parent for path in folder.rglob("meta.json") if Timeline.lies_in(path.parent)}
    files = _named_as_traces(folder, timelines)
    recordings = {path.parent for path in files if recording_in(path.parent) is not None}
    profiles = [*_files(folder, "*.xplane.pb", timelines), *_files(folder, "*.xplane.pb.gz", timelines)]
    files = [path for path in files if path.parent not in recordings]
    files, engines = _without_engines(files)
    traces = list(filter(_holds_events, files))
    others = [path.name for path in files if path not in set(traces)]
    tables = {path.parent for kind in ("*.parquet", "*.arrow") for path in _files(folder, kind, timelines)}
    databases = [*_files(folder, "*.sqlite", ()), *filter(_is_rocpd, _files(folder, "*.db", ()))]
    exports = [*databases, *filter(is_nsys_folder, tables)]
    found = sorted({*timelines, *recordings, *exports, *profiles, *traces, *engines})
    if not found:
        raise InputError(
            "no trace lies in this folder or below it",
            where=Location(str(folder)),
            hint="a trace is a .json or .json.gz that torch.profiler's export_chrome_trace wrote, an .xplane.pb that "
            "JAX wrote, or an export of nsys",
        )
    if others and note is not None:
        names = ", ".join(others[:_SHOWN]) + (", …" if len(others) > _SHOWN else "")
        note(f"{folder}: left out, no traces: {names} ({count_text(len(others), 'file')})")
    return found


def _without_engines(files: Sequence[Path]) -> tuple[list[Path], set[Path]]:
    """Return the files that are no exports of an engine, and of each engine the profile."""
    wholes = {path: profile_of(path) for path in files}
    return [path for path in files if wholes[path] is None], {whole for whole in wholes.values() if whole is not None}


def _named_as_traces(folder: Path, without: Collection[Path]) -> list[Path]:
    """List what may be traces by its name; of a run of JAX, where its .xplane.pb is there, that is read."""
    named = (path for path in _files(folder, "*", without) if path.name.endswith(_SUFFIXES))
    return [path for path in named if xplane_of(path) is None]


def _files(folder: Path, kind: str, without: Collection[Path]) -> list[Path]:
    """List the files of a kind in the folder and below, sorted, but for those in some folders."""
    return sorted(path for path in folder.rglob(kind) if path.is_file() and path.parent not in without)


def _is_rocpd(path: Path) -> bool:
    """Return whether a database is one of rocprofv3: any program may call its own so."""
    try:
        with FileSource(path) as source:
            return format_of(source).name == "rocpd"
    except TracemineError:
        return False


def _holds_events(path: Path) -> bool:
    """Return whether a file begins as a trace does. One that cannot be read counts as a trace: opening it says why."""
    try:
        source = FileSource(path)
    except TracemineError:
        return True
    with source:
        try:
            # A list of objects, none of which is an event, is no trace.
            listed = format_of(source).name != "kineto" or b'"ph"' in source.head or b"}" not in source.head
        except TracemineError:
            return False
        head = source.head.lstrip()
    return (head.startswith(b"[") and listed) or any(key in head for key in _KEYS)
