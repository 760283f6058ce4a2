"""The exports of Nsight Systems that are one file: how each begins. What reads one is imported when it is read."""

from __future__ import annotations

import re

from tracemine.formats import nsys
from tracemine.formats.format import Format, Progress
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline

_STATS = re.compile(
    rb"(?m)^(?:Start \(\w+\),Duration \(\w+\),CorrId,|API Start \(\w+\),|Name,Projected Start \(\w+\),)"
)
_JSON = re.compile(rb'\{"Type":\d{1,9},"\w{1,40}Event":\{|\{"data":\["|\{"type":"String","id":')
_EVENT_AFTER_TEXTS = re.compile(rb'\n\{"Type":\d{1,9},"\w{1,40}Event":\{')


def is_database(head: bytes) -> bool:
    """Return whether a file that begins so is an SQLite database; whether of nsys, only its tables tell.

    >>> is_database(b"SQLite format 3\\0"), is_database(b"{}")
    (True, False)
    """
    return head.startswith(b"SQLite format 3\0")


def is_stats(head: bytes) -> bool:
    """Return whether a file that begins so is one of the three reports of `nsys stats`.

    >>> is_stats(b"Start (ns),Duration (ns),CorrId,GrdX"), is_stats(b"Time (%),Total Time (ns),Instances")
    (True, False)
    """
    return _STATS.search(head) is not None


def is_json_lines(head: bytes) -> bool:
    """Return whether a file that begins so is an export of a line of JSON an event.

    >>> is_json_lines(b'{"Type":59,"NvtxEvent":{"Type":59'), is_json_lines(b'{"schemaVersion": 1}')
    (True, False)
    """
    if _JSON.match(head) is None:
        return False
    # A list of texts could be anybody's: an event follows, or the list is longer than what was looked at.
    return not head.startswith(b'{"data"') or b"\n" not in head or _EVENT_AFTER_TEXTS.search(head) is not None


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is one of these exports."""
    return is_database(head) or is_stats(head) or is_json_lines(head)


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of an export. Raises InputError where it is damaged, or a database of something else."""
    if is_database(source.head):
        return nsys.read_database(source, progress)
    if is_stats(source.head):
        return nsys.read_stats(source, progress)
    return nsys.read_json_lines(source, progress)


FORMAT = Format("nsys", recognises, read)
