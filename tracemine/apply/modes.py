"""What a graph and torch.compile's modes are to save of a step, as far off as that was where they were tried."""

from __future__ import annotations

from typing import Final

import msgspec

from tracemine.findings.alone import MeasuredBySaid
from tracemine.findings.graphs.record import WAYS, WayName
from tracemine.findings.record import StepSummary
from tracemine.tables import table_beside
from tracemine.top.record import GraphTop

Shares = tuple[float, float, float]
"""Of the step: least, likely, most. The least is below zero where it may get slower."""


# What a mode left of a step, by what was said to be left.
LEFT: Final = msgspec.convert(table_beside(__file__, "modes.toml"), dict[str, MeasuredBySaid])
_LIKE: Final[dict[WayName, WayName]] = {"graphs_by_step": "reduce_overhead", "max_autotune": "reduce_overhead"}


def mode_row(way: WayName, step: StepSummary) -> str:
    """Return the row of a mode in the table: by who sets the pace of the step."""
    assert step.unprofiled_ns is not None  # noqa: S101 - whoever asks knows it
    idle = 2 * step.gpu_busy_ns < step.unprofiled_ns.mid
    return f"{_LIKE.get(way, way)}_{'host' if idle else 'device'}"


def likely_of(graphs: GraphTop, step: StepSummary) -> dict[WayName, float]:
    """Return what each mode is likely to save, of the step or of what in it it saves most of. Missing: not known."""
    assert step.unprofiled_ns is not None  # noqa: S101 - whoever asks knows it
    found = dict[WayName, float]()
    for way in WAYS:
        savings = [span.way(way).saving_ns for span in (graphs.step, *graphs.spans)]
        known = [saving.mid / graphs.steps / step.unprofiled_ns.mid for saving in savings if saving is not None]
        if known:
            found[way] = min(max(known), 1.0)
    return found


def within(likely: float, row: MeasuredBySaid) -> Shares:
    """Return a saving with its interval.

    >>> within(0.5, MeasuredBySaid(programs=9, least=0.8, most=1.4))
    (0.3, 0.5, 0.6)
    """
    low, high = (round(1 - times * (1 - likely), 4) for times in (row.most, row.least))
    return min(low, likely), likely, max(high, likely)


def saved_by_modes(graphs: GraphTop, step: StepSummary | None) -> dict[str, Shares]:
    """Return what each mode saves of a step. graphs: of the same recording."""
    if step is None or step.unprofiled_ns is None:
        return {}
    return {way: within(likely, LEFT[mode_row(way, step)]) for way, likely in likely_of(graphs, step).items()}
