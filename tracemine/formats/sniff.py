"""What is a file that no format reads? Decided by its first bytes, never by its name, and said in one line."""

from __future__ import annotations

from tracemine.errors import InputError, Location
from tracemine.formats.json_text import members
from tracemine.formats.source import FileSource
from tracemine.patterns import deferred
from tracemine.tables import table_beside

# Each is written by Kineto alone, in front of the events or behind them. A trace of Kineto holds whatever the program
# calls its functions and ranges: what only occurs somewhere in a list of events counts where none of these is there.
KINETO_KEYS = frozenset({"schemaVersion", "deviceProperties", "baseTimeNanoseconds"})
RECORD_WITH_TORCH = "record the program with torch.profiler and pass what export_chrome_trace wrote"
_COUNTERS = "pass the trace of the same program, and this with --ncu; or print it: tracemine top FILE"
_TRACE_WANTED = "pass the .json or .json.gz that torch.profiler's export_chrome_trace wrote"
_PERHAPS_COUNTERS = ("is UTF-16 text", "is not JSON")  # what a table of counters may look like, if its name says so


_Says = tuple[str, str]  # what a file that cannot be read is, and the way out
_TABLE = table_beside(__file__, "sniff.toml")
_VARINT = r"[\x80-\xff]{0,9}[\x00-\x7f]"
_LOOKS = {
    kind: [(deferred(begins.replace("VARINT", _VARINT).encode()), (what, hint)) for begins, what, hint in _TABLE[kind]]
    for kind in ("binary", "text", "events")
}
_SOMETHING_BINARY = ("is binary, not a trace", _TRACE_WANTED)
_EXECUTION_TRACE = (
    "is a PyTorch execution trace, which has no times",
    "pass the profiler's trace of the same run, and this one with --et",
)
_CUT_OFF = ("is cut off before any of its content", "copy or record the trace again, to its end")
_NO_TRACE = ("is JSON, but no trace that can be read", _TRACE_WANTED)


def written_by_tracemine(head: bytes) -> tuple[str, str] | None:
    """Return which output of tracemine a file is, and where it belongs; None: it is none, by how it begins.

    >>> written_by_tracemine(b'{"schema_version": 1, "tracemine": "0", "before": {}, "after": {}, "changes": []}')[0]
    'is what tracemine diff printed, not a trace or its findings'
    """
    text = head.lstrip()
    return _own(_keys(text)) if text[:1] == b"{" else None


def _own(keys: set[str]) -> _Says | None:
    return next(((what, hint) for wanted, what, hint in _TABLE["own"] if keys.issuperset(wanted)), None)


def _keys(text: bytes) -> set[str]:
    """Return what a JSON object holds, up to a trace's events."""
    return {key for key, _, _ in members(text, 1, len(text), upto="traceEvents")}


def is_trace_json(head: bytes) -> bool:
    """Return whether a file that begins so is taken for a Chrome trace: JSON, and none of the other known kinds of it.

    >>> is_trace_json(b'{"schemaVersion": 1, "traceEvents": ['), is_trace_json(b'{"schema": "1.1.1", "nodes": []}')
    (True, False)
    """
    return _look(head) is None


def looks_like_counters(source: FileSource) -> bool:
    """Return whether a file begins as a report of Nsight Compute does, or is named like one and begins with other text.

    That is what the program printed, or a table in UTF-16 or without quotes.
    """
    look = _look(source.head)
    if look is None or look[1] == _COUNTERS:
        return look is not None
    name = source.path.removesuffix(".gz")
    return name.endswith((".ncu-rep", ".ncu-repz")) or (name.endswith(".csv") and look[0].startswith(_PERHAPS_COUNTERS))


def refusal(source: FileSource) -> InputError:
    """Return why no format reads `source`, with the way out. The source is not consumed."""
    look = _look(source.head)
    if source.truncated and not source.head:
        look = _CUT_OFF
    look = look or _NO_TRACE
    what, hint = look
    return InputError(what, where=Location(source.path), hint=hint)


def _look(head: bytes) -> _Says | None:
    """Return the first row that fits; None: JSON that may be a trace."""
    text = head.lstrip()
    found = _first("binary", head)
    if found is None and b"\0" in head:
        found = _SOMETHING_BINARY
    if found is None:
        found = _first("text", text)
    return found or _other_json(text)


def _first(kind: str, head: bytes) -> _Says | None:
    return next((look for begins, look in _LOOKS[kind] if begins.search(head)), None)


def _other_json(text: bytes) -> _Says | None:
    """Return JSON that is known, and not Kineto's; keys may come in any order."""
    keys = _keys(text) if text[:1] == b"{" else set()
    if own := _own(keys):
        return own
    if {"schema", "nodes"} <= keys:
        return _EXECUTION_TRACE
    if keys & KINETO_KEYS:
        return None
    return _first("events", text)
