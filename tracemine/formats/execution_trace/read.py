"""From bytes to an `ExecutionTrace`: blocks of nodes are decoded at once, a block that does not decode node by node."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import msgspec

from tracemine.collector import paused
from tracemine.errors import InputError, Location
from tracemine.formats.execution_trace.trace import Collector, ExecutionTrace, FlatNode, NodeLayout, layout_of
from tracemine.formats.format import Progress
from tracemine.formats.json_text import JsonMembers, end_of_value, members
from tracemine.formats.kineto.repair import CUT_OFF, REPAIRS, UNREADABLE, Repairs, mended
from tracemine.formats.source import FileSource

BLOCK_BYTES = 1 << 20
_TAIL_BYTES = 1 << 15  # the last node of a block begins in there, or it is searched for in all of the block
MAX_NODE_BYTES = 32_000_000  # the longest node that is read; real ones stay below 1 MB

_BETWEEN = b" \t\r\n,"  # what may stand between two nodes
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
# What ends a file: the array's end, and behind it members that are no nodes.
_FILE_END = re.compile(rb'\]\s*+(?:,\s*+"[^"]*+"\s*+:\s*+(?:"[^"]*+"|[^"\[\]{},]++)\s*+)*+\}\s*+\Z')
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]++|"', re.DOTALL)
_BEFORE_NO_COMMA = frozenset(b"[{:,")  # after one of these no comma may stand, and none is missing
_AFTER_NO_COMMA = frozenset(b"]},:")  # before one of these none is missing; before a bracket none may stand


def read(source: FileSource, progress: Progress | None = None, block_bytes: int = BLOCK_BYTES) -> ExecutionTrace:
    """Read an execution trace, of schema 1.0.1 to 1.1.x-chakra.

    Nodes that are no valid JSON are repaired where that can be done, and counted; others are dropped and counted.

    Raises InputError if the file is no execution trace, holds no node, or a node is longer or more deeply nested
    than any trace's.
    """
    try:
        with paused():
            return _read(source, progress, block_bytes)
    except RecursionError:
        raise InputError("is nested more deeply than any execution trace", where=Location(source.path)) from None


def _read(source: FileSource, progress: Progress | None, block_bytes: int) -> ExecutionTrace:
    where = Location(source.path)
    header, begin = _header(source)
    if begin is None:
        raise InputError(
            "is no PyTorch execution trace",
            where=where,
            hint="pass the file that torch.profiler.ExecutionTraceObserver wrote",
        )
    blocks = _Blocks(source, progress, block_bytes)
    text = blocks.more(b"")[begin:].lstrip(_BETWEEN)
    layout = layout_of(text)
    if layout is None:
        raise InputError(
            "holds no node, or none in an order of keys that PyTorch writes",
            where=where,
            hint="pass the file as ExecutionTraceObserver wrote it",
        )
    nodes = _Nodes(layout)
    while not blocks.ended:
        last = _last_begin(layout, text)
        nodes.take(text[:last])
        text = text[last:]
        if len(text) > MAX_NODE_BYTES:
            raise InputError(f"holds a node of more than {MAX_NODE_BYTES:,} bytes, as no trace does", where=where)
        text = blocks.more(text)
    last = _last_begin(layout, text)
    nodes.take(text[:last])
    nodes.take_last(text[last:])
    nodes.collected.truncated |= source.truncated
    if not nodes.collected.rows:
        raise InputError("holds no complete node", where=where, hint="record the execution trace again")
    schema, pid = header.values.get("schema"), header.values.get("pid")
    return nodes.collected.trace(schema if type(schema) is str else "", pid if type(pid) is int else None)


def _last_begin(layout: NodeLayout, text: bytes) -> int:
    """Return where the last node of a text begins that begins with a node."""
    for length in (_TAIL_BYTES, len(text)):
        begins = [found.start() for found in layout.begin.finditer(text, max(0, len(text) - length))]
        if begins:
            return begins[-1]
    return 0


def _header(source: FileSource) -> tuple[JsonMembers, int | None]:
    """Return the members before `nodes`, and where in the file its first node may begin; None: there are no nodes."""
    head = source.head
    found, begin = JsonMembers(), None
    start = head.find(b"{") + 1
    for key, value, end in members(head, start, len(head), upto="nodes") if start else ():
        if key == "nodes":
            begin = value + 1 if head[value : value + 1] == b"[" else None
        elif key:
            found.add(key, None if end is None else head[value:end])
    return found, begin


class _Blocks:
    """The file's text, a block at a time."""

    def __init__(self, source: FileSource, progress: Progress | None, block_bytes: int) -> None:
        self.source, self.progress = source, progress
        self.block = bytearray(max(block_bytes, len(source.head)))
        self.ended = False

    def more(self, text: bytes) -> bytes:
        """Return `text` and the next block."""
        filled = 0
        view = memoryview(self.block)
        while filled < len(view) and (count := self.source.readinto(view[filled:])):
            filled += count
        self.ended = filled < len(view)
        if self.progress is not None:
            self.progress(self.source.position, self.source.size)
        return text + bytes(view[:filled])


class _Nodes:
    """Decodes nodes of one layout and collects them."""

    def __init__(self, layout: NodeLayout) -> None:
        self.layout = layout
        self.repairs = _repairs(layout)
        self.collected = Collector()

    def take(self, text: bytes) -> None:
        """Read all nodes of a text that begins with one and ends before another, or is empty."""
        try:
            decoded = self.layout.many.decode(b"[" + text.rstrip(b" \t\r\n").removesuffix(b",") + b"]")
        except _DECODE_ERRORS:
            begins = [found.start() for found in self.layout.begin.finditer(text)]
            for begin, end in itertools.pairwise([*begins, len(text)]):
                separator = text[begin:end][len(text[begin:end].rstrip(_BETWEEN)) :]
                if separator.count(b",") != 1:
                    self.collected.repaired["execution trace: comma repaired"] += 1
                self._take_one(text[begin:end])
            return
        for node in decoded:
            self._add(node)

    def take_last(self, text: bytes) -> None:
        """Read the node that the file ends with, if it is complete."""
        end = end_of_value(text, 0, len(text))
        behind = b"" if end is None else text[end:].lstrip(_BETWEEN)
        if end is not None and behind[:1] in b"]" and self._read(text[:end]):
            self.collected.truncated |= _FILE_END.match(behind) is None
            return
        # Quotes that should have been escaped hide its end.
        ending = _FILE_END.search(text)
        self.collected.truncated |= ending is None
        if ending is not None:
            self._take_one(text[: ending.start()])
        else:
            self.collected.dropped[f"execution trace: {CUT_OFF}"] += 1

    def _take_one(self, text: bytes) -> None:
        if not self._read(text):
            self.collected.dropped[f"execution trace: {UNREADABLE}"] += 1

    def _read(self, text: bytes) -> bool:
        """Return whether a node could be read, as it stands or repaired."""
        piece = text.rstrip(_BETWEEN)
        try:
            node = self.layout.one.decode(piece)
        except _DECODE_ERRORS:
            node = mended(piece, self.layout.one.decode, self.collected.repaired, self.repairs)
        if node is not None:
            self._add(node)
        return node is not None

    def _add(self, node: Any) -> None:
        self.collected.add(node.node() if isinstance(node, FlatNode) else node)


def _escape_name(layout: NodeLayout, text: bytes) -> bytes:
    found = layout.name.match(text)
    if found is None:
        return text
    try:
        msgspec.json.decode(b'"' + found[1] + b'"', type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        name = json.dumps(found[1].decode("utf-8", "replace")).encode()
        return text[: found.start(1) - 1] + name + text[found.end(1) + 1 :]
    return text


def _mend_commas(text: bytes) -> bytes:
    """Put one comma between two members, none elsewhere; strings are left alone.

    Laid out anew, every text would differ: it counts as a repair only where a comma came or went.

    >>> _mend_commas(b'[,[1,, 2] [3,], {"a": "x,,y" "b": 4}]').decode()
    '[[1,2],[3],{"a":"x,,y","b":4}]'
    """
    kept: list[bytes] = []
    previous = b"["
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == b",":
            if previous[0] in _BEFORE_NO_COMMA:
                continue
        elif previous == b"," and token[0] in b"]}":
            kept.pop()
        elif previous[0] not in _BEFORE_NO_COMMA and token[0] not in _AFTER_NO_COMMA:
            kept.append(b",")
        kept.append(token)
        previous = token
    mended = b"".join(kept)
    return mended if mended.count(b",") != text.count(b",") else text


def _repairs(layout: NodeLayout) -> Repairs:
    """Return what is tried on a node that is no valid JSON, in this order: PyTorch writes names of annotations without
    escaping them, its commas were not always where they belong, and a file whose observer stays is left open.
    """
    return (
        ("execution trace: name escaped", lambda text: _escape_name(layout, text)),
        *((f"execution trace: {name}", repair) for name, repair in REPAIRS),
        ("execution trace: comma repaired", _mend_commas),
    )
