"""GPU time of optimizers' steps, predicted beside measured: `python -m benchmarks optimizer_pairs DIR...`.

DIR: what record_fixes.py wrote. Of each pair whose optimizer was made fused: what its step took before, what one pass
is predicted to take, and what the fused step took, in one step of the program.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.findings.record import Range
from tracemine.formats import open_trace
from tracemine.pipeline import analyse, mined
from tracemine.rows.activities import update_columns


@dataclass(frozen=True)
class Line:
    name: str
    before_ns: int
    after_ns: int
    predicted: Range

    @property
    def error(self) -> float:
        """Predicted − measured, as a share of the unfused time."""
        return (self.predicted.mid - self.after_ns) / self.before_ns

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.after_ns <= self.predicted.high


def measured_ns(trace: Path) -> int:
    """GPU time of all optimizers' steps, of one step of the program."""
    timeline = open_trace(trace)
    inside = update_columns(timeline)["update"].valid
    return int(np.asarray(timeline.activities["dur_ns"])[inside].sum()) // timeline.steps.num_rows


def lines_of(folder: Path) -> Iterator[Line]:
    for pair in sorted(each for each in folder.iterdir() if (each / "before").is_dir() and (each / "after").is_dir()):
        scan = mined(analyse(pair / "before"))
        found = [one for one in scan.findings if one.rule == "optimizer_unfused" and one.fused_ns is not None]
        if found:
            steps = max(scan.trace.steps, 1)
            predicted = sum((one.fused_ns for one in found if one.fused_ns is not None), Range(0, 0, 0)) // steps
            yield Line(pair.name, measured_ns(pair / "before"), measured_ns(pair / "after"), predicted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    lines = [line for folder in parser.parse_args().folders for line in lines_of(folder)]
    print("pair: optimizer's step before, fused as measured, as predicted (low, high), µs; error in points of before")
    for line in lines:
        before, after, low, mid, high = (
            each / 1e3
            for each in (line.before_ns, line.after_ns, line.predicted.low, line.predicted.mid, line.predicted.high)
        )
        where = "" if line.inside else "outside"
        print(
            f"{line.name:28s} {before:8.1f} {after:8.1f} {mid:8.1f} ({low:.1f} {high:.1f}) "
            f"{100 * line.error:6.1f} {where}"
        )
    if lines:
        errors = np.abs([line.error for line in lines])
        held = np.mean([line.inside for line in lines])
        print(f"{len(lines)} pairs: error {errors.mean():.1%} of the unfused time, {held:.0%} in the interval")


if __name__ == "__main__":
    main()
