"""Can a recording be trusted, what is missing in it, and how to record it right: `tracemine doctor`.

check_up(timeline, scan)   a Checkup, from what reading and scanning found out already
render(checkup, width)     the same on one screen

`having` says what was recorded and what a missing thing costs, `doubts` what distorts it, `code` how to record it.
"""

from __future__ import annotations

from tracemine.doctor.code import recipe_for
from tracemine.doctor.doubts import doubts_of
from tracemine.doctor.having import parts_of
from tracemine.doctor.record import CHECKUP_SCHEMA_VERSION, Checkup
from tracemine.doctor.text import render
from tracemine.findings import Scan
from tracemine.timeline import Timeline

__all__ = ["CHECKUP_SCHEMA_VERSION", "Checkup", "check_up", "render"]

_OPTIONAL = ("memory",)  # a recording without it is none the less fine


def check_up(timeline: Timeline, scan: Scan) -> Checkup:
    """Return what a recording holds, what distorts it, and how to record it right, from its timeline and its scan."""
    parts, doubts = tuple(parts_of(timeline, scan)), tuple(doubts_of(timeline, scan))
    missing = any(not part.recorded for part in parts if part.name not in _OPTIONAL)
    serious = any(doubt.serious for doubt in doubts)
    return Checkup(
        path=scan.trace.path,
        format=scan.trace.format,
        producer=timeline.meta.producer,
        gpu=scan.trace.gpu,
        verdict="serious" if serious else "limited" if missing or doubts else "fine",
        parts=parts,
        doubts=doubts,
        recipe=recipe_for(scan.trace.format),
    )
