"""A table of time in one of its forms: text of a screen, CSV or JSON."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

from tracemine.report import graphs, host_top, top, waits
from tracemine.report.escape import line
from tracemine.report.json import json_of
from tracemine.report.top_lines import Shown
from tracemine.top import GraphTop, HostTop, Top, WaitTop

_DRAWN: dict[type, Any] = {Top: top, HostTop: host_top, WaitTop: waits, GraphTop: graphs}


def rendered(found: Top | HostTop | WaitTop | GraphTop, form: str, shown: Shown) -> str:
    """Return a table as `json` or `csv`, which have all of it, or as text."""
    drawn = _DRAWN[type(found)]
    if form == "json":
        return json_of(found, indented=True)
    if form == "csv":
        out = StringIO()
        csv.writer(out, lineterminator="\n").writerows(map(_plain, row) for row in drawn.csv_rows(found))
        return out.getvalue()
    text: str = drawn.render_text(found, shown)
    return text


def _plain(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula."""
    text = line(cell) if isinstance(cell, str) else ""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text or cell
