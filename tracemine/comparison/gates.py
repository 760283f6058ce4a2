"""What `--fail-on` asks of a difference: that nothing is new, nothing worse, nothing by so much."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from tracemine.comparison.record import Difference, FindingChange
from tracemine.units import Threshold, parse_percent, parse_time, time_text


class GateFailure(Struct, frozen=True):
    """Why a gate is shut, in a line."""

    text: str
    change: FindingChange | None = None  # None: it is the step, or nothing compares

    def __str__(self) -> str:
        """Return the line."""
        return self.text


Gate = Callable[[Difference], Iterator[GateFailure]]

WORDS = ("new", "worse", "moved", "unknown")
_GROWN = ("new", "worse")


def parse_gate(text: str) -> Gate:
    """Return what yields a line for all that a word, share of the step or time lets fail. Accepted changes never do;
    where nothing compares everything does.

    Raises ValueError for anything else.

    >>> parse_gate("newer")
    Traceback (most recent call last):
    ValueError: 'newer' is none of new, worse, moved, unknown, and neither a time nor a share of the step
    """
    if text in WORDS:
        return _guarded(lambda difference: _of_status(difference, text))
    try:
        threshold = Threshold(share=parse_percent(text)) if "%" in text else Threshold(ns=parse_time(text))
    except ValueError:
        known = ", ".join(WORDS)
        raise ValueError(f"{text!r} is none of {known}, and neither a time nor a share of the step") from None
    return _guarded(lambda difference: _of_growth(difference, threshold))


def _guarded(gate: Gate) -> Gate:
    """Yield the gate, shut where nothing compares too: what it asks is not known then."""

    def guarded(difference: Difference) -> Iterator[GateFailure]:
        if difference.incomparable:
            yield GateFailure("unknown: nothing compares, as is said first")
        yield from gate(difference)

    return guarded


def _of_status(difference: Difference, status: str) -> Iterator[GateFailure]:
    """Yield changes of one status. Of new findings those that a report shows: the others save too little to matter."""
    for change in difference.changes:
        shown = status != "new" or any(part.reported for part in change.after)
        if change.status == status and change.accepted is None and shown:
            yield _of_change(change, difference)


def _of_growth(difference: Difference, threshold: Threshold) -> Iterator[GateFailure]:
    """Yield findings that are new or worse by so much of a step, and the step where it takes so much longer."""
    least = threshold.of(difference.step.before_ns.mid)
    grown_ns = difference.step.change_ns.mid
    if difference.step.status == "worse" and grown_ns >= least:
        yield GateFailure(f"worse: the step takes {time_text(grown_ns)} longer")
    for change in difference.changes:
        if change.status in _GROWN and change.accepted is None and change.after_ns - change.before_ns >= least:
            yield _of_change(change, difference)


def _of_change(change: FindingChange, difference: Difference) -> GateFailure:
    first = (*change.after, *change.before)[0]
    per = "per step" if difference.per == "step" else "in the trace"
    before = f"{time_text(change.before_ns)} → " if change.before_ns else ""
    cost = f"{before}{time_text(change.after_ns)} {per}"
    return GateFailure(f"{change.status}: {change.title}, {cost} ({first.fingerprint})", change)
