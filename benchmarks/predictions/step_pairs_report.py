"""What a fix saves the step, predicted beside measured: `python -m benchmarks step_pairs_report DIR...`.

DIR: what record_steps.py wrote. Of each pair: the step before and after the fix, both timed with nothing recording; and
what the findings that the fix answers save of the step, predicted from a recording of the step before. For recordings
with an execution trace and stacks (`both`) and of operators alone, and for `both` where the step's time alone is known,
as `tracemine.capture` knows it. Of several recordings and timings of a pair on one kind of GPU the fastest count: other
load on a host only adds.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.predictions.unprofiled import gpu_of
from tracemine.causes import load_rules
from tracemine.findings.record import NOTHING, Finding, Range, Scan
from tracemine.formats import open_trace
from tracemine.pipeline import ScanOptions, analysed, mined


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
    """Whether the fix answers this finding, and not one of another place than it changes."""
    if word == "optim":
        return re.search(r": (Adam|AdamW|SGD)$", finding.title) is not None
    return word is None or finding.module is None or word in finding.module.casefold()


def scanned(trace: Path, rules: Sequence[str], alone_ns: int | None) -> Scan:
    """The findings of the rules that the fix answers, alone: no other fix before it."""
    timeline = open_trace(trace)
    timeline = replace(timeline, meta=msgspec.structs.replace(timeline.meta, alone_step_ns=alone_ns))
    options = ScanOptions(rules=[rule for rule in load_rules() if rule.id in rules])
    return mined(analysed(timeline, trace), options)


def lines_of(folders: Sequence[Path], kind: str, captured: bool) -> Iterator[Line]:
    """A line a pair and GPU: of its traces the one of the fastest step."""
    told: dict[tuple[str, str], list[dict[str, Any]]] = {}
    traces: dict[tuple[str, str], list[Path]] = {}
    for model in sorted(each for folder in folders for each in folder.glob("pair_*")):
        key = str(gpu_of(model)), model.name
        if (model / "step.json").exists():
            about = json.loads((model / "step.json").read_text())
            told.setdefault(key, []).extend([about] if "after_ns" in about else [])
        traces.setdefault(key, []).extend([trace] if (trace := model / kind / "trace.json.gz").exists() else [])
    for key, abouts in told.items():
        if not abouts or not traces[key]:
            continue
        quietest = min(abouts, key=lambda about: min(about["means_ns"]))  # both of one run: minutes differ
        before_ns, after_ns = min(quietest["means_ns"]), min(quietest["after_means_ns"])
        found = [scanned(trace, abouts[0]["rules"], before_ns if captured else None) for trace in traces[key]]
        found = [one for one in found if one.summary.per_step is not None and one.summary.per_step.unprofiled_ns]
        if found:
            fastest = min(found, key=lambda one: one.summary.per_step.span_ns)
            chosen = [one.per_step for one in fastest.findings if answered(one, abouts[0]["module"]) and one.per_step]
            saving = sum((one.step_saving_ns for one in chosen), NOTHING)
            yield Line(key[1], before_ns, after_ns, fastest.summary.per_step.unprofiled_ns.mid, saving)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    folders = parser.parse_args().folders
    for kind, captured in (("both", True), ("both", False), ("operators", False)):
        lines = list(lines_of(folders, kind, captured))
        if not lines:
            continue
        title = f"{kind}, timed alone" if captured else kind
        print(f"\n{title}: step before and estimated, measured, predicted (low, high), ms; error in points of the step")
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
