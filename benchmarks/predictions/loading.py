"""Predicted beside measured: what workers give back of the time that a loop waits for its data.

    python -m benchmarks loading DIR [--public FOLDER]

DIR is what record_loading.py made: of each loop a trace with `num_workers=0`, and what a step takes with nothing
recording, with none and with four workers. FOLDER has PyTorch's own pair, kineto_resnet50_nw0_a.json.gz and
kineto_resnet50_nw4_b.json.gz (both recorded: what was saved is the difference of two recorded spans). Per step;
the loop was timed several times: the median counts, and least and most say how much the host's own time varies. Exits
with 1 where something measured lies outside its interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.findings import steps as steps_module
from tracemine.pipeline import scan
from tracemine.units import time_text

PUBLIC = ("kineto_resnet50_nw0_a.json.gz", "kineto_resnet50_nw4_b.json.gz")


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop; a step's nanoseconds."""

    name: str
    before: tuple[int, ...]  # each time that it was measured
    after: int
    low: int
    mid: int
    high: int
    rank: int  # of the finding in the scan; 0: there is none

    @property
    def saved(self) -> int:
        return round(median(self.before)) - self.after

    @property
    def holds(self) -> bool:
        return self.low <= self.saved <= self.high

    def line(self) -> str:
        least, most = min(self.before) - self.after, max(self.before) - self.after
        cells = (self.saved, least, most, self.mid, self.low, self.high)
        error = 100 * (self.mid - self.saved) / median(self.before)
        return (
            f"| {self.name} | {' | '.join(time_text(ns) for ns in cells)} | {error:+.0f} | "
            f"{(self.high - self.low) / max(self.saved, 1):.1f} | {self.rank} | {'yes' if self.holds else 'NO'} |"
        )


def loop(name: str, trace: Path, before: tuple[int, ...], after: int, steps: int | None = None) -> Loop:
    """`steps`: whose waiting the trace shows; all gaps but the first batch's lie between two of its steps."""
    found = scan(trace)
    at = next((at for at, finding in enumerate(found.findings) if finding.rule == "data_loading"), None)
    if at is None:
        return Loop(name, before, after, 0, 0, 0, 0)
    finding = found.findings[at]
    saving, count = finding.step_saving_ns, steps or finding.occurrences
    return Loop(name, before, after, saving.low // count, saving.mid // count, saving.high // count, at + 1)


def recorded(folder: Path) -> list[Loop]:
    """The loops of record_loading.py."""
    found = []
    for one in sorted(folder.glob("*/step.json")):
        step = json.loads(one.read_text("utf-8"))
        before = tuple(step.get("none_means_ns") or (step["none_ns"], step["none_again_ns"]))
        found.append(loop(step["name"], one.parent / "trace" / "trace.json.gz", before, step["workers_ns"]))
    return found


def public(folder: Path) -> list[Loop]:
    """PyTorch's own pair: spans of as many steps.

    Both were recorded, so the saving of the recorded step is what they tell: as if recording had cost nothing.
    """
    steps_module.slowdown_of = lambda timeline: None  # type: ignore[assignment]
    none, four = (folder / name for name in PUBLIC)
    if not none.exists():
        return []
    before, after = scan(none).summary, scan(four).summary
    steps = scan(none).trace.steps
    return [loop("resnet50, public", none, (before.span_ns // steps,), after.span_ns // steps, steps)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--public", type=Path)
    chosen = parser.parse_args()
    loops = recorded(chosen.folder) + (public(chosen.public) if chosen.public else [])
    print("| loop | saved a step | least | most | predicted | low | high | off, % of a step | width | rank | held |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(one.line() for one in loops))
    print(f"\nheld: {sum(one.holds for one in loops)} of {len(loops)}")
    return int(not all(one.holds for one in loops))


if __name__ == "__main__":
    sys.exit(main())
