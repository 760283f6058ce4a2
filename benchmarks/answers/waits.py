"""What waits for the device are told to be used for, against labels: `python -m benchmarks waits [ARCHIVE]`.

ARCHIVE: recordings and labels of `record_waits.py` as one .tar.xz; by default that of fixtures/waits, of an H200. A
program is told by what most of its waits within steps are for. Printed: precision and recall by use, beside what was
timed what `tracemine top --waits` predicts, and which programs a scan has a finding of their own line for.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tracemine.api.pictures import tops_of
from tracemine.findings.accounting import measure
from tracemine.host.uses import USES, uses_of
from tracemine.host.waits import waits_of
from tracemine.pipeline import Analysis, ScanOptions, analyse, mined
from tracemine.rows.arrow import rows_of
from tracemine.rows.host import host_calls

ARCHIVE = Path(__file__).parents[2] / "fixtures/waits/waits_h200.tar.xz"
_LABELS = {"logging": "log"}
_RULES = ("host_sync", "pageable_copy")  # of findings that are a wait's


class Told(NamedTuple):
    """A program, its label, what its waits are told to be for, and how many a step has."""

    name: str
    label: str
    use: str
    waits: float
    cost_ns: int | None  # a step, as timed; None: not timed without them
    predicted_ns: tuple[int, int, int]  # the same: low, mid, high
    found: str | None  # the rule of a finding at the program's own line; None: there is none


def told(archive: Path = ARCHIVE) -> list[Told]:
    """All programs of an archive."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        labels: dict[str, Any] = json.loads((Path(folder) / "labels.json").read_text())["programs"]
        return [_told(name, label, analyse(Path(folder) / f"{name}.json")) for name, label in labels.items()]


def _told(name: str, label: dict[str, Any], analysis: Analysis) -> Told:
    steps = measure(analysis.timeline).counted
    assert steps is not None
    every = rows_of(analysis.timeline.steps["start_ns"])
    calls, of_ops = host_calls(analysis.timeline)
    waits = waits_of(analysis.timeline, calls, of_ops)
    uses = uses_of(analysis.timeline, waits, every, of_ops)
    inside = np.zeros(len(waits), np.bool_)
    for begin, end in zip(steps.begin_ns.tolist(), steps.end_ns.tolist(), strict=True):
        inside |= (waits.begin_ns >= begin) & (waits.begin_ns < end)
    most = Counter(uses[inside].tolist()).most_common(1)
    use = "none" if not most else "not known" if most[0][0] < 0 else USES[most[0][0]]
    cost = None if label["fixed_ns"] is None else label["step_ns"] - label["fixed_ns"]
    scan = mined(analysis)
    top = tops_of(analysis, scan, ScanOptions()).waits()
    found = [one.rule for one in scan.findings if one.rule in _RULES and name in {each.function for each in one.source}]
    ends = zip(*((row.saving_ns.low, row.saving_ns.mid, row.saving_ns.high) for row in top.rows), strict=True)
    low, mid, high = (sum(end) // top.steps for end in ends) if top.rows else (0, 0, 0)
    label_use = _LABELS.get(label["use"], label["use"])
    return Told(name, label_use, use, inside.sum() / len(steps), cost, (low, mid, high), next(iter(found), None))


def scores(programs: list[Told]) -> dict[str, tuple[int, int, int]]:
    """Of each use: how many are told right, how many are told so, how many are so."""
    uses = sorted({one.label for one in programs} | {one.use for one in programs} - {"not known"})
    return {
        use: (
            sum(one.use == use == one.label for one in programs),
            sum(one.use == use for one in programs),
            sum(one.label == use for one in programs),
        )
        for use in uses
    }


def main() -> None:
    programs = told(Path(sys.argv[1]) if len(sys.argv) > 1 else ARCHIVE)
    for one in programs:
        low, mid, high = (each / 1e3 for each in one.predicted_ns)
        cost = "" if one.cost_ns is None else f"{one.cost_ns / 1e3:5.0f} timed"
        print(
            f"{one.name:18} {one.label:12} {one.use:12} {one.waits:4.1f} waits a step, "
            f"µs: {mid:4.0f} ({low:.0f} to {high:.0f}) {cost} {one.found or 'no finding'}"
        )
    timed = [one for one in programs if one.cost_ns is not None]
    within = sum(one.predicted_ns[0] <= one.cost_ns <= one.predicted_ns[2] for one in timed)
    print(f"what was timed lies within what was predicted for {within} of {len(timed)}")
    for waits in (True, False):
        some = [one for one in programs if (one.label != "none") == waits]
        found = sum(one.found is not None for one in some)
        print(f"{'waits' if waits else 'no wait'} in the source: a finding of its line for {found} of {len(some)}")
    for use, (right, said, so) in scores(programs).items():
        print(f"{use:12} precision {right} of {said}, recall {right} of {so}")


if __name__ == "__main__":
    main()
