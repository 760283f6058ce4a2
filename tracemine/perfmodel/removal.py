"""The rest of work that a fix takes out."""

from __future__ import annotations

from tracemine.perfmodel.ranges import Estimate, outwards


def removed(dur_ns: float, left: tuple[float, float, float]) -> Estimate:
    """Estimate one instance of work that is not done any more, but for a share of it (low, mid, high).

    >>> removed(2_000, (0.0, 0.1, 0.5)).after_ns
    Range(low=0, mid=200, high=1000)
    """
    low, mid, high = left
    text = f"{mid:.0%} of this work stays" if low == high else f"{low:.0%} to {high:.0%} of this work stays"
    return Estimate(after_ns=outwards(dur_ns * low, dur_ns * mid, dur_ns * high), assumptions=(f"{text} (assumed)",))
