"""What is left of work that a fix takes out, and time that workers give back where a loop waits for its data.

A loop that loads in itself takes as long as loading and all the rest. With workers a step takes as long as the rest, or
as the workers need for a batch, whichever is longer. Each worker is slower than the loop was: they share cores and
memory and hand their batches over.
"""

from __future__ import annotations

import numpy as np

from tracemine.perfmodel.ranges import Estimate, Range, outwards
from tracemine.rows.table import IntArray

# Low, mid and high end. Measured with four workers by benchmarks/predictions/loading.py on a machine with an H100: a
# batch took 1.2 to 1.7 times a quarter of what it took in the loop. How many workers there are to be had is not
# recorded.
WORKERS = (2, 4, 8)
SLOWER = (1.5, 1.4, 1.0)
# How many times as long the profiler makes loading take: far less than launching, most of it is in libraries.
_STRETCHED = (1.4, 1.2, 1.0)
LOADING_PACE = _STRETCHED[1]
HANDED_OVER_NS = (2_000_000, 500_000, 0)  # what a loop still does for a batch: take it off the queue, have it pinned


def removed(dur_ns: float, left: tuple[float, float, float]) -> Estimate:
    """Estimate one instance of work that is not done any more, but for a share of it (low, mid, high).

    >>> removed(2_000, (0.0, 0.1, 0.5)).after_ns
    Range(low=0, mid=200, high=1000)
    """
    low, mid, high = left
    text = f"{mid:.0%} of this work stays" if low == high else f"{low:.0%} to {high:.0%} of this work stays"
    return Estimate(after_ns=outwards(dur_ns * low, dur_ns * mid, dur_ns * high), assumptions=(f"{text} (assumed)",))


def hidden_by_workers(gap_ns: IntArray, loading_ns: IntArray, rest_ns: IntArray) -> tuple[Range, tuple[str, ...]]:
    """Return the sum over gaps of what workers give back, never more than they last, and the assumptions.

    `loading_ns`: what the loop spent loading in each gap; `rest_ns`: how long the step around each takes without it.

    >>> rest_ns = np.array([100_000_000])
    >>> hidden_by_workers(np.array([57_000_000]), np.array([57_000_000]), rest_ns)[0]
    Range(low=38714285, mid=47000000, high=57000000)
    >>> hidden_by_workers(np.array([57_000_000]), np.array([57_000_000]), rest_ns // 100)[0].mid
    31708333
    """
    ends = []
    for workers, slower, stretched, handed_ns in zip(WORKERS, SLOWER, _STRETCHED, HANDED_OVER_NS, strict=True):
        gap, loading, rest = gap_ns / stretched, loading_ns / stretched, rest_ns / stretched
        waited = np.maximum(slower * loading / workers - rest, handed_ns)
        ends.append(float(np.clip(gap - waited, 0.0, gap_ns).sum()))
    low, mid, high = ends
    fewest, usual, most = WORKERS
    return outwards(min(low, mid), mid, max(mid, high)).at_most(int(gap_ns.sum())), (
        f"{usual} workers load at once ({fewest} at the low end, {most} at the high end), each batch in {SLOWER[1]:g} "
        f"times what the loop takes ({SLOWER[0]:g}; {SLOWER[2]:g}); a step then takes as long as they do or as all "
        "the rest, whichever is longer (assumed)",
        f"recording makes loading take {_STRETCHED[1]:g} times as long ({_STRETCHED[2]:g}–{_STRETCHED[0]:g}, measured "
        "on five loops)",
    )
