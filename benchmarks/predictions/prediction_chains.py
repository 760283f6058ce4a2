"""What fusing a recorded pattern saves, as a scan of its trace tells it, beside what torch.compile's kernels took.

prediction.py prints it. point_traces.py writes the traces, with an execution trace and without: without one the bytes
of a chain are a guess, which prediction_points.py does not see. A family is one pattern at all its sizes, and an
interval is held against families that it was not fitted to: see `fitted`.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tracemine
from benchmarks.predictions.point_traces import Step, operators_of, write_trace

HELD = (0.85, 0.95)  # of all points, where 90 % are meant
HELD_IN_FAMILY = 0.75  # of each family of FAMILY points or more
FAMILY = 10
WIDTH = {False: 26.0, True: 16.5}  # points of unfused time, at most, on average: without an execution trace, and with
WITHIN, MOST = 5.0, 12.0  # points of unfused time: mean error, and nine in ten
NOTHING = 0.03  # of unfused time: below, the sign of a saving is noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One pattern at one size, cold or warm, scanned with or without an execution trace. Nanoseconds a step."""

    family: str
    gpu: str
    label: str
    told: bool  # an execution trace was there
    kernels: int  # of eager
    unfused: int
    fused: int  # as torch.compile's kernels took
    low: float
    mid: float
    high: float
    claimed: bool

    @property
    def error(self) -> float:
        """Points of unfused time; above 0 is predicted slower than it was."""
        return 100 * (self.mid - self.fused) / self.unfused

    @property
    def width(self) -> float:
        return 100 * (self.high - self.low) / self.unfused

    @property
    def held(self) -> bool:
        return self.low <= self.fused <= self.high

    @property
    def right_sign(self) -> bool:
        saved = self.unfused - self.fused
        return saved * (self.unfused - self.mid) > 0 or abs(saved) < NOTHING * self.unfused


# -- scanning ----------------------------------------------------------------------------------------------------------


def chains_of(path: Path, names: Sequence[str], every: int) -> Iterator[Chain]:
    """Return what is told of each `every`th point in a file, with an execution trace and without."""
    recorded = json.loads(path.read_text("utf-8"))
    points = [point for point in recorded["points"] if not names or point["pattern"] in names]
    for at, point in enumerate(points):
        if at % every == 0 and point["fused"]:
            yield from _of_point(recorded["gpu"], point)


def _of_point(gpu: str, point: dict[str, Any]) -> Iterator[Chain]:
    steps = operators_of(point["pattern"], point["size"], point["dtype"])
    for state in ("cold", "warm"):
        durations = spread(point[f"eager_{state}_ns"], point["eager_warm_ns"])
        if len(durations) != steps[0].kernels:
            continue  # eager on the GPU launched others than it does without data
        for told in (False, True):
            low, mid, high, claimed = _scanned(gpu, steps, durations, told)
            yield Chain(
                family=point["pattern"],
                gpu=gpu,
                label=f"{point['dtype']} {'x'.join(map(str, point['size']))} {state}",
                told=told,
                kernels=len(durations),
                unfused=sum(durations),
                fused=sum(point[f"compiled_{state}_ns"]),
                low=sum(durations) - high,
                mid=sum(durations) - mid,
                high=sum(durations) - low,
                claimed=claimed,
            )


def spread(durations: Sequence[int], shares: Sequence[int]) -> list[int]:
    """Return durations kernel by kernel, where their sum alone was kept: as the others' shares are.

    >>> spread([100], [10, 30]), spread([5, 6], [10, 30])
    ([25, 75], [5, 6])
    """
    if len(durations) > 1 or len(shares) < 2:
        return list(durations)
    return [round(durations[0] * one / sum(shares)) for one in shares]


def _scanned(gpu: str, steps: Sequence[Step], durations: Sequence[int], told: bool) -> tuple[float, float, float, bool]:
    """Return the saving of GPU time a step that all findings together claim, and whether any does."""
    folder = Path(tempfile.mkdtemp())
    try:
        report = tracemine.scan(write_trace(folder, gpu, steps, durations, told), min_saving="0us")
        savings = [finding.gpu_saving_ns for finding in report.findings]
    finally:
        shutil.rmtree(folder)
    low, mid, high = (sum(getattr(one, end) for one in savings) / len(steps) for end in ("low", "mid", "high"))
    return low, mid, high, high > 0


# -- scores ------------------------------------------------------------------------------------------------------------


def fitted(chains: Sequence[Chain]) -> float:
    """Return how many times as far, in logarithms, the ends must reach from the middle to hold nine points in ten."""
    return float(np.quantile([_reach(one) for one in chains], 0.9)) if chains else math.nan


def left_out(chains: Sequence[Chain]) -> tuple[float, float]:
    """Return which share is held, and how wide, when ends reach as far as all other families make them."""
    held, width = [], []
    for family in sorted({one.family for one in chains}):
        reach = fitted([one for one in chains if one.family != family])
        for one in chains:
            if one.family == family:
                low, high = one.mid * (one.low / one.mid) ** reach, one.mid * (one.high / one.mid) ** reach
                held.append(_reach(one) <= reach)
                width.append(100 * (min(high, one.unfused) - low) / one.unfused)
    return float(np.mean(held)), float(np.mean(width))


def _reach(one: Chain) -> float:
    """Return how far from the middle the measured time is, where an end is at 1."""
    off, end = math.log(one.fused / one.mid), one.high if one.fused > one.mid else one.low
    return abs(off) / max(abs(math.log(max(end, 1.0) / one.mid)), 1e-3)


def line(name: str, chains: Sequence[Chain]) -> str:
    errors = np.array([one.error for one in chains])
    cells = (
        f"{len(chains)}",
        f"{np.abs(errors).mean():.1f}",
        f"{np.quantile(np.abs(errors), 0.9):.1f}",
        f"{errors.mean():+.1f}",
        f"{np.mean([one.right_sign for one in chains]):.0%}",
        f"{np.mean([one.held for one in chains]):.0%}",
        f"{np.mean([one.width for one in chains]):.0f}",
    )
    return f"| {name} | {' | '.join(cells)} |"


def tables(chains: Sequence[Chain]) -> list[str]:
    """Return tables by family, with an execution trace and without, and what is not claimed."""
    lines = []
    for told in (False, True):
        own = [one for one in chains if one.told == told and one.claimed]
        silent = [one for one in chains if one.told == told and not one.claimed]
        if not own:
            continue
        lines += ["", f"{'With' if told else 'Without'} an execution trace, points of unfused time:", ""]
        lines += ["| family | points | mean error | p90 | bias | sign | held | width |", "|---|" + "---:|" * 7]
        families = defaultdict(list)
        for one in own:
            families[one.family].append(one)
        for name, each in sorted(families.items(), key=lambda kv: -np.mean([abs(one.error) for one in kv[1]])):
            lines.append(line(name, each))
        lines.append(line("all", own))
        for gpu in sorted({one.gpu for one in own}):
            lines.append(line(gpu, [one for one in own if one.gpu == gpu]))
        held, width = left_out(own)
        lines.append(f"\neach family left out of the fit: {held:.0%} held, {width:.0f} points wide")
        several = [one for one in silent if one.kernels > 1]
        lines.append(f"nothing claimed: {len(silent) - len(several)} of one kernel, {len(several)} of several:")
        lines.append(", ".join(sorted({one.family for one in several})))
    return lines


def faults(chains: Sequence[Chain]) -> list[str]:
    """Return what keeps the predictions from being as good as they are said to be."""
    found = []
    for told in (False, True):
        own = [one for one in chains if one.told == told and one.claimed]
        where = f"{'with' if told else 'without'} an execution trace"
        if not own:
            continue
        held = float(np.mean([one.held for one in own]))
        if not HELD[0] <= held <= HELD[1]:
            found.append(f"{where}: {held:.1%} held, not {HELD[0]:.0%} to {HELD[1]:.0%}")
        width = float(np.mean([one.width for one in own]))
        if width > WIDTH[told]:
            found.append(f"{where}: {width:.1f} points wide, more than {WIDTH[told]:g}")
        for family in sorted({one.family for one in own}):
            each = [one.held for one in own if one.family == family]
            if len(each) >= FAMILY and np.mean(each) < HELD_IN_FAMILY:
                found.append(f"{where}, {family}: {np.mean(each):.0%} of {len(each)} held")
        found += [f"{where}, {one.family} {one.label}: no width" for one in own if one.high <= one.mid]
    return found


def keep(chains: Sequence[Chain], path: Path) -> None:
    """Write them, one a line."""
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in chains), "utf-8")


def kept(path: Path) -> list[Chain]:
    """Read what `keep` wrote."""
    return [Chain(**json.loads(text)) for text in path.read_text("utf-8").splitlines()]
