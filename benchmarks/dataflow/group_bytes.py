"""What one kernel in place of a group moves, with an execution trace and without: how far off, and how wide.

    python -m benchmarks group_bytes DIR [NAME...]

DIR holds recordings as record_models.py makes them, a folder each: both/trace.json.gz and both/et.json.gz are of the
same steps. Each trace is read with its execution trace and without. Groups of the same activities are compared, those
from 256 KB on: the bytes that the execution trace proves beside those that are inferred from shapes, and the fused time
predicted of the proven bytes (mid) beside the interval without. How often that holds it, and the opposite, how wide
it is as a share of the saving (median, and of all together), without and with an execution trace, stand in one line. A
second table says what makes intervals wide: by class of kernel, and by how much fusing saves.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.findings import device_of
from tracemine.flow import Evidence
from tracemine.perfmodel import Curves, Estimate, Range, Unfused, one_kernel
from tracemine.pipeline import Analysis, analyse

LEAST_BYTES = 256 << 10
BY_RATIO = (1, 1.5, 2, 3, 5, np.inf)


@dataclass(frozen=True, slots=True)
class Group:
    """One group as one recording tells it."""

    evidence: int
    nbytes: int
    measured_ns: int
    after_ns: Range
    kind: str  # class of kernel, of tracemine.perfmodel.ranges


@dataclass(frozen=True, slots=True)
class Pair:
    """The same activities, with an execution trace and without."""

    proven: Group
    inferred: Group


def groups_of(analysis: Analysis, curves: Curves) -> Iterator[tuple[tuple[int, ...], Group]]:
    """Each group by its activities; one instance's own durations."""
    found = analysis.groups
    durations = np.asarray(analysis.timeline.activities["dur_ns"].to_numpy())
    for at in range(len(found)):
        if found.kernel[at] < 0:
            continue
        activities = found.activity[found.activity_begin[at] : found.activity_begin[at + 1]]
        nodes = found.node[found.begin[at] : found.begin[at + 1]].tolist()
        owner = found.activity_node[activities]
        members = [
            Unfused(
                reads=int(found.node_reads[node]),
                writes=int(found.node_writes[node]),
                dur_ns=float(durations[activities[owner == node]].sum()),
            )
            for node in nodes
        ]
        estimate = one_kernel(
            found.kernels[found.kernel[at]],
            members,
            curves,
            sure=found.evidence[at] != Evidence.ADJACENT,
            product_bytes=int(found.product_bytes[at]),
            more=(int(found.more_reads[at]), int(found.more_writes[at])),
        )
        assert isinstance(estimate, Estimate)  # there are curves
        kernel = found.kernels[found.kernel[at]]
        kind = curves.predict(kernel, curves.warmth(kernel, members)).kind
        measured = int(durations[activities].sum())
        after = estimate.after_ns.at_most(measured)
        yield (
            tuple(activities.tolist()),
            Group(int(found.evidence[at]), int(found.bytes_after[at]), measured, after, kind),
        )


def pairs(folder: Path) -> list[Pair]:
    """The groups of one recording that are the same with its execution trace and without."""
    trace, proof = folder / "both" / "trace.json.gz", folder / "both" / "et.json.gz"
    with tempfile.TemporaryDirectory() as elsewhere:
        alone = Path(shutil.copy(trace, elsewhere))  # what lies beside a trace is read with it
        proven, inferred = analyse(trace, execution_trace=proof), analyse(alone)
    device = device_of(proven.timeline)
    curves = None if device is None else Curves.of(device)
    if curves is None:
        raise SystemExit(f"{trace}: no calibration of its GPU")
    with_proof, without = dict(groups_of(proven, curves)), dict(groups_of(inferred, curves))
    both = ((with_proof[key], without[key]) for key in with_proof.keys() & without.keys())
    return [Pair(one, other) for one, other in both if one.nbytes >= LEAST_BYTES and one.measured_ns > one.after_ns.mid]


def line(name: str, own: list[Pair]) -> str:
    if not own:
        return f"| {name} | 0 | | | | | | | |"
    ratio = np.array([pair.inferred.nbytes / pair.proven.nbytes for pair in own])
    error = [100 * abs(p.inferred.after_ns.mid - p.proven.after_ns.mid) / p.proven.measured_ns for p in own]
    held = [p.inferred.after_ns.low <= p.proven.after_ns.mid <= p.inferred.after_ns.high for p in own]
    return (
        f"| {name} | {len(own)} | {np.mean(np.abs(ratio - 1) < 0.02):.0%} | {np.mean(ratio < 0.98):.0%} | "
        f"{np.mean(ratio > 1.02):.0%} | {np.mean(error):.1f}, {np.percentile(error, 90):.1f} | {np.mean(held):.0%} | "
        f"{width([p.inferred for p in own])} | {width([p.proven for p in own])} |"
    )


def width(groups: list[Group]) -> str:
    """The interval as a share of the saving: of a group, median, and of all together."""
    winning = [g for g in groups if g.measured_ns > g.after_ns.mid]
    saved = np.array([g.measured_ns - g.after_ns.mid for g in winning])
    wide = np.array([g.after_ns.high - g.after_ns.low for g in winning])
    return f"{np.median(wide / saved):.2f}, {wide.sum() / saved.sum():.2f}" if winning else ""


def ends(name: str, own: list[Group]) -> str:
    """What makes intervals wide: how far they reach, and how little is saved."""
    if not own:
        return f"| {name} | 0 | | | |"
    low, high, unfused = (
        np.median([each(g.after_ns, g.measured_ns) / g.after_ns.mid for g in own])
        for each in (lambda after, _: after.low, lambda after, _: after.high, lambda _, measured: measured)
    )
    return f"| {name} | {len(own)} | {width(own)} | {low:.2f}, {high:.2f} | {unfused:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    chosen = parser.parse_args()
    found: list[Pair] = []
    for folder in sorted(chosen.folder.iterdir()):
        if (folder / "both" / "et.json.gz").exists() and (not chosen.names or folder.name in chosen.names):
            found += pairs(folder)
    print("| evidence without | groups | bytes right | fewer | more | error, points: mean, p90 | held | width | with |")
    print("|---|---|---|---|---|---|---|---|---|")
    for evidence in Evidence:
        print(line(evidence.name.lower(), [pair for pair in found if pair.inferred.evidence == evidence]))
    print(line("all", found))
    print(
        "\n| with an execution trace | groups | width | low, high ÷ middle | unfused ÷ middle |\n|---|---|---|---|---|"
    )
    for kind in sorted({pair.proven.kind for pair in found}):
        print(ends(kind, [pair.proven for pair in found if pair.proven.kind == kind]))
    for least, most in pairwise(BY_RATIO):
        own = [p.proven for p in found if least <= p.proven.measured_ns / p.proven.after_ns.mid < most]
        print(ends(f"unfused {least:g} to {most:g} times as long", own))


if __name__ == "__main__":
    main()
