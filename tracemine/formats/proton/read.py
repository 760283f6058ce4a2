"""Which of Proton's files one is. What reads one is imported when it is read."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tracemine.errors import InputError, Location
from tracemine.formats import proton
from tracemine.formats.foreign import KINETO_KEYS
from tracemine.formats.format import Format, Progress
from tracemine.formats.json_text import members
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline

_TREE = re.compile(rb'\s*\[\s*\{\s*(?=(?s:.)*?"frame"\s*:\s*\{)"(?:children|frame|metrics)"\s*:')
_TRACE = re.compile(rb'"name"\s*:\s*"(?:CPU Thread|GPU Stream|Graph: Stream) \d+"|"call_stack"\s*:\s*\[')
_INSIDE = re.compile(rb'"pid"\s*:\s*"KERNEL Core')
_DAMAGED = "is a damaged or cut off profile of Triton's Proton"
_AGAIN = "copy it again, or record it again: Proton writes the file when proton.finalize() is called"


def recognises(head: bytes) -> bool:
    """Return whether a file that begins so is one of them, and not of the inside of a kernel."""
    return _TREE.match(head) is not None or _is_trace(head)


def _is_trace(head: bytes) -> bool:
    text = head.lstrip()
    if text[:1] != b"{" or _TRACE.search(text) is None or _INSIDE.search(text) is not None:
        return False
    keys = {key for key, _, _ in members(text, 1, len(text), upto="traceEvents")}
    return "traceEvents" in keys and not keys & KINETO_KEYS


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a trace or a tree. Raises InputError where it is damaged."""
    tree = _TREE.match(source.head) is not None
    content = _content(source, progress)
    damaged = InputError(_DAMAGED, where=Location(source.path), hint=_AGAIN)
    if source.truncated:
        raise damaged
    try:
        return (proton.read_tree if tree else proton.read_trace)(content, source.path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise damaged from None


def _content(source: FileSource, progress: Progress | None) -> Any:
    content, block = bytearray(), memoryview(bytearray(1 << 20))
    while count := source.readinto(block):
        content += block[:count]
        if progress is not None:
            progress(source.position, source.size)
    return content


FORMAT = Format("proton", recognises, read)
