"""Answers of `top`: where the time of the GPU goes, and of the host, by line, and where it waits for the device."""

from __future__ import annotations

from msgspec.structs import replace

from tracemine.agents.asked import GPU, Answer, Cursor, Limit, Table, TracePath, known
from tracemine.agents.pages import page
from tracemine.agents.quoted import SENTENCE, maybe, quoted, some, word
from tracemine.agents.reading import Read, Reader
from tracemine.api.pictures import tops_of
from tracemine.top import HostRow, HostTop, TopRow, Tops, WaitRow, WaitTop
from tracemine.units import time_text

_NAME, _NOTES = 48, 3  # characters of a name; sentences
_MARK, _MOST_CLAIMS = 8, 2  # characters of an id in a table; ids of a row


def top(
    reader: Reader, *, path: TracePath, by: Table = "kernel", gpu: GPU = None, limit: Limit = 10, cursor: Cursor = None
) -> Answer:
    """Return a page of where the GPU's time goes, or the host's, most first: modules and lines before their parts.

    As recorded: of a step, or of the whole trace. A key that a row leaves out is not known; reaches are shares of the
    device's; a row is part of the one before it that is less deep.
    """
    read, analysis = reader.analysed(path, gpu)
    tops = tops_of(analysis, read.scan, reader.options(gpu))
    if by == "waits" or by == "host" or by == "host_tree":
        return _of_host(reader, read, tops, by, limit, cursor)
    found = tops.by(by)
    rows, following = page(found.rows, limit, cursor, ("top", read.key, by))
    used = found.utilisation
    claimed = next((claim.fingerprint for row in rows for claim in row.findings), None)
    return {
        "per": found.per,
        "host_time": None,
        "gpu_time": f"{time_text(found.gpu_time_ns / found.steps)} of {time_text(found.recorded_ns)}, recorded",
        "mfu": None if used is None or used.mfu is None else round(used.mfu, 4),
        "hfu": None if used is None else round(used.hfu, 4),
        "total": len(found.rows),
        "next_cursor": following,
        "next": f"explain {word(claimed)}" if claimed else "scan it: no finding holds these" if rows else "top by host",
        "untrusted": {
            "trace": quoted(reader.shown(read)),
            "rows": tuple(_top_entry(row, found.steps) for row in rows),
            "notes": some(found.notes, _NOTES, SENTENCE),
        },
    }


def _top_entry(row: TopRow, steps: int) -> Answer:
    flops, moved = row.flops_per_s, row.bytes_per_s
    return {
        "name": maybe(row.name, _NAME),  # null: what could not be attributed
        "us": round(row.gpu_time_ns / steps / 1e3, 1),
        "share": round(row.share, 3),
        "calls": round(row.calls / steps),
        **known(
            depth=row.depth or None,
            tflop_per_s=None if flops is None else round(flops / 1e12, 1),
            flops_reach=None if row.flops_reach is None else round(row.flops_reach, 2),
            gb_per_s=None if moved is None else round(moved / 1e9),
            bytes_reach=None if row.bytes_reach is None else round(row.bytes_reach, 2),
            findings=tuple(word(claim.fingerprint)[:_MARK] for claim in row.findings[:_MOST_CLAIMS]),
        ),
    }


def _of_host(reader: Reader, read: Read, tops: Tops, by: str, limit: Limit, cursor: Cursor) -> Answer:
    """Return a page of the host's time, by line or as a tree, or of its waits for the device."""
    found = tops.waits() if by == "waits" else tops.host("tree") if by == "host_tree" else _by_line(tops)
    if isinstance(found, HostTop):
        entries, whole_ns, notes = [_host_entry(row, found.steps) for row in found.rows], found.host_ns, found.notes
    else:
        entries, whole_ns, notes = [_wait_entry(row, found) for row in found.rows], found.wait_ns, ()
    window = "recorded" if found.window == "whole" else "in the light window"
    rows, following = page(entries, limit, cursor, ("top", read.key, by))
    return {
        "per": found.per,
        "gpu_time": None,
        "host_time": f"{time_text(whole_ns / found.steps)}, {window}",
        "mfu": None,
        "hfu": None,
        "total": len(entries),
        "next_cursor": following,
        "next": "scan it: host_sync findings say what to do about waits",
        "untrusted": {"trace": quoted(reader.shown(read)), "rows": tuple(rows), "notes": some(notes, _NOTES, SENTENCE)},
    }


def _by_line(tops: Tops) -> HostTop:
    """Return the host's time by line; by operator, and why, where no lines were recorded."""
    lines = tops.host("line")
    named = any(row.name is not None for row in lines.rows)
    return lines if named or not lines.rows else replace(tops.host("operator"), notes=lines.notes)


def _host_entry(row: HostRow, steps: int) -> Answer:
    return {
        "name": maybe(row.name, _NAME),
        "us": round(row.host_ns / steps / 1e3, 1),
        "share": round(row.share, 3),
        "calls": 0,
        **known(depth=row.depth or None),
        "critical_us": round(row.critical_ns / steps / 1e3, 1),  # no device was at work meanwhile
    }


def _wait_entry(row: WaitRow, found: WaitTop) -> Answer:
    named = " ".join(filter(None, (row.kind, row.use and f"for {row.use}", row.line or row.operator)))
    saves = None if row.saving_ns is None else round(row.saving_ns.mid / found.steps / 1e3, 1)
    return {
        "name": maybe(named, 2 * _NAME),
        "us": round(row.wait_ns / found.steps / 1e3, 1),
        "share": round(row.wait_ns / max(found.wait_ns, 1), 3),
        "calls": round(row.waits / found.steps),
        **known(saves_us=saves),  # the step is so much shorter without it
    }
