"""Nodes that are no valid JSON. PyTorch writes the names of annotations without escaping them, and its commas were
not always where they belong; a file is left open when the observer was never unregistered.
"""

from __future__ import annotations

import json
import re

import msgspec

from tracemine.formats.execution_trace.nodes import NodeLayout
from tracemine.formats.kineto.repair import REPAIRS, Repairs

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]++|"', re.DOTALL)
_BEFORE_NO_COMMA = frozenset(b"[{:,")  # after one of these no comma may stand, and none is missing
_AFTER_NO_COMMA = frozenset(b"]},:")  # before one of these none is missing; before a bracket none may stand


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


def mend_commas(text: bytes) -> bytes:
    """Put one comma between two members, none elsewhere; strings are left alone.

    >>> mend_commas(b'[,[1,, 2] [3,], {"a": "x,,y" "b": 4}]').decode()
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
    return b"".join(kept)


def _mend_commas(text: bytes) -> bytes:
    # Laid out anew, every text would differ: it counts as a repair only where a comma came or went.
    mended = mend_commas(text)
    return mended if mended.count(b",") != text.count(b",") else text


def repairs(layout: NodeLayout) -> Repairs:
    """Return what is tried on a node that does not decode, in this order."""
    return (
        ("execution trace: name escaped", lambda text: _escape_name(layout, text)),
        *((f"execution trace: {name}", repair) for name, repair in REPAIRS),
        ("execution trace: comma repaired", _mend_commas),
    )
