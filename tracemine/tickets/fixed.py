"""What `tracemine diff --format json` says is fixed. The file is as little trusted as a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tracemine.comparison import Difference, side_of
from tracemine.comparison.record import ComparedTrace
from tracemine.errors import InputError, Location, UsageError
from tracemine.files import read_file
from tracemine.findings.record import Scan
from tracemine.perfmodel import Range
from tracemine.report.diff_words import how_measured
from tracemine.units import range_text, time_text

_LARGEST_BYTES = 1 << 28
_HINT = "tracemine diff BEFORE AFTER --format json writes one"
_AGAIN = "compare again, with these findings as AFTER: tracemine diff BEFORE AFTER --format json"
_SAME_RECORDING = ("format", "steps", "span_ns", "gpu_busy_ns")  # measured: two recordings never agree in all of them


@dataclass(frozen=True, slots=True)
class Together:
    """What all that is fixed was predicted to save, and what was measured: of the step, or of GPU time; nanoseconds."""

    of: str
    predicted: Range
    measured_ns: int
    how: str = "measured"  # or how: with the profiler, or without; or that it was estimated

    def __str__(self) -> str:
        """Return both, in words.

        >>> print(Together("the step", Range(30_000, 553_000, 694_000), 511_000))
        of the step 553 µs (30.0–694 µs) predicted, 511 µs measured
        """
        low, mid, high = self.predicted.low, self.predicted.mid, self.predicted.high
        predicted = f"{time_text(mid)} ({range_text(low, high)})"
        return f"of {self.of} {predicted} predicted, {time_text(self.measured_ns)} {self.how}"


@dataclass(frozen=True, slots=True)
class FixedFinding:
    """A finding that a comparison of recordings says is fixed. Nanoseconds."""

    identity: str
    predicted_ns: int  # the predicted saving: of the step; of GPU time, where the step gains nothing
    cost_ns: int  # what it cost before
    together: tuple[Together, ...] = ()
    each: str = "a step"

    def __str__(self) -> str:
        """Return the comment that closes its ticket.

        >>> print(FixedFinding("80c2800cc9860f75", 236_000, 292_365))
        Fixed, as `tracemine diff` says. It cost 292 µs a step and is gone; predicted to save 236 µs.
        """
        gone = f"It cost {time_text(self.cost_ns)} {self.each} and is gone"
        text = f"Fixed, as `tracemine diff` says. {gone}; predicted to save {time_text(self.predicted_ns)}."
        every = "; ".join(map(str, self.together))
        return f"{text} All that is fixed there, {self.each}: {every}." if every else text


def fixed_before(after: Path | Mapping[str, Any], scan: Scan) -> tuple[FixedFinding, ...]:
    """Return the findings that a comparison, of which `scan` is the later side, says are `fixed`.

    Raises InputError where a file is no comparison; UsageError where its later side is another recording, or has what
    the comparison says is fixed: nothing is closed then.
    """
    comparison = _comparison(after)
    name = "--after" if isinstance(after, Mapping) else f"--after: {after}"
    fixed = fixed_in(comparison)
    if not _is_of(comparison.after, scan):
        what = "they are its “before”" if _is_of(comparison.before, scan) else "it is of other recordings"
        raise UsageError(f"{name} does not end at the findings given: {what}; nothing is closed", hint=_AGAIN)
    there = {name for finding in scan.findings for name in finding.names}
    if back := [one.identity for one in fixed if one.identity in there]:
        says = f"{name} says fixed of {back[0]}, and the findings given still have it; nothing is closed"
        raise UsageError(says, hint=_AGAIN)
    return fixed


def _is_of(side: ComparedTrace, scan: Scan) -> bool:
    """Return whether a side of a comparison is this recording, whatever its file is called now."""
    about = side_of(scan).about
    return all(getattr(side, name) == getattr(about, name) for name in _SAME_RECORDING)


def _comparison(after: Path | Mapping[str, Any]) -> Difference:
    try:
        if isinstance(after, Mapping):
            return msgspec.convert(after, Difference)
        return msgspec.json.decode(read_file(after, _LARGEST_BYTES), type=Difference)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        where = Location("--after" if isinstance(after, Mapping) else str(after))
        raise InputError(f"is no comparison: {error}", where=where, hint=_HINT) from None


def fixed_in(comparison: Difference) -> tuple[FixedFinding, ...]:
    """Return the findings that are `fixed`: no other status, and no absence, closes a ticket."""
    said, together = comparison.predicted, tuple[Together, ...]()
    if said is not None:
        together = (
            Together("the step", said.step_saving_ns, said.measured_step_ns.mid, how_measured(comparison.basis)),
            Together("GPU time", said.gpu_saving_ns, said.measured_gpu_ns),
        )
    each = "over the trace" if comparison.per == "trace" else "a step"
    return tuple(
        FixedFinding(part.fingerprint, part.step_saving_ns.mid or part.gpu_saving_ns.mid, part.cost_ns, together, each)
        for change in comparison.changes
        if change.status == "fixed"
        for part in change.before
    )
