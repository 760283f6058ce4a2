"""Answers of `top` about the host: its time by line, and where it waits for the device."""

from __future__ import annotations

from msgspec.structs import replace

from tracemine.agents.asked import Answer, Cursor, Limit, known
from tracemine.agents.pages import page
from tracemine.agents.quoted import SENTENCE, maybe, quoted, some
from tracemine.agents.reading import Read, Reader
from tracemine.top import HostRow, HostTop, Tops, WaitRow, WaitTop
from tracemine.units import time_text

_NAME, _NOTES = 48, 3  # characters of a name; sentences


def host_answer(reader: Reader, read: Read, tops: Tops, by: str, limit: Limit, cursor: Cursor) -> Answer:
    """Return a page of the host's time, by line or as a tree, or of its waits for the device."""
    found = tops.waits() if by == "waits" else tops.host("tree") if by == "host_tree" else _by_line(tops)
    if isinstance(found, HostTop):
        entries, whole_ns, notes = [_host_entry(row, found.steps) for row in found.rows], found.host_ns, found.notes
    else:
        entries, whole_ns, notes = [_wait_entry(row, found) for row in found.rows], found.wait_ns, ()
    window = "recorded" if isinstance(found, HostTop) or found.window == "whole" else "in the light window"
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
    } | known(saves_us=saves)  # the step is so much shorter without it
