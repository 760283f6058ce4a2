"""Put together what is said of a recording."""

from __future__ import annotations

from tracemine.doctor.code import recipe_for
from tracemine.doctor.doubts import doubts_of
from tracemine.doctor.having import parts_of
from tracemine.doctor.record import Checkup
from tracemine.findings import Scan
from tracemine.timeline import Timeline

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
