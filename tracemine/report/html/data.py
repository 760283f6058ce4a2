"""Data inside the HTML report: the findings as JSON, and the activities as packed columns, neither of them markup."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracemine.findings.parts import PARTS
from tracemine.findings.record import Scan
from tracemine.report.escape import json_text, line
from tracemine.report.picture import Activities
from tracemine.units import count_text

MOST_ACTIVITIES = 400_000  # beyond, a page is slow to load
_MOST_NAMES = 20_000
_LONGEST_NAME = 300
_MOST_LANES = 64
_MOST_STEPS = 2_000

# What ends a script's data or begins markup, and what is a line's end to JavaScript.
_ESCAPED = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def script_json(content: bytes) -> str:
    """Return JSON as it can stand in a script element: the same value, without any character of markup.

    >>> script_json(b'"</script>&"')
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    return json_text(content.decode()).translate(_ESCAPED)


def findings_json(scan: Scan) -> str:
    """Return a scan as `scan --format json` has it."""
    return script_json(msgspec.json.encode(scan))


def not_drawn(activities: Activities) -> str:
    """Return why activities are not drawn; "" where they are."""
    count = len(activities.start_ns)
    if not count:
        return "No activity of a GPU was recorded."
    if count > MOST_ACTIVITIES:
        return f"{count_text(count, 'activity')} are too many for a page: {MOST_ACTIVITIES:,} are drawn at most."
    return ""


def trace_json(activities: Activities) -> str:
    """Return activities as JSON: columns of little-endian numbers in base64, and the texts that they point to."""
    shown, left_out = _lanes(activities)
    names = activities.names[:_MOST_NAMES]
    name = np.minimum(activities.name, _MOST_NAMES)
    more = ("other kernels",) if len(names) < len(activities.names) else ()
    return script_json(
        msgspec.json.encode(
            {
                "count": len(activities.start_ns),
                "start_ns": _packed(activities.start_ns, "<f8"),
                "dur_ns": _packed(activities.dur_ns, "<f8"),
                "lane": _packed(shown[activities.lane], "<i2"),
                "name": _packed(name, "<u2"),
                "part": _packed(activities.part, "<u1"),
                "lanes": [_lane_text(*activities.lanes[at]) for at in np.argsort(shown) if shown[at] >= 0],
                "devices": [activities.lanes[at][0] or 0 for at in np.argsort(shown) if shown[at] >= 0],
                "lanes_left_out": left_out,
                "names": [line(text, _LONGEST_NAME) for text in (*names, *more)],
                "short_names": [line(text, _LONGEST_NAME) for text in (*activities.short_names[:_MOST_NAMES], *more)],
                "parts": list(PARTS),
                "steps": [[line(one.name, 80), one.start_ns, one.dur_ns] for one in activities.steps[:_MOST_STEPS]],
            }
        )
    )


def _lanes(activities: Activities) -> tuple[npt.NDArray[np.int64], int]:
    """Return for each lane its place in the drawing, −1 for those with the least time where there are too many."""
    count = len(activities.lanes)
    busy = np.bincount(activities.lane, activities.dur_ns, count)
    kept = np.sort(np.argsort(-busy, kind="stable")[:_MOST_LANES])
    shown = np.full(count, -1, np.int64)
    shown[kept] = np.arange(len(kept))
    return shown, count - len(kept)


def _lane_text(device: int | None, stream: int | None) -> str:
    """Return a lane's name.

    >>> _lane_text(0, 7), _lane_text(None, None)
    ('GPU 0 · stream 7', 'GPU ? · stream ?')
    """
    ends = ("?" if each is None else f"{each}" for each in (device, stream))
    return "GPU {} · stream {}".format(*ends)


def _packed(values: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()
