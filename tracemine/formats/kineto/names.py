"""What the text of a copy's, a step's or a grid's field says: one small table or expression each."""

from __future__ import annotations

import re

import msgspec

# `Memcpy HtoD (Pageable -> Device)`; ROCm `CopyHostToDevice`; Intel `zeCommandListAppendMemoryCopy(M2D)`.
_COPY = re.compile(r"(?:Memcpy\s*|MemoryCopy\s*\()(?P<kind>\w2\w|\wto\w)", re.IGNORECASE)
_COPY_IN_WORDS = re.compile(r"Copy(?P<source>Host|Device)To(?P<target>Host|Device)", re.IGNORECASE)
_MEMORIES = re.compile(r"\((?P<source>[\w ]+?)\s*->\s*(?P<target>[\w ]+?)\)")

_KINDS = {
    kind.lower(): kind for kind in ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA")
}
_KINDS |= {"m2d": "HtoD", "d2m": "DtoH", "d2d": "DtoD", "m2m": "HtoH", "h2d": "HtoD", "d2h": "DtoH", "h2h": "HtoH"}
# ROCm says `Host` whether or not the memory is pinned, so that stays a word of its own.
_MEMORY = {name: name for name in ("pageable", "pinned", "device", "managed", "array", "host")}
_MEMORY |= {"device static": "device", "managed static": "managed"}

STEP = re.compile(r"ProfilerStep#(\d{1,18})")

# torch's own record_function marks. Exports before 1.11 file them under operators.
MARKS = re.compile(r"ProfilerStep#\d|Optimizer\.\w+#|enumerate\(DataLoader\)#")


def copy_kind(name: str) -> str | None:
    """Return the direction that a copy's name states.

    >>> copy_kind("Memcpy HtoD (Pageable -> Device)"), copy_kind("CopyDeviceToHost"), copy_kind("Memcpy")
    ('HtoD', 'DtoH', None)
    """
    if found := _COPY.search(name):
        return _KINDS.get(found["kind"].lower())
    if found := _COPY_IN_WORDS.search(name):
        return f"{found['source'][0].upper()}to{found['target'][0].upper()}"
    return None


def source_memory(name: str) -> str | None:
    """Return the kind of memory that a copy's name says it reads.

    >>> source_memory("Memcpy DtoH (Device -> Pinned)"), source_memory("Memcpy DtoH (Unknown -> Pinned)")
    ('device', None)
    """
    found = _MEMORIES.search(name)
    return _MEMORY.get(found["source"].lower()) if found else None


def target_memory(name: str) -> str | None:
    """Return the kind of memory that a copy's name says it writes.

    >>> target_memory("Memcpy DtoH (Device -> Pinned)")
    'pinned'
    """
    found = _MEMORIES.search(name)
    return _MEMORY.get(found["target"].lower()) if found else None


def step_number(name: str) -> int | None:
    """N of `ProfilerStep#N`.

    >>> step_number("ProfilerStep#12"), step_number("forward")
    (12, None)
    """
    found = STEP.fullmatch(name)
    return int(found[1]) if found else None


def triple(text: str) -> tuple[int, int, int] | None:
    """Three sizes as the trace writes them.

    >>> triple("[1, 2, 3]"), triple("[1, 2]"), triple("null")
    ((1, 2, 3), None, None)
    """
    try:
        x, y, z = msgspec.json.decode(text, type=tuple[int, int, int])
    except (msgspec.DecodeError, ValueError):
        return None
    return (x, y, z) if min(x, y, z) >= 0 and max(x, y, z) < 1 << 31 else None


def compact_json(text: str) -> str:
    """JSON text without blanks between its tokens, so that two layouts of one value are one text.

    >>> compact_json('[[4,  16],\\n []]'), compact_json('["a b"]'), compact_json("[not json")
    ('[[4,16],[]]', '["a b"]', '[not json')
    """
    try:
        return msgspec.json.format(text.encode("utf-8", "replace"), indent=-1).decode()
    except msgspec.DecodeError:
        return text
