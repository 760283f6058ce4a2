"""Data inside the HTML report: the findings as JSON, and what ran as packed columns, neither of them markup."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from tracemine.findings.parts import PARTS
from tracemine.findings.record import Scan
from tracemine.ops.kernel_names import short_name
from tracemine.report.escape import json_text, line
from tracemine.report.picture import Activities, HostLane, Picture
from tracemine.units import count_text

MOST_ACTIVITIES = 300_000  # beyond, a page is slow to load
_MOST_NAMES = 20_000
_LONGEST_NAME = 300
_MOST_LANES = 64
_MOST_STEPS = 2_000
_MOST_SPANS = 100_000  # of all lanes of the host

# What ends a script's data or begins markup, and what is a line's end to JavaScript.
_ESCAPED = str.maketrans({each: f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"})


def script_json(content: bytes) -> Markup:
    """Return JSON as it can stand in a script element: the same value, without any character of markup.

    >>> print(script_json(b'"</script>&"'))
    "\\u003c/script\\u003e\\u0026"
    """
    return Markup(json_text(content.decode()).translate(_ESCAPED))  # noqa: S704 - no character of it is markup


def findings_json(scans: Iterable[Scan]) -> Markup:
    """Return scans as `scan --format json` has them: each on a line."""
    return Markup("\n").join(script_json(msgspec.json.encode(scan)) for scan in scans)


def not_drawn(activities: Activities, room: int) -> str:
    """Return why activities are not drawn; "" where they are. room: how many others of the page leave."""
    count = len(activities.start_ns)
    if not count:
        return "No activity of a GPU was recorded."
    if count > MOST_ACTIVITIES:
        return f"{count_text(count, 'activity')} are too many for a page: {MOST_ACTIVITIES:,} are drawn at most."
    if count > room:
        return f"{count_text(count, 'activity')} do not fit in with those of the traces above: scan this one alone."
    return ""


def trace_json(picture: Picture) -> Markup:
    """Return activities and the host as JSON: columns of little-endian numbers in base64, and texts they point to."""
    activities = picture.activities
    shown, left_out = _lanes(activities)
    name, names = _names(activities.name, activities.names)
    steps = activities.steps[:_MOST_STEPS]
    return script_json(
        msgspec.json.encode(
            {
                "count": len(activities.start_ns),
                "start_ns": _packed(activities.start_ns, "<f8"),
                "dur_ns": _packed(activities.dur_ns, "<f4"),
                "lane": _packed(shown[activities.lane], "<i2"),
                "name": _packed(name, "<u2"),
                "part": _packed(activities.part, "<u1"),
                "step": _packed(np.where(activities.step < len(steps), activities.step, -1), "<i2"),
                "lanes": [_lane_text(*activities.lanes[at]) for at in np.argsort(shown) if shown[at] >= 0],
                "devices": [activities.lanes[at][0] or 0 for at in np.argsort(shown) if shown[at] >= 0],
                "lanes_left_out": left_out,
                "names": names,
                "short_names": _texts(short_name(text) for text in activities.names[:_MOST_NAMES]),
                "parts": list(PARTS),
                "steps": steps,
                "host": [_host(lane, _MOST_SPANS // len(picture.host)) for lane in picture.host],
            }
        )
    )


def _host(lane: HostLane, most: int) -> dict[str, Any]:
    """Return a lane of the host; where it has too many spans, the longest."""
    kept = np.sort(np.argsort(-lane.dur_ns, kind="stable")[:most])
    name, names = _names(lane.name[kept], lane.names)
    return {
        "title": line(lane.title, 40),
        "start_ns": _packed(lane.start_ns[kept], "<f8"),
        "dur_ns": _packed(lane.dur_ns[kept], "<f4"),
        "name": _packed(name, "<u2"),
        "names": names,
    }


def _names(name: npt.NDArray[np.int64], names: Sequence[str]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return names in the length that a page shows, and positions in them; those that are too many have one."""
    return np.minimum(name, _MOST_NAMES), [
        *_texts(names[:_MOST_NAMES]),
        *(["other"] if len(names) > _MOST_NAMES else []),
    ]


def _texts(names: Iterable[str]) -> list[str]:
    return [line(text, _LONGEST_NAME) for text in names]


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
