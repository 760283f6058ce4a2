"""What a fix saves the step, predicted beside measured: `python benchmarks/step_pairs_report.py DIR...`.

DIR: what record_steps.py wrote. Of each pair: the step before and after the fix, both timed with nothing recording; and
what the findings that the fix answers save of the step, predicted from a recording of the step before. For recordings
with an execution trace and stacks (`both`) and of operators alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tracemine.findings.record import NOTHING, Finding, Range
from tracemine.matching import load_rules
from tracemine.pipeline import Options, scan


@dataclass(frozen=True)
class Line:
    name: str
    before_ns: int
    after_ns: int
    unprofiled_ns: int  # the step before, as estimated
    saving: Range  # predicted, of a step

    @property
    def measured_ns(self) -> int:
        return self.before_ns - self.after_ns

    @property
    def inside(self) -> bool:
        return self.saving.low <= self.measured_ns <= self.saving.high

    @property
    def error(self) -> float:
        """Predicted − measured, as a share of the step."""
        return (self.saving.mid - self.measured_ns) / self.before_ns


def answered(finding: Finding, word: str | None) -> bool:
    """Whether the fix answers this finding, and not one of another module than it changes."""
    return word is None or finding.module is None or word in finding.module.casefold()


def lines_of(folder: Path, kind: str) -> Iterator[Line]:
    for told in sorted(folder.glob("pair_*/step.json")):
        about = json.loads(told.read_text())
        trace = told.parent / kind / "trace.json.gz"
        if "failed" in about or not trace.exists():
            continue
        rules = [rule for rule in load_rules() if rule.id in about["rules"]]  # the fix alone, no other before it
        found = scan(trace, Options(rules=rules))
        step = found.summary.per_step
        if step is None or step.unprofiled_ns is None:
            continue
        chosen = [one.per_step for one in found.findings if answered(one, about["module"]) and one.per_step]
        saving = sum((one.step_saving_ns for one in chosen), NOTHING)
        yield Line(about["name"], about["step_ns"], about["after_ns"], step.unprofiled_ns.mid, saving)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    for kind in ("both", "operators"):
        lines = [line for folder in parser.parse_args().folders for line in lines_of(folder, kind)]
        if not lines:
            continue
        print(f"\n{kind}: step before and estimated, measured, predicted (low, high), ms; error in points of the step")
        for line in lines:
            before, guess, measured, low, mid, high = (
                each / 1e6
                for each in (
                    *(line.before_ns, line.unprofiled_ns, line.measured_ns),
                    *(line.saving.low, line.saving.mid, line.saving.high),
                )
            )
            print(
                f"{line.name:36s} {before:8.3f} {guess:8.3f} {measured:8.3f} {mid:8.3f} ({low:.3f} {high:.3f}) "
                f"{100 * line.error:6.1f} {'' if line.inside else 'outside'}"
            )
        errors = np.abs([line.error for line in lines])
        widths = [(line.saving.high - line.saving.low) / line.before_ns for line in lines]
        print(
            f"{len(lines)} pairs: error {errors.mean():.1%} mean, {np.median(errors):.1%} median; "
            f"{np.mean([line.inside for line in lines]):.0%} in the interval, {np.median(widths):.1%} of the step wide"
        )


if __name__ == "__main__":
    main()
