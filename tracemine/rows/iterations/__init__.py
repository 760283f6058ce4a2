"""Iterations of a program: steps as they were marked, or, where none was, inferred with the evidence named.

iterations(timeline)   → Iterations: which activity is part of which, what tells, and how sure that is
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.iterations.annotations import from_annotations
from tracemine.rows.iterations.record import MARKED, Iterations, LaunchedWork, work_of
from tracemine.rows.iterations.repeats import from_repeats
from tracemine.rows.iterations.replays import from_replays
from tracemine.timeline import Timeline

__all__ = ["WAYS", "Iterations", "iterations"]

# How iterations are inferred, the strongest evidence first. None: nothing of the kind repeats.
WAYS: tuple[Callable[[Timeline, LaunchedWork], Iterations | None], ...] = (from_annotations, from_replays, from_repeats)


def iterations(timeline: Timeline) -> Iterations | None:
    """Return the iterations of a timeline; None where no step was marked and nothing tells that something repeats.

    >>> from tracemine.timeline import Meta
    >>> iterations(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))) is None
    True
    """
    if timeline.steps.num_rows:
        return _marked(timeline)
    work = work_of(timeline)
    found = (way(timeline, work) for way in WAYS) if len(work.dur_ns) else ()
    return next((each for each in found if each is not None), None)


def _marked(timeline: Timeline) -> Iterations:
    steps = timeline.steps
    name = categories(steps["name"])
    begin = rows_of(steps["start_ns"])
    return Iterations(
        source=MARKED,
        evidence=f"{name.values[int(name.codes[0])]} and {steps.num_rows - 1:,} more" if steps.num_rows > 1 else "",
        confidence=1.0,
        begin_ns=begin,
        end_ns=begin + numbers(steps["dur_ns"]).values.astype(np.int64),
        of_activity=rows_of(timeline.activities["step_row"]),
    )
