"""The files that JAX and other users of XLA write: how each begins. What reads one is imported when it is read."""

from __future__ import annotations

from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracemine.collector import paused
from tracemine.errors import InputError, Location
from tracemine.formats.format import Format, Progress
from tracemine.formats.json_text import members
from tracemine.formats.sniff import KINETO_KEYS
from tracemine.formats.source import FileSource
from tracemine.patterns import deferred
from tracemine.timeline import Timeline

if TYPE_CHECKING:
    from tracemine.formats.xla.recording import Recording

_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# XSpace { planes = 1 { id = 1, name = 2 } }: what the plane is called stands in front of what is in it.
_XPLANE = deferred(
    rb"(?s)\A\x0a(?!\xef\xbf\xbd)"
    + _VARINT
    + rb"(?:\x08"
    + _VARINT
    + rb")?\x12.(?:/host:|/device:|/custom:|/virtualdevice:|Task Env|#Chip)"
)
_PROCESS = deferred(rb'"name"\s*:\s*"/(?:host|device):\w')
_TPU = deferred(rb'"name"\s*:\s*"/device:TPU')
_BLOCK_BYTES = 1 << 20
_JSON, _XPLANES = (".trace.json.gz", ".trace.json"), (".xplane.pb", ".xplane.pb.gz")


def is_xplane(head: bytes) -> bool:
    """Return whether a file that begins so is an XSpace.

    >>> is_xplane(b"\\x0a\\x10\\x12\\x09/host:CPU"), is_xplane(b"{}")
    (True, False)
    """
    return _XPLANE.match(head) is not None


def is_chrome(head: bytes) -> bool:
    """Return whether a file that begins so is the JSON that JAX writes of an XSpace.

    >>> is_chrome(b'{"traceEvents":[{"ph":"M","args":{"name":"/host:CPU"}}]}'), is_chrome(b'{"traceEvents":[]}')
    (True, False)
    """
    text = head.lstrip()
    if text[:1] != b"{" or _PROCESS.search(text) is None or _TPU.search(text) is not None:
        return False
    return not KINETO_KEYS & {key for key, _, _ in members(text, 1, len(text), upto="traceEvents")}


def read(source: FileSource, progress: Progress | None = None) -> Timeline:
    """Return the timeline of an `.xplane.pb`, or of the JSON that JAX writes of one; where both lie in one folder,
    of the first.

    Raises InputError where it is damaged, or says of no GPU what it did.
    """
    better = None if is_xplane(source.head) else xplane_of(Path(source.path))
    if better is None:
        return _timeline(source, progress)
    with FileSource(better) as other:
        timeline = _timeline(other, progress)
    report = timeline.meta.ingest
    says = f"{better.name} was read, which lies in the folder of {Path(source.path).name} and says more."
    return replace(timeline, meta=replace(timeline.meta, ingest=replace(report, warnings=(says, *report.warnings))))


def xplane_of(path: Path) -> Path | None:
    """Return the `.xplane.pb` of the run whose JSON a path names, if it is there.

    >>> xplane_of(Path("no/such/host.trace.json.gz")) is None
    True
    """
    for suffix in _JSON:
        if path.name.endswith(suffix):
            names = (path.name.removesuffix(suffix) + other for other in _XPLANES)
            return next((found for name in names if (found := path.with_name(name)).is_file()), None)
    return None


def profiles_in(folder: Path) -> list[Path]:
    """Return the profiles of XLA that lie in a folder, or in its `plugins/profile/RUN`, where JAX writes one a host.

    >>> profiles_in(Path("no/such/folder"))
    []
    """
    found = [
        path
        for suffix in _XPLANES
        for pattern in (f"*{suffix}", f"plugins/profile/*/*{suffix}")
        for path in folder.glob(pattern)
    ]
    return sorted(path for path in found if path.is_file())


def _timeline(source: FileSource, progress: Progress | None) -> Timeline:
    from tracemine.formats.xla.assemble import assemble

    try:
        with paused():  # an object an instruction
            return assemble(_recording(source, progress), Path(source.path).name)
    except InputError as error:
        raise InputError(error.message, where=Location(source.path), hint=error.hint) from error


def _recording(source: FileSource, progress: Progress | None) -> Recording:
    """Return what a file recorded, which is all that is kept of it."""
    if is_xplane(source.head):
        from tracemine.formats.xla.xplane import read_space

        recording = read_space(_content(source, progress))
        return replace(recording, truncated=recording.truncated or source.truncated)
    from tracemine.formats.xla.chrome import recording_of

    return recording_of(_content(source, progress), source.truncated)


def _content(source: FileSource, progress: Progress | None) -> memoryview:
    """Return all that is in a file, inflated, in memory that goes back to the system once nothing looks at it."""
    room, count = mmap(-1, source.size + _BLOCK_BYTES), 0
    while True:
        with memoryview(room) as view:
            read = source.readinto(view[count : count + _BLOCK_BYTES])
        if not read:
            return memoryview(room)[:count]
        count += read
        if progress is not None:
            progress(source.position, source.size)
        if count == len(room):
            larger = mmap(-1, 2 * count)
            larger[:count] = room
            room = larger


FORMAT = Format("xla", lambda head: is_xplane(head) or is_chrome(head), read)
