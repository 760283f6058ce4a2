"""Gaps closed: the idle time above what a graph replay leaves, without the profiler's part of it."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.perfmodel.ranges import Range
from tracemine.rows.table import FloatArray, IntArray
from tracemine.tables import table_beside
from tracemine.units import ratio_text

# What a graph replay leaves between two kernels. 1–1.3 µs a node is reported for Hopper; on an H200 replays of whole
# models took 0.1–0.7 µs a node more than their kernels together: benchmarks/predictions/step_savings.py.
REPLAY_FLOOR_NS = 500
# What any kernel takes, however little it does: so much of each goes with its launch where one call does all rounds.
KERNEL_NS = 2_500
# What the host spends on a call of a function that torch.compile compiled, guards and launcher, beyond an operator's.
# Functions of a few operators: 22 to 29 µs, once 52, on one host (`compiled_*` of
# benchmarks/predictions/step_pairs_report.py); on another 57, 68 and 170 µs more than the launches that went, in loops
# (benchmarks/programs/score.py, H200).
COMPILED_CALL_NS = Range(20_000, 60_000, 170_000)
# The same of a model's forward and backward pass in training, once compiled: as CUDA graphs and in the default mode.
# Networks of a dozen layers lost 0.5 to 0.9 ms a step by the default mode, and as graphs won 0.5 to 1.7 ms less than
# their gaps (benchmarks/programs/score.py, the programs that texts were chosen with).
TRAINED_CALL_NS = {"in_training": Range(200_000, 600_000, 1_700_000), "compiled": Range(300_000, 900_000, 2_000_000)}
# By cause of a gap: the share of what lies above the floor that closing it gives back (low, mid, high).
_GAP_SHARE: dict[str, tuple[float, float, float]] = table_beside(__file__, "gaps.toml")["share"]
_GAP_SHARE_OTHERWISE = (0.0, 0.25, 1.0)


class Slowdown(Struct, frozen=True):
    """Slowdown of the host while something is recorded: least, usual, most."""

    what: str
    least: float
    usual: float
    most: float
    measured: str = "measured on other models"
    spread: float = 1.2  # of what is measured on a trace's own steps, either way
    floor: float = 1.0  # two timings may show a host that is slower alone, where recording costs little
    on_these: str = "recording"  # what it is called then
    host: float | None = None  # how much longer the host took, where what that cost each call is taken off already

    def of_these(self, usual: float) -> Slowdown:
        """Return what was measured on a trace's own steps."""
        least, most = (max(self.floor, round(usual * each, 3)) for each in (1 / self.spread, self.spread))
        return replace(
            self, what=self.on_these, least=least, usual=usual, most=most, measured="measured on these steps"
        )


# The pace of the host at which a recorded step replays in the time that it takes unprofiled: the 5th
# percentile, the median and the 95th over 90 model families on an H100's and an H200's hosts, steps timed in processes
# that had recorded nothing (benchmarks/predictions/unprofiled.py; results in benchmarks/results/steps_h100_h200.md).
# The medians of the two hosts lie within 7 % of each other. A function of operators a launch, of the time that an
# operator or a launch call takes, or of the kind of step predicted no better than the median, each family left out by
# itself; so there is none.
_LIGHT = "recording the light window"
SLOWDOWNS = {
    "operators": Slowdown("recording operators", 1.4, 2.0, 3.1),
    "stacks": Slowdown("recording Python stacks", 1.7, 2.4, 3.7),
    "execution_trace": Slowdown("recording an execution trace in the same window", 3.5, 5.3, 9.2),
    "both": Slowdown("recording an execution trace and Python stacks in the same window", 3.9, 6.1, 11.0),
    # What steps of 28 JAX 0.11 programs take on an H200 beyond the device's work, recorded over alone: tenth, median
    # and ninth tenth (benchmarks/programs/jax_pairs.py); of three on an H100 1.4 to 2.2. Python's tracer is on.
    "jax": Slowdown("recording with jax.profiler", 1.3, 1.7, 2.9),
    # The same of five whose loops (`lax.scan`) replay a graph an iteration: each launch costs the recorder.
    "jax_loops": Slowdown("recording with jax.profiler the graphs of a loop", 2.3, 3.3, 8.0),
    # The step in a light window over the step alone, of 35 programs that an H200's host holds up: tenth, median, ninth
    # tenth (benchmarks/results/light_h200.md).
    "light": Slowdown(_LIGHT, 1.0, 1.4, 2.1, spread=1.06, floor=0.5, on_these=_LIGHT),
}


# What an event on the host costs JAX's recorder, of the step beyond the step alone: the median of 12 programs with more
# than 300 a step on an H100 and an H200 (0.65 to 2.9 µs). Op by op, with Python's frames, that is most of a step.
JAX_EVENT_NS = 1_100
_DEVICE_BOUND = 1.06  # a step within this of what an endlessly fast host reaches has its pace set by the device


def fitted_slowdown(paces: FloatArray, step_ns: FloatArray, alone_step_ns: int, others: Slowdown) -> Slowdown:
    """Return the pace of the host at which a recorded step would take as long as it takes alone; a sixth either way.

    `step_ns`: how long it would take at each of `paces`, which grow from 1; so of the host's part of a step. Where the
    device sets the pace a faster host changes nothing: the step tells only the least pace that comes within a hundredth
    of what can be reached. So `others`, what recording costs other models, counts where it is more.

    >>> others = SLOWDOWNS["both"]
    >>> fitted_slowdown(np.array([1.0, 2.0, 3.0]), np.array([6e6, 3e6, 2e6]), 3_000_000, others).usual
    2.0
    >>> fitted_slowdown(np.array([1.0, 2.0, 3.0]), np.array([6e6, 6e6, 6e6]), 6_000_000, others).usual
    6.1
    """
    target = max(alone_step_ns, 1.01 * float(step_ns.min()))
    at = int(np.argmax(step_ns <= target))  # the first
    pace = float(paces[at])
    if at and step_ns[at - 1] > step_ns[at]:
        part = (step_ns[at - 1] - target) / (step_ns[at - 1] - step_ns[at])
        pace = float(paces[at - 1] + part * (paces[at] - paces[at - 1]))
    usual = round(pace, 3)
    if min(float(step_ns[0]), alone_step_ns) <= _DEVICE_BOUND * float(step_ns.min()) and usual < others.usual:
        return replace(others, least=max(others.least, usual))
    return others.of_these(usual)


def closed_gaps(
    dur_ns: IntArray,
    cause: str | None,
    alone_ns: tuple[IntArray, IntArray, IntArray] | None = None,
    slowdown: Slowdown | None = None,
) -> tuple[Range, tuple[str, ...]]:
    """Return what closing gaps of one cause gives back, never more than they last, and the assumptions.

    `alone_ns`: how long each gap is unprofiled, with all done that was found before: least, usual, most.
    `slowdown` says what was taken off for that.

    >>> closed_gaps(np.array([11_000, 600]), "host_bound")[0]
    Range(low=5300, mid=10600, high=11600)
    >>> closed_gaps(np.array([11_000, 600]), "in_one_call")[0]
    Range(low=4640, mid=11020, high=11600)
    >>> least, usual, most = np.array([2_500, 0]), np.array([4_500, 0]), np.array([7_500, 600])
    >>> closed_gaps(np.array([11_000, 600]), "host_bound", (least, usual, most), SLOWDOWNS["stacks"])[0]
    Range(low=1000, mid=4000, high=8100)
    """
    low, mid, high = _GAP_SHARE.get(cause or "", _GAP_SHARE_OTHERWISE)
    floor_ns = 0 if cause == "in_one_call" else REPLAY_FLOOR_NS  # there no kernel is left behind it
    least, usual, most = (dur_ns, dur_ns, dur_ns) if alone_ns is None else alone_ns
    leaves = f"a graph replay or one launch leaves {floor_ns / 1000:g} µs" if floor_ns else "one call leaves nothing"
    assumptions: tuple[str, ...] = (
        f"{leaves} between two kernels; of what is above it "
        f"{low:.0%} (low) to {mid:.0%} (mid) comes back, and at most {high:.0%} of the gap (assumed)",
    )
    if slowdown is not None and slowdown.host is not None:
        times = ratio_text(slowdown.host)
        assumptions += (f"gaps are measured: {slowdown.what} makes the host take {times} times as long",)
    elif slowdown is not None:
        assumptions += (
            f"{slowdown.what} makes the host take {ratio_text(slowdown.usual)} times as long "
            f"({slowdown.least:g}–{slowdown.most:g}, {slowdown.measured}): gaps count as they last without it",
        )
    lower, middle, upper = (
        int(np.maximum(least - floor_ns, 0).sum() * low),
        int(np.maximum(usual - floor_ns, 0).sum() * mid),
        int(most.sum() * high),
    )
    # Once launches are gone, a gap can be shorter where the host is slower: it waits elsewhere.
    saving = Range(min(lower, middle), middle, max(middle, upper))
    return saving.at_most(int(dur_ns.sum())), assumptions  # a product can round up
