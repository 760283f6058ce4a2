"""What is a file that no format reads? Decided by its first bytes, never by its name, and said in one line."""

from __future__ import annotations

from tracemine.errors import InputError, Location
from tracemine.formats import foreign
from tracemine.formats.json_text import members
from tracemine.formats.look import Look, begins, has
from tracemine.formats.source import FileSource

_ONE_TABLE = "pass the folder that nsys export --type parquetdir or arrowdir wrote, or a timeline's folder"
_COUNTERS = "pass the trace of the same program, and this with --ncu; or print it: tracemine top FILE"
_TRACE_WANTED = "pass the .json or .json.gz that torch.profiler's export_chrome_trace wrote"


_UTF_16 = Look(
    begins(b"\xff\xfe", b"\xfe\xff"),
    "is UTF-16 text, and a trace is UTF-8",
    "convert it: iconv -f UTF-16 -t UTF-8 FILE",
)
_NO_JSON = Look(lambda head: head[:1] not in b"{[", "is not JSON, so it is not a trace", _TRACE_WANTED)

# The first that fits says it. Text formats are looked at without the blank lines in front of them.
_BINARY = (
    Look(lambda head: not head.strip(), "is empty", "record the trace again"),
    Look(
        begins(b"version https://git-lfs"),
        "is a Git LFS pointer, not the data it points to",
        "fetch the data with: git lfs pull",
    ),
    Look(begins(b"NVR\0"), "is a report of Nsight Compute (.ncu-rep), which has no timeline", _COUNTERS),
    Look(begins(b"PAR1"), "is a Parquet file, which says too little alone", _ONE_TABLE),
    Look(begins(b"ARROW1"), "is an Arrow file, which says too little alone", _ONE_TABLE),
    Look(
        begins(b"\x89HDF\r\n\x1a\n"),
        "is an HDF5 file, which is not supported",
        "of a report of Nsight Systems: nsys export --type sqlite FILE.nsys-rep",
    ),
    Look(
        has(rb"\A(?:\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|BM....\0\0\0\0|RIFF....WEBP|II\*\0|MM\0\*)"),
        "is a picture, not a trace",
        _TRACE_WANTED,
    ),
    Look(begins(b"%PDF-"), "is a PDF document, not a trace", _TRACE_WANTED),
    Look(begins(b"\x1f\x8b"), "is gzip inside gzip", "gunzip it once and pass the result"),
    Look(
        has(rb"(?s)\APK\x03\x04.{26}[^/]+/(?:data\.pkl|\.format_version|byteorder|version)"),
        "is what torch.save wrote, such as a checkpoint, not a trace",
        _TRACE_WANTED,
    ),
    Look(
        begins(b"PK\x03\x04", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf"),
        "is packed in a way that is not supported",
        "unpack it, or pack it with gzip",
    ),
    _UTF_16,
    *foreign.BINARY,
)
_TEXT = (
    Look(begins(b"<"), "is HTML or XML, not a trace", "a download that needs a login often saves a web page instead"),
    Look(has(rb'(?m)^"ID","Process ID"'), "is a table of Nsight Compute (CSV), which has no timeline", _COUNTERS),
    Look(
        has(rb"\A[^\n{\[]*(?:Start \(ns\)|Time \(%\)|Projected Start)"),
        "is a table (CSV) of nsys stats that is no timeline",
        "pass an export (nsys export --type sqlite), or the table of nsys stats --report cuda_kern_exec_trace",
    ),
    *foreign.TEXT,
    _NO_JSON,
)
_SOMETHING_BINARY = Look(lambda head: True, "is binary, not a trace", _TRACE_WANTED)
_EXECUTION_TRACE = Look(
    lambda head: True,
    "is a PyTorch execution trace, which has no times",
    "pass the profiler's trace of the same run, and this one with --et",
)
_CUT_OFF = Look(lambda head: True, "is cut off before any of its content", "copy or record the trace again, to its end")
_NO_TRACE = Look(lambda head: True, "is JSON, but no trace that can be read", _TRACE_WANTED)


# What tracemine itself writes, by keys that no trace has all of; the first that fits.
_OWN = (
    (
        {"schema_version", "tracemine", "project", "about"},
        "is a baseline, not a trace or its findings",
        "compare a trace with it: tracemine scan TRACE --baseline FILE",
    ),
    (
        {"schema_version", "tracemine", "before", "after"},
        "is what tracemine diff printed, not a trace or its findings",
        "close tickets by it: tracemine tickets FINDINGS --after FILE",
    ),
    (
        {"schema_version", "trace", "summary"},
        "holds findings, not a trace",
        "print them with tracemine scan FILE, compare with tracemine diff",
    ),
    (
        {"schema_version", "trace", "verdicts"},
        "holds verdicts, not a trace",
        "name the trace or its findings, and this as --evidence of scan or report",
    ),
)


def written_by_tracemine(head: bytes) -> tuple[str, str] | None:
    """Return which output of tracemine a file is, and where it belongs; None: it is none, by how it begins.

    >>> written_by_tracemine(b'{"schema_version": 1, "tracemine": "0", "before": {}, "after": {}, "changes": []}')[0]
    'is what tracemine diff printed, not a trace or its findings'
    """
    text = head.lstrip()
    return _own(_keys(text)) if text[:1] == b"{" else None


def _own(keys: set[str]) -> tuple[str, str] | None:
    return next(((what, hint) for wanted, what, hint in _OWN if wanted <= keys), None)


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
    if look is None or look.hint == _COUNTERS:
        return look is not None
    name = source.path.removesuffix(".gz")
    return name.endswith((".ncu-rep", ".ncu-repz")) or (name.endswith(".csv") and look in (_UTF_16, _NO_JSON))


def refusal(source: FileSource) -> InputError:
    """Return why no format reads `source`, with the way out. The source is not consumed."""
    look = _look(source.head)
    if source.truncated and not source.head:
        look = _CUT_OFF
    look = look or _NO_TRACE
    return InputError(look.what, where=Location(source.path), hint=look.hint)


def _look(head: bytes) -> Look | None:
    """Return the first row that fits; None: JSON that may be a trace."""
    text = head.lstrip()
    found = next((look for look in _BINARY if look.looks(head)), None)
    if found is None and b"\0" in head:
        found = _SOMETHING_BINARY
    if found is None:
        found = next((look for look in _TEXT if look.looks(text)), None)
    return found or _other_json(text)


def _other_json(text: bytes) -> Look | None:
    """Return JSON that is known, and not Kineto's; keys may come in any order."""
    keys = _keys(text) if text[:1] == b"{" else set()
    if own := _own(keys):
        return Look(lambda head: True, *own)
    if {"schema", "nodes"} <= keys:
        return _EXECUTION_TRACE
    if keys & foreign.KINETO_KEYS:
        return None
    return next((look for look in foreign.EVENTS if look.looks(text)), None)
