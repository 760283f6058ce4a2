"""What `tracemine diff --format json` says is fixed. The file is as little trusted as a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tracemine.comparison import side_of
from tracemine.errors import InputError, Location, UsageError
from tracemine.files import read_file
from tracemine.findings.record import Scan
from tracemine.perfmodel import Range
from tracemine.report.diff_words import how_measured
from tracemine.units import range_text, time_text

_LARGEST_BYTES = 1 << 28
_MOST_NS = 1 << 62
_HINT = "tracemine diff BEFORE AFTER --format json writes one"
_STEP = "the step"
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
    """A finding that a comparison of recordings says is fixed. Nanoseconds; null: the comparison does not say."""

    identity: str
    predicted_ns: int | None = None  # the predicted saving: of the step; of GPU time, where the step gains nothing
    cost_ns: int | None = None  # what it cost before
    together: tuple[Together, ...] = ()
    each: str = "a step"

    def __str__(self) -> str:
        """Return the comment that closes its ticket.

        >>> print(FixedFinding("80c2800cc9860f75", 236_000, 292_365))
        Fixed, as `tracemine diff` says. It cost 292 µs a step and is gone; predicted to save 236 µs.
        """
        parts = ["Fixed, as `tracemine diff` says."]
        if self.cost_ns is not None:
            predicted = "" if self.predicted_ns is None else f"; predicted to save {time_text(self.predicted_ns)}"
            parts.append(f"It cost {time_text(self.cost_ns)} {self.each} and is gone{predicted}.")
        if self.together:
            parts.append(f"All that is fixed there, {self.each}: {'; '.join(map(str, self.together))}.")
        return " ".join(parts)


def fixed_before(after: Path | Mapping[str, Any], scan: Scan) -> tuple[FixedFinding, ...]:
    """Return the findings that a comparison, of which `scan` is the later side, says are `fixed`.

    Raises InputError where a file is no comparison; UsageError where its later side is another recording, or has what
    the comparison says is fixed: nothing is closed then.
    """
    comparison = after if isinstance(after, Mapping) else _read(after)
    name = "--after" if isinstance(after, Mapping) else f"--after: {after}"
    fixed = fixed_in(comparison)
    if not _is_of(comparison.get("after"), scan):
        what = "they are its “before”" if _is_of(comparison.get("before"), scan) else "it is of other recordings"
        raise UsageError(f"{name} does not end at the findings given: {what}; nothing is closed", hint=_AGAIN)
    there = {name for finding in scan.findings for name in finding.names}
    if back := [one.identity for one in fixed if one.identity in there]:
        says = f"{name} says fixed of {back[0]}, and the findings given still have it; nothing is closed"
        raise UsageError(says, hint=_AGAIN)
    return fixed


def _is_of(side: object, scan: Scan) -> bool:
    """Return whether a side of a comparison is this recording, whatever its file is called now."""
    about = side_of(scan).about
    return isinstance(side, dict) and all(side.get(name) == getattr(about, name) for name in _SAME_RECORDING)


def _read(path: Path) -> Mapping[str, Any]:
    where = Location(str(path))
    try:
        found = msgspec.json.decode(read_file(path, _LARGEST_BYTES))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no comparison: {error}", where=where, hint=_HINT) from None
    if not isinstance(found, dict) or not isinstance(found.get("changes"), list):
        raise InputError("is no comparison: it has no list of changes", where=where, hint=_HINT)
    if not all(isinstance(one, dict) and isinstance(one.get("status"), str) for one in found["changes"]):
        raise InputError("is no comparison: its changes have no status", where=where, hint=_HINT)
    return found


def fixed_in(comparison: Mapping[str, Any]) -> tuple[FixedFinding, ...]:
    """Return the findings that are `fixed`: no other status, and no absence, closes a ticket. Skips other fields.

    >>> fixed_in({"changes": [{"status": "fixed", "before": [{"fingerprint": "80c2800cc9860f75"}], "after": []},
    ...                       {"status": "unknown", "before": [{"fingerprint": "1e8ccff5fdca1f02"}], "after": []}]})
    (FixedFinding(identity='80c2800cc9860f75', predicted_ns=None, cost_ns=None, together=(), each='a step'),)
    """
    together = tuple(_together(comparison.get("predicted"), comparison.get("basis")))
    each = "over the trace" if comparison.get("per") == "trace" else "a step"
    found = []
    for change in comparison["changes"]:
        parts = change.get("before") if change.get("status") == "fixed" else ()
        for part in parts if isinstance(parts, list | tuple) else ():
            if isinstance(part, dict) and isinstance(identity := part.get("fingerprint"), str):
                predicted = _ns(part.get("step_saving_ns")) or _ns(part.get("gpu_saving_ns"))
                found.append(FixedFinding(identity, predicted, _ns(part.get("cost_ns")), together, each))
    return tuple(found)


def _together(predicted: object, basis: object) -> Iterator[Together]:
    if not isinstance(predicted, dict):
        return
    how = how_measured(basis) if isinstance(basis, str) else "measured"
    for of, said, measured in (
        (_STEP, "step_saving_ns", "measured_step_ns"),
        ("GPU time", "gpu_saving_ns", "measured_gpu_ns"),
    ):
        found = predicted.get(said)
        ends = [_ns(found.get(end)) for end in ("low", "mid", "high")] if isinstance(found, dict) else []
        known = [ns for ns in ends if ns is not None]
        if len(known) == 3 and (got := _ns(predicted.get(measured))) is not None:
            yield Together(of, Range(*known), got, how if of == _STEP else "measured")


def _ns(found: object) -> int | None:
    """Return a time, or the middle of a range of times."""
    if isinstance(found, dict):
        found = found.get("mid")
    return found if isinstance(found, int) and not isinstance(found, bool) and abs(found) <= _MOST_NS else None
