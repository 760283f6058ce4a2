"""What a graph and torch.compile's modes left of steps beside what was said: `python -m benchmarks measured_modes`.

Of programs in which they were tried (`h200/programs`, `h200/programs_unseen`): how many intervals hold and how wide
they are, as `top --graphs` says them and as `apply` does, each program by what the others teach. `--write`: the table
that `apply` reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from programs import score  # noqa: E402
from programs.graphs import NAMES  # noqa: E402
from tracemine.api.pictures import tops_of  # noqa: E402
from tracemine.apply.asked import Shares, likely_of, mode_row, within  # noqa: E402
from tracemine.findings.alone import MeasuredBySaid  # noqa: E402
from tracemine.pipeline import ScanOptions, analyse, mined  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "h200"
TABLE = ROOT / "tracemine" / "apply" / "modes.toml"
ROUNDING, GAIN = 0.005, 0.05
HEAD = """\
# By mode and by who sets the pace of the step, in so many programs: what the mode left of a step by what was said to be
# left (1.0: as said), least and most. `python -m benchmarks measured_modes --write` writes it.

"""


@dataclass(frozen=True)
class Tried:
    """A mode that was tried in a program: shares of the step."""

    program: str
    row: str
    saved: float
    said: Shares

    @property
    def left(self) -> float:
        return (1 - self.saved) / (1 - self.said[1])

    def inside(self) -> bool:
        return self.said[0] - ROUNDING <= self.saved <= self.said[2] + ROUNDING


def tried() -> Iterator[Tried]:
    """Yield modes that ran and computed the same, in programs whose recordings are kept."""
    for folder in (RESULTS / "programs", RESULTS / "programs_unseen"):
        for name, variants in json.loads((folder / "runs.json").read_text())["programs"].items():
            timed = {NAMES[mode]: one for mode, one in variants.items() if mode in NAMES and score.usable(one)}
            if not (folder / name / "capture.json").exists() or not timed:
                continue
            analysis = analyse(folder / name)
            scan = mined(analysis)
            step, graphs = scan.summary.per_step, tops_of(analysis, scan, ScanOptions()).graphs()
            whole = step.unprofiled_ns.mid * graphs.steps
            for way, likely in likely_of(graphs, step).items():
                if way in timed:
                    savings = [span.way(way).saving_ns for span in (graphs.step, *graphs.spans)]
                    best = max(filter(None, savings), key=lambda saving: saving.mid)
                    saved = 1 - timed[way]["step_ns"] / variants["eager"]["step_ns"]
                    yield Tried(name, mode_row(way, step), saved, (best.low / whole, likely, best.high / whole))


def learnt(those: Sequence[Tried]) -> MeasuredBySaid:
    times = sorted(one.left for one in those)
    return MeasuredBySaid(programs=len(times), least=round(times[0], 2), most=round(times[-1], 2))


def left_out(those: Sequence[Tried]) -> list[Tried]:
    """Return each as it is said by what the others teach."""
    others = [learnt([other for other in those if other is not one]) for one in those]
    return [
        Tried(one.program, one.row, one.saved, within(one.said[1], row)) for one, row in zip(those, others, strict=True)
    ]


def cells(those: Sequence[Tried]) -> list[str]:
    """Say how many hold, and how wide they are: of the step, and of the saving where there is one."""
    wide = [one.said[2] - one.said[0] for one in those]
    gains = [width / one.saved for width, one in zip(wide, those, strict=True) if one.saved >= GAIN]
    return [
        str(sum(map(Tried.inside, those))),
        f"{statistics.median(wide):.2f}",
        f"{statistics.median(gains):.2f}" if gains else "–",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    by_row: dict[str, list[Tried]] = defaultdict(list)
    for one in tried():
        by_row[one.row].append(one)
    print("| mode, pace | programs | hold | width, of step | of saving | hold, left out | width, of step | of saving |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    every = list[Tried](), list[Tried]()
    for row, those in sorted(by_row.items()):
        for one, kind in zip((those, left_out(those)), every, strict=True):
            kind.extend(one)
        print("|", " | ".join([row, str(len(those)), *cells(those), *cells(left_out(those))]), "|")
    print("|", " | ".join(["all", str(len(every[0])), *cells(every[0]), *cells(every[1])]), "|")
    if given.write:
        lines = [
            f"{row} = {{ programs = {one.programs}, least = {one.least}, most = {one.most} }}\n"
            for row, those in sorted(by_row.items())
            for one in [learnt(those)]
        ]
        TABLE.write_text("".join([HEAD, *lines]), "utf-8")


if __name__ == "__main__":
    main()
