"""Which traces paths name: on this machine, or in an object store that pyarrow or fsspec reads."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from pyarrow import fs

from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import opened, path_text
from tracemine.fleet.places import filesystem, scheme_of, shown, without_secrets
from tracemine.formats import ABOUT_NAME, EXECUTION_TRACE_NAMES, LIGHT_NAMES, TRACE_NAMES, format_of, recording_in
from tracemine.formats.discover import traces
from tracemine.formats.source import FileSource
from tracemine.patterns import deferred
from tracemine.units import count_text

_SUFFIXES = (".json", ".json.gz", ".sqlite")
_MAGIC = deferred(r"[*\[]")
_RECORDING = frozenset((*TRACE_NAMES, *EXECUTION_TRACE_NAMES, ABOUT_NAME, *LIGHT_NAMES))
_PLAIN_NAME = deferred(r"[A-Za-z0-9][\w.-]{0,199}", re.ASCII)
_CHUNK_BYTES = 1 << 22
_SHOWN = 3  # names in a message
_MOST_PIECES = 100  # of a part of a pattern


class TraceSource(msgspec.Struct, frozen=True, kw_only=True):
    """One trace: a file, or the files of a folder that are one recording."""

    uri: str
    names: tuple[str, ...]  # of files, below the folder that `uri` names; none: `uri` is the file
    size_bytes: int
    modified_ns: int | None  # the newest file; null: not known

    @property
    def name(self) -> str:
        """Return where it lies, as it is stored and printed: text, which a file's name need not be."""
        return path_text(shown(self.uri))


def sources(given: str, note: Callable[[str], None] | None = None) -> Iterator[TraceSource]:
    """Yield the traces that one argument names, as `tracemine scan` takes them, or below a URI.

    Raises UsageError or InputError where there is none.
    """
    if scheme_of(given) is None:
        yield from map(_local, _here(given, note))
        return
    yield from _remote(given)


def _here(given: str, note: Callable[[str], None] | None) -> Sequence[Path]:
    """Return the traces of this machine, and files that should be some and are damaged: scanning them says so.

    JSON that holds no events is something else, and is left out, and passed to `note`.
    """
    folder = Path(given)
    try:
        found, none = list(traces(given)), None
    except InputError as error:
        found, none = [], error
    if found == [folder] and not folder.exists():
        hint = "name a file, a folder, a pattern in quotes, or a URI"
        raise InputError("there is no such file or folder", where=Location(given), hint=hint)
    damaged, others = _others(folder, found) if folder.is_dir() and folder not in found else ([], [])
    if none is not None and not damaged:
        raise none
    if others and note is not None:
        names = ", ".join(path.name for path in others[:_SHOWN]) + ", …" * (len(others) > _SHOWN)
        note(f"{given}: left out, no traces: {names} ({count_text(len(others), 'file')})")
    return [*found, *damaged]


def _others(folder: Path, found: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return files of a folder that are named as traces are and are damaged, and those that are something else."""
    known = set(found)
    damaged, others = list[Path](), list[Path]()
    for path in sorted(folder.rglob("*.json*")):
        if path.name.endswith(_SUFFIXES) and path.is_file() and path not in known and path.parent not in known:
            (others if _is_json(path) else damaged).append(path)
    return damaged, others


def _is_json(path: Path) -> bool:
    try:
        with FileSource(path) as source:
            return bool(source.head.strip()) and format_of(source) is not None
    except TracemineError:
        return False


def _local(path: Path) -> TraceSource:
    """Return a source of this machine. A file that is not there is one too: scanning it says so."""
    try:
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        if path.is_dir() and recording_in(path) is not None:
            files = [file for file in files if file.parent == path and file.name in _RECORDING]
        stats = [file.stat() for file in files]
    except OSError:
        return TraceSource(uri=str(path), names=(), size_bytes=0, modified_ns=None)
    names = tuple(file.relative_to(path).as_posix() for file in files) if path.is_dir() else ()
    modified = max((one.st_mtime_ns for one in stats), default=None)
    return TraceSource(uri=str(path), names=names, size_bytes=sum(one.st_size for one in stats), modified_ns=modified)


def _remote(given: str) -> Iterator[TraceSource]:
    """Yield the traces below a URI, or that a pattern fits. What follows `?` is the store's: its endpoint, say."""
    address, mark, query = given.partition("?")
    magic = _MAGIC.search(address)
    base = address if magic is None else address[: magic.start()].rpartition("/")[0]
    store, root = filesystem(f"{base}{mark}{query}")
    named = {one.path: one for one in _files(store, root, given) if one.type == fs.FileType.File}
    start = base.removesuffix("/").removesuffix(root.removesuffix("/"))  # what a URI has before a path of the store
    if magic is not None:
        wanted = address.removeprefix(start)
        named = {path: one for path, one in named.items() if fnmatch.fnmatchcase(path, wanted)}
    found = list(_grouped(named))
    if not found:
        raise InputError(
            "no trace lies there", where=Location(shown(given)), hint=f"traces end in {', '.join(_SUFFIXES)}"
        )
    for path, members in found:
        modified = [member.mtime_ns for member in members if member.mtime_ns is not None]
        yield TraceSource(
            uri=f"{start}{path}{mark}{query}",
            names=tuple(member.base_name for member in members) if members[0].path != path else (),
            size_bytes=sum(member.size or 0 for member in members),
            modified_ns=max(modified, default=None),
        )


def _files(store: fs.FileSystem, root: str, given: str) -> Sequence[fs.FileInfo]:
    """Return the file at a place, or what lies below it. Raise InputError where it cannot be listed."""
    try:
        info = store.get_file_info(root)
        if info.type == fs.FileType.File:
            return [info]
        return list(store.get_file_info(fs.FileSelector(root, recursive=True)))
    except FileNotFoundError:
        return []
    except OSError as error:
        says = f"cannot be listed: {without_secrets(str(error), given)}"
        raise InputError(says, where=Location(shown(given))) from None


def _grouped(named: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield each trace's path and files: the folder of a recording, or one file."""
    folders: dict[str, set[str]] = {}
    for path in named:
        folders.setdefault(posixpath.dirname(path), set()).add(posixpath.basename(path))
    recordings = {
        folder
        for folder, names in folders.items()
        if names & set(TRACE_NAMES) and names & {*EXECUTION_TRACE_NAMES, ABOUT_NAME}
    }
    for folder in sorted(recordings):
        yield folder, [named[f"{folder}/{name}"] for name in sorted(folders[folder] & _RECORDING)]
    for path in sorted(named):
        if posixpath.dirname(path) not in recordings and path.endswith(_SUFFIXES):
            yield path, [named[path]]


@contextlib.contextmanager
def fetched(source: TraceSource) -> Iterator[Path]:
    """Yield a path of this machine that a source can be read from: its own, or a copy that is gone at the end.

    Raises InputError where it cannot be fetched. A copy keeps a plain name, which may say the process's rank; another
    gets one of ours.
    """
    if scheme_of(source.uri) is None:
        yield Path(source.uri)
        return
    store, path = filesystem(source.uri)
    with tempfile.TemporaryDirectory(prefix="tracemine-") as folder:
        own = PurePosixPath(path).name
        plain = own if _PLAIN_NAME.fullmatch(own) else None
        suffix = next((one for one in sorted(_SUFFIXES, key=len, reverse=True) if own.endswith(one)), "")
        pairs = [(f"{path}/{name}", name) for name in source.names] or [(path, plain or f"trace{suffix}")]
        for origin, name in pairs:
            _copy(store, origin, Path(folder) / name, source.uri)
        yield Path(folder) if source.names else Path(folder) / pairs[0][1]


def _copy(store: fs.FileSystem, origin: str, target: Path, uri: str) -> None:
    try:
        with store.open_input_stream(origin, compression=None) as stream, target.open("wb") as file:
            shutil.copyfileobj(stream, file, _CHUNK_BYTES)
    except OSError as error:
        says = f"cannot be fetched: {without_secrets(str(error), uri)}"
        raise Unreachable(says, where=Location(shown(uri))) from None


class Unreachable(InputError):
    """A file could not be fetched: another attempt may."""


def content_sha256(path: Path, names: Sequence[str]) -> str:
    """Return the digest of a trace's files: their names and contents. Raises InputError where one cannot be read."""
    digest = hashlib.sha256()
    for name in names or ("",):
        with opened(path / name if name else path) as file:
            own = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{name}\0{own}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class Labels(msgspec.Struct, frozen=True):
    """What a trace's path says of it."""

    job: str | None = None
    model: str | None = None
    day: str | None = None  # as 2026-11-23


_NAMES = deferred(r"\{(\w+)\}")
_DAY = deferred(r"(\d{4})[-_]?(\d\d)[-_]?(\d\d)")


def labeller(pattern: str | None) -> Callable[[TraceSource], Labels]:
    """Return what reads a source's labels off the end of its path. Raises UsageError for a pattern that is none.

    pattern: parts of a path, in which {job}, {model} and {day} match what is between, and * for anything; None:
    the job is the folder that a trace lies in. The day is else that of the file's last change (UTC).

    >>> read = labeller("{job}/{day}/*")
    >>> read(TraceSource(uri="s3://b/llama-7b/2026-11-23/rank0.json.gz", names=(), size_bytes=1, modified_ns=None))
    Labels(job='llama-7b', model=None, day='2026-11-23')
    """
    names = [] if pattern is None else _NAMES.findall(pattern)
    unknown = [name for name in names if name not in Labels.__struct_fields__]
    if len(names) > len(set(names)) and not unknown:
        raise UsageError(f"--labels: {pattern} names one of {{job}}, {{model}}, {{day}} twice")
    if unknown or pattern == "":
        what = f"{{{unknown[0]}}} is none of " if unknown else "is empty; give one with "
        raise UsageError(f"--labels: {what}{{job}}, {{model}}, {{day}}", hint="such as '{job}/{day}/*'")
    parts = [] if pattern is None else [_pieces(part) for part in pattern.split("/")]

    def read(source: TraceSource) -> Labels:
        path = [part for part in re.split(r"[/\\]", source.name) if part]
        known: dict[str, str] = {} if parts else {"job": path[-2] if len(path) > 1 else path[-1]}
        if parts and len(path) >= len(parts):
            matches = [_fitted(part, text) for part, text in zip(parts, path[-len(parts) :], strict=True)]
            if None not in matches:
                known = {name: text for match in matches for name, text in (match or {}).items()}
        return Labels(known.get("job"), known.get("model"), _day(known.get("day"), source.modified_ns))

    return read


def _pieces(part: str) -> list[str]:
    """Return one part of a pattern in pieces: names in braces, asterisks, and what stands between them."""
    found = [piece for piece in re.split(r"(\{\w+\}|\*+)", part) if piece]
    if len(found) > _MOST_PIECES:
        raise UsageError(f"--labels: a part of the pattern has more than {_MOST_PIECES} pieces")
    return ["*" if piece.startswith("*") else piece for piece in found]


def _fitted(pieces: Sequence[str], text: str) -> dict[str, str] | None:
    """Return what a text has where a pattern has names, each as short as can be; None: it does not fit.

    What failed once is not tried again, so that no pattern takes long.

    >>> _fitted(["{job}", "-", "{model}", "*"], "llama-7b"), _fitted(["*", "a", "*", "b"], "a" * 99)
    ({'job': 'llama', 'model': '7'}, None)
    """
    failed = set[tuple[int, int]]()

    def fit(number: int, start: int) -> dict[str, str] | None:
        if number == len(pieces):
            return {} if start == len(text) else None
        if (number, start) in failed:
            return None
        piece = pieces[number]
        ends: Sequence[int] = [start + len(piece)] if text.startswith(piece, start) else []
        if piece == "*":
            ends = range(len(text), start - 1, -1)
        elif _NAMES.fullmatch(piece):
            ends = range(start + 1, len(text) + 1)
        for end in ends:
            rest = fit(number + 1, end)
            if rest is not None:
                return {piece[1:-1]: text[start:end], **rest} if _NAMES.fullmatch(piece) else rest
        failed.add((number, start))
        return None

    return fit(0, 0)


def _day(text: str | None, modified_ns: int | None) -> str | None:
    found = None if text is None else _DAY.search(text)
    if found is not None:
        with contextlib.suppress(ValueError):
            return date(*map(int, found.groups())).isoformat()
    if modified_ns is None:
        return None
    return datetime.fromtimestamp(modified_ns // 1_000_000_000, UTC).date().isoformat()


def listed(given: Sequence[str], note: Callable[[str], None] | None = None) -> Iterator[TraceSource | TracemineError]:
    """Yield all sources of several arguments, each once; what is wrong with an argument in its place."""
    seen: set[str] = set()
    for one in given:
        try:
            for source in sources(one, note):
                if source.uri not in seen:
                    seen.add(source.uri)
                    yield source
        except TracemineError as error:
            yield error
