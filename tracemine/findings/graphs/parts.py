"""Stretches of launches that one CUDA graph can hold: between what stops a capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tracemine.findings.graphs.obstacles import Obstacles
from tracemine.findings.graphs.record import SpanPart
from tracemine.findings.graphs.spans import Program, lines_of
from tracemine.rows.table import BoolArray, IntArray

_FEWEST: Final = 4  # launches: a graph of less costs as much as they do


def stretches(program: Program, member: BoolArray, call: IntArray, stops: Obstacles) -> list[IntArray]:
    """Return activities, in order of launch, that lie in one call of a span with no stop between them.

    member, call: of each of the program's activities, whether it is the span's, and in which call; stops: what ends a
    stretch, but for an optimizer's launches, which are in none.
    """
    moment = program.launched_ns[program.activity]
    barred = np.array([kind in ("optimizer", "replayed") for kind in stops.kind] + [False])[stops.code]
    cut = np.searchsorted(np.sort(stops.begin_ns[~barred]), moment, side="right")
    held = member & ~np.isin(moment, stops.begin_ns[barred])
    step = program.step_at(moment)
    edge = (np.diff(cut) != 0) | (np.diff(step) != 0) | (np.diff(call) != 0) | ~held[:-1] | ~held[1:]
    parts = np.split(np.arange(len(moment)), np.flatnonzero(edge) + 1)
    return [program.activity[each] for each in parts if len(each) >= _FEWEST and held[each].all()]


def listed(program: Program, parts: Sequence[IntArray]) -> list[tuple[SpanPart, list[IntArray]]]:
    """Return stretches by the lines that they begin and end at, most launches first."""
    ends = np.array([(each[0], each[-1]) for each in parts], np.int64).reshape(-1, 2)
    first, last = (lines_of(program.timeline, program.path[ends[:, side]]) for side in (0, 1))
    groups: dict[tuple[str | None, str | None], list[IntArray]] = {}
    for *lines, part in zip(first, last, parts, strict=True):
        groups.setdefault((lines[0], lines[1]), []).append(part)
    found = [
        (SpanPart(first=lines[0], last=lines[1], times=len(each), launches=sum(map(len, each))), each)
        for lines, each in groups.items()
    ]
    return sorted(found, key=lambda pair: -pair[0].launches)
