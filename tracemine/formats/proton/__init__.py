"""Triton's Proton: trees of sums (`.hatchet`), and traces (`.chrome_trace`). What reads one is imported then.

contexts.py  kernels in their call stacks: scopes as modules, Python's lines as stacks, and Proton's own work
trace.py     kernels with their times, their launches, and the scopes around these
tree.py      sums of kernels by scope, without times
"""

from __future__ import annotations

import re

import msgspec

from tracemine.errors import InputError, Location
from tracemine.formats.format import Format, Progress
from tracemine.formats.json_text import members
from tracemine.formats.sniff import KINETO_KEYS
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
    from tracemine.formats.proton.trace import read_trace
    from tracemine.formats.proton.tree import read_tree

    tree = _TREE.match(source.head) is not None
    content = source.whole(progress)
    damaged = InputError(_DAMAGED, where=Location(source.path), hint=_AGAIN)
    if source.truncated:
        raise damaged
    try:
        return (read_tree if tree else read_trace)(content, source.path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise damaged from None


FORMAT = Format("proton", recognises, read)
