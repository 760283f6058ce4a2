"""Say what a scan of a Kineto trace did not get to read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracemine.units import count_text


def reading_warnings(
    tables: dict[str, Any], counts: dict[str, Counter[str]], truncated: bool, short: bool
) -> list[str]:
    said = []
    if truncated:
        said.append(
            "The file is cut off: the events before the cut were read, what came after is not known."
            if not short
            else "The gzip file is cut off or damaged: what could be inflated was read, what came after is not known."
        )
    if not len(tables["gpu"]["start_ns"]):
        said.append(
            "The trace holds CUPTI range metrics instead of GPU activities."
            if counts["events"]["cuda_profiler_range"]
            else "The trace holds no GPU activity."
        )
    return said


def left_out(lists: int, behind: int) -> list[str]:
    """Say what else the file holds: further lists of events, and bytes behind the end."""
    said = []
    if lists:
        said.append(
            f"The file holds {count_text(lists + 1, 'list')} of traceEvents: the first was read, others were left out."
        )
    if behind:
        said.append(f"Behind the trace's end the file goes on: {count_text(behind, 'byte')} of content were left out.")
    return said
