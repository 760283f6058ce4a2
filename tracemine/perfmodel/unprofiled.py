"""The unprofiled step: measured by a capture, or estimated from what recording costs the host."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from tracemine.perfmodel.ranges import Range

CAPTURED, ESTIMATED, RECORDED = "captured", "estimated", "recorded"
# Two timings of one step differ by 6 % in the median, on an H200 and with each host's own pace taken out
# (benchmarks/results/steps_h100_h200.md): no estimate is known better than that.
_LEAST_SPREAD = 0.06
_MOST_SPREAD = 0.5  # of what fixes gain: beyond that two timings tell nothing


class Unprofiled(Struct, frozen=True, kw_only=True):
    """Duration of an unprofiled step, nanoseconds; of the whole span where no steps are known."""

    low_ns: int
    mid_ns: int
    high_ns: int
    source: str  # CAPTURED, ESTIMATED; RECORDED: what recording cost is not known
    note: str  # what was guessed, or measured, for people
    of_step: bool  # false: no steps are known, and it is the whole span
    recorded_ns: int  # how long it took as recorded
    p10_ns: int | None = None  # of steps timed alone: what a tenth of them did not exceed
    p90_ns: int | None = None

    @property
    def range_ns(self) -> Range:
        """Return its low end, middle and high end."""
        return Range(self.low_ns, self.mid_ns, self.high_ns)

    def up_to(self, longest_ns: int) -> Unprofiled:
        """Return an estimate that may be as long as this: what waits for data may be as recording has it.

        >>> estimated(1_000, (0.25, 0.5, 0.6), "guessed", of_step=True).up_to(800).high_ns
        800
        """
        if self.source != ESTIMATED:
            return self
        return replace(self, high_ns=max(self.high_ns, min(longest_ns, self.recorded_ns)))

    def at_most(self, fastest_ns: int) -> Unprofiled:
        """Return an estimate no longer than the fastest step that was recorded: recording makes none faster.

        >>> estimated(1_000, (0.25, 0.5, 1.0), "guessed", of_step=True).at_most(400).mid_ns
        400
        """
        if self.source != ESTIMATED:
            return self
        low, mid, high = (min(each, fastest_ns) for each in (self.low_ns, self.mid_ns, self.high_ns))
        return replace(self, low_ns=low, mid_ns=mid, high_ns=high)


def captured(
    alone_step_ns: int, recorded_ns: int, spread_ns: tuple[int | None, int | None] = (None, None)
) -> Unprofiled:
    """Return a step that was timed alone, and took `recorded_ns` while it was recorded. spread_ns: its p10 and p90.

    >>> captured(2_000_000, 3_000_000).mid_ns
    2000000
    """
    return Unprofiled(
        low_ns=alone_step_ns,
        mid_ns=alone_step_ns,
        high_ns=alone_step_ns,
        source=CAPTURED,
        note="measured outside the recording, without a profiler",
        of_step=True,
        recorded_ns=recorded_ns,
        p10_ns=spread_ns[0],
        p90_ns=spread_ns[1],
    )


def estimated(recorded_ns: int, shares: tuple[float, float, float], note: str, *, of_step: bool) -> Unprofiled:
    """Return a step, or a span, of which these shares (least, usual, most) are left unprofiled.

    The ends are at least 6 % from the middle: shares that agree are no measurement. Nothing takes longer than recorded.

    >>> found = estimated(1_000, (0.25, 0.5, 1.0), "guessed", of_step=True)
    >>> found.low_ns, found.mid_ns, found.high_ns, found.source
    (250, 500, 1000, 'estimated')
    >>> found = estimated(1_000, (0.5, 0.5, 0.5), "guessed", of_step=True)
    >>> found.low_ns, found.mid_ns, found.high_ns
    (470, 500, 530)
    """
    low, mid, high = (round(recorded_ns * min(max(share, 0.0), 1.0)) for share in sorted(shares))
    low, high = (
        min(low, round(mid * (1 - _LEAST_SPREAD))),
        max(high, min(round(mid * (1 + _LEAST_SPREAD)), recorded_ns)),
    )
    return Unprofiled(
        low_ns=low, mid_ns=mid, high_ns=high, source=ESTIMATED, note=note, of_step=of_step, recorded_ns=recorded_ns
    )


def timing_spread(gained_ns: float, step_ns: float) -> float:
    """Return the share of a step by which gains may differ from the difference of two timings.

    Each of these is off by 6 %, for reasons of its own.

    >>> round(timing_spread(50, 100), 3), timing_spread(1, 100), round(timing_spread(100, 100), 3)
    (0.134, 0.5, 0.06)
    """
    if gained_ns <= 0 or step_ns <= 0:
        return _MOST_SPREAD
    share = min(gained_ns / step_ns, 1.0)
    return min(_LEAST_SPREAD * math.hypot(1.0, 1.0 - share) / share, _MOST_SPREAD)


def as_recorded(recorded_ns: int, *, of_step: bool) -> Unprofiled:
    """Return a step, or a span, of which nothing tells what recording it cost.

    >>> as_recorded(1_000, of_step=True).source
    'recorded'
    """
    note = "as recorded: its cost is not known"
    return Unprofiled(
        low_ns=recorded_ns,
        mid_ns=recorded_ns,
        high_ns=recorded_ns,
        source=RECORDED,
        note=note,
        of_step=of_step,
        recorded_ns=recorded_ns,
    )
