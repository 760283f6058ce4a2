"""The `.xplane.pb` that JAX and other users of XLA write: how one begins. What reads it is imported when it is read."""

from __future__ import annotations

import re
from pathlib import Path

from tracemine.errors import InputError, Location
from tracemine.formats.format import Format, Progress
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline

_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# XSpace { planes = 1 { id = 1, name = 2 } }: what the plane is called stands in front of what is in it.
_XPLANE = re.compile(
    rb"(?s)\A\x0a"
    + _VARINT
    + rb"(?:\x08"
    + _VARINT
    + rb")?\x12.(?:/host:|/device:|/custom:|/virtualdevice:|Task Environment|#Chip)"
)
_BLOCK_BYTES = 1 << 20


def is_xplane(head: bytes) -> bool:
    """Return whether a file that begins so is an XSpace.

    >>> is_xplane(b"\\x0a\\x10\\x12\\x09/host:CPU"), is_xplane(b"{}")
    (True, False)
    """
    return _XPLANE.match(head) is not None


def read(source: FileSource, progress: Progress | None = None) -> Timeline:
    """Return the timeline of an `.xplane.pb`.

    Raises InputError where it is damaged, or holds nothing that a GPU did.
    """
    from tracemine.formats.xla.assemble import assemble  # noqa: PLC0415 - what other files need not load
    from tracemine.formats.xla.space import open_space  # noqa: PLC0415
    from tracemine.formats.xla.xplane import recording_of  # noqa: PLC0415

    data = memoryview(_content(source, progress))
    try:
        space = open_space(data)
        if source.truncated and not space.truncated:
            space = type(space)(space.data, space.planes, truncated=True)
        refuse(space)
        return assemble(recording_of(space), Path(source.path).name)
    except InputError as error:
        raise InputError(error.message, where=Location(source.path), hint=error.hint) from error


def _content(source: FileSource, progress: Progress | None) -> bytearray:
    """Return all that is in a file, inflated."""
    content, room = bytearray(), bytearray(_BLOCK_BYTES)
    view = memoryview(room)
    while count := source.readinto(view):
        content += view[:count]
        if progress is not None:
            progress(source.position, source.size)
    return content


def refuse(space: object) -> None:
    """Raise InputError where nothing that a GPU did is in a file."""


FORMAT = Format("xla", is_xplane, read)
