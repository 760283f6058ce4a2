"""What closing gaps gives back: the idle time above what a graph replay leaves, without the profiler's part of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracemine.cost.ranges import Range
from tracemine.rows.table import IntArray

# What a graph replay leaves between two kernels; 1–1.3 µs a node is reported for Hopper.
REPLAY_FLOOR_NS = 1_000
# By cause of a gap: the share of what lies above the floor that closing it gives back (low, mid, high).
_GAP_SHARE = {
    "launch_latency": (0.5, 1.0, 1.0),
    "host_bound": (0.5, 1.0, 1.0),
    "synchronisation": (0.0, 0.5, 1.0),
    "allocator": (0.0, 1.0, 1.0),
    "module_load": (0.0, 0.5, 1.0),
    "compilation": (0.0, 0.5, 1.0),
    "data_loading": (0.0, 0.5, 1.0),
    "graph_launch": (0.0, 0.5, 1.0),
    "graph_not_recorded": (0.0, 0.0, 0.0),  # the device may have been busy
}
_GAP_SHARE_OTHERWISE = (0.0, 0.25, 1.0)
# Gaps that are as long as the host's own Python and dispatching takes, which recording slows.
_SLOWED = frozenset({"host_bound", "data_loading", "compilation", "graph_launch"})


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How many times as long the host takes while something is recorded: least, usual, most."""

    what: str
    least: float
    usual: float
    most: float
    measured: str = "measured on small models"


# Recorded step ÷ step alone of small models whose host sets the pace, torch 2.11 on a machine with an H200: measured by
# benchmarks/recording.py, see benchmarks/results/recording_h200.md.
SLOWDOWNS = {
    "operators": Slowdown("recording operators with their shapes", 1.2, 1.5, 1.6),
    "stacks": Slowdown("recording Python stacks", 1.3, 1.65, 1.8),
    "execution_trace": Slowdown("recording an execution trace in the same window", 1.9, 4.5, 5.0),
}


def measured_slowdown(alone_step_ns: int, recorded_step_ns: int) -> Slowdown:
    """What recording did to these very steps; a tenth either way, because steps differ.

    >>> measured_slowdown(1_000_000, 1_500_000).usual
    1.5
    """
    times = round(max(1.0, recorded_step_ns / alone_step_ns), 3)
    return Slowdown(
        "recording", max(1.0, round(0.9 * times, 3)), times, round(1.1 * times, 3), "measured on these steps"
    )


def closed_gaps(
    dur_ns: IntArray, cause: str | None, busy_before_ns: IntArray | None = None, slowdown: Slowdown | None = None
) -> tuple[Range, tuple[str, ...]]:
    """Σ over gaps of one cause of what closing them gives back, never more than they last, and the assumptions.

    A gap in which the device waits for the host is shorter where nobody records: from one gap to the next the host
    took as long as the device was busy (`busy_before_ns`) and then idle, and `slowdown` made that longer.

    >>> closed_gaps(np.array([11_000, 600]), "host_bound")[0]
    Range(low=5000, mid=10000, high=11600)
    >>> closed_gaps(np.array([11_000, 600]), "host_bound", np.array([5_000, 5_000]), SLOWDOWNS["stacks"])[0]
    Range(low=1444, mid=3696, high=7307)
    """
    low, mid, high = _GAP_SHARE.get(cause or "", _GAP_SHARE_OTHERWISE)
    total = int(dur_ns.sum())
    assumptions: tuple[str, ...] = (
        f"a graph replay or one launch leaves {REPLAY_FLOOR_NS / 1000:g} µs between two kernels; of what is above it "
        f"{low:.0%} (low) to {mid:.0%} (mid) comes back, and the whole gap at the high end (assumed)",
    )
    if slowdown is None or busy_before_ns is None or cause not in _SLOWED:
        least = usual = most = dur_ns
    else:
        busy = busy_before_ns
        least, usual, most = (
            np.clip(((busy + dur_ns) / times - busy).astype(np.int64), 0, dur_ns)
            for times in (slowdown.least, slowdown.usual, slowdown.most)
        )
        assumptions += (
            f"{slowdown.what} makes the host take {slowdown.usual:g} times as long "
            f"({slowdown.least:g}–{slowdown.most:g}, {slowdown.measured}): gaps count as they last without it",
        )
    saving = Range(
        int(np.maximum(most - REPLAY_FLOOR_NS, 0).sum() * low),
        int(np.maximum(usual - REPLAY_FLOOR_NS, 0).sum() * mid),
        int(least.sum() * high),
    )
    return saving.at_most(total), assumptions  # a product can round up
