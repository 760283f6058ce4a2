"""What stands between the members of each fusion finding, and how much GPU time the findings hold: over real traces.

    python -m benchmarks barriers FOLDER… [--gpu NAME] [--json FILE] [--against FILE] [--verdicts FILE]

FOLDER: traces, of any format that `tracemine scan` reads. For each fusion finding of each trace the script counts the
occurrences that have a matrix product, attention, a collective, a CUDA graph's replay, a compiled graph or an operator
of another library launched between their first and their last member: by the time at which they ran, on any stream of
that device, so without asking what `tracemine` believes of dataflow. Such a finding may be right (what lies between is
independent of it, and that is known); each is listed so that it can be looked at.

The opposite stands beside it: the GPU time in fusion findings, and in fusion groups, of each trace. `--json` keeps the
figures, `--against` prints them beside earlier ones and lists the findings that are gone, as far as both name findings
by one schema of the report, and `--verdicts` (TOML: a text a fingerprint) adds what a person made of each. With it the
script ends with 1 where one has no verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from tracemine.causes import load_rules
from tracemine.devices import Device, find_device
from tracemine.errors import InputError
from tracemine.findings.record import FINDINGS_SCHEMA_VERSION
from tracemine.pipeline import Analysis, ScanOptions, analyse, mined

_SUFFIXES = (".json", ".json.gz", ".sqlite")
_LIBRARY = {"gemm": "product", "conv": "product", "attention": "attention", "collective": "collective"}
_OURS = ("aten::", "prims::", "autograd::engine::", "aten.")
_OPS_KEPT = 14


def main() -> int:
    """Scan, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--gpu", default="NVIDIA H100 80GB HBM3", help="for traces that name no GPU")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--verdicts", type=Path)
    given = parser.parse_args()
    device = find_device(given.gpu)
    paths = sorted(path for folder in given.folders for path in folder.iterdir() if path.name.endswith(_SUFFIXES))
    found = {path.name: one for path in paths if (one := looked_at(path, device)) is not None}
    if given.json:
        given.json.write_text(json.dumps(found, sort_keys=True, indent=0) + "\n", encoding="utf-8")
    before = json.loads(given.against.read_text("utf-8")) if given.against else {}
    verdicts = tomllib.loads(given.verdicts.read_text("utf-8")) if given.verdicts else None
    print_time(found, before)
    crossed = [(name, each) for name, one in found.items() for each in one["findings"] if each["between"]]
    gone = [(name, each) for name, one in found.items() for each in gone_from(before.get(name), one)]
    missing = print_findings("Something between", crossed, verdicts)
    if any(one.get("schema_version", 1) == FINDINGS_SCHEMA_VERSION for one in before.values()):
        missing += print_findings("Gone", gone, verdicts)
    elif before:
        print("\nGone: earlier findings go by the names of another schema")
    return int(verdicts is not None and missing > 0)


def gone_from(before: dict[str, Any] | None, now: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings of an earlier run that are there no more; none where they go by the names of another schema."""
    if before is None or before.get("schema_version", 1) != now["schema_version"]:
        return []
    there = {finding["fingerprint"] for finding in now["findings"]}
    return [each for each in before["findings"] if each["fingerprint"] not in there]


def looked_at(path: Path, device: Device | None) -> dict[str, Any] | None:
    """The figures of one trace; None where it is no trace."""
    try:
        analysis = analyse(path)
    except InputError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return None
    fuses = {rule.id for rule in load_rules() if rule.saving == "fuse"}
    scan = mined(analysis, ScanOptions(device=device))
    dur = analysis.timeline.activities["dur_ns"].to_numpy()
    findings = [
        {
            "place": place,
            "fingerprint": finding.fingerprint,
            "rule": finding.rule,
            "evidence": finding.evidence,
            "occurrences": finding.occurrences,
            "measured_ns": finding.measured_ns,
            "ops": [*finding.ops[:_OPS_KEPT], *(["…"] if len(finding.ops) > _OPS_KEPT else [])],
            "between": between(analysis, finding.activities),
        }
        for place, finding in enumerate(scan.findings, 1)
        if finding.rule in fuses
    ]
    return {
        "schema_version": FINDINGS_SCHEMA_VERSION,
        "gpu": scan.trace.gpu or f"none, taken for {device.title}" if device else scan.trace.gpu,
        "gpu_time_ns": scan.summary.gpu_time_ns,
        "findings_ns": sum(one["measured_ns"] for one in findings),
        "groups_ns": int(dur[analysis.groups.activity].sum()),
        "findings": findings,
    }


def between(analysis: Analysis, occurrences: tuple[tuple[int, ...], ...]) -> dict[str, int]:
    """In how many occurrences something of each kind ran between the first and the last member."""
    kind = kinds(analysis)
    device = analysis.timeline.activities["device"].to_numpy(zero_copy_only=False)
    counts: dict[str, int] = {}
    for rows in occurrences:
        first, last = min(rows), max(rows)
        inside = np.setdiff1d(np.arange(first, last), rows)
        inside = inside[device[inside] == device[first]]
        for one in {kind[row] for row in inside.tolist()} - {""}:
            counts[one] = counts.get(one, 0) + 1
    return dict(sorted(counts.items()))


def kinds(analysis: Analysis) -> list[str]:
    """For each activity what could be in the way: empty for what could not."""
    rows = analysis.rows["activities"].columns
    op, op_class = rows["op"], rows["op_class"]
    found = []
    for at in range(analysis.timeline.activities.num_rows):
        name = op.values[op.codes[at]] if op.codes[at] >= 0 else None
        if rows["graph"].values[at]:
            found.append("replay")
        elif rows["compiled"].values[at]:
            found.append("compiled")
        elif (kind := _LIBRARY.get(op_class.values[op_class.codes[at]])) is not None:
            found.append(kind)
        elif name is not None and not name.startswith(_OURS) and "::" in name:
            found.append("custom")
        else:
            found.append("")
    return found


def print_time(found: dict[str, Any], before: dict[str, Any]) -> None:
    """GPU time in fusion findings and groups, a row a trace."""
    print("| trace | GPU time, ms | in findings | in groups | findings | with something between |")
    print("|---|---|---|---|---|---|")
    for name, one in found.items():
        old = before.get(name)
        crossed = sum(bool(finding["between"]) for finding in one["findings"])
        was = None if old is None else sum(bool(finding["between"]) for finding in old["findings"])
        cells = [
            f"{one['gpu_time_ns'] / 1e6:.2f}",
            _change(None if old is None else f"{old['findings_ns'] / 1e6:.3f}", f"{one['findings_ns'] / 1e6:.3f}"),
            _change(None if old is None else f"{old['groups_ns'] / 1e6:.3f}", f"{one['groups_ns'] / 1e6:.3f}"),
            _change(None if old is None else str(len(old["findings"])), str(len(one["findings"]))),
            _change(None if was is None else str(was), str(crossed)),
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def _change(before: str | None, now: str) -> str:
    return now if before is None or before == now else f"{before} → {now}"


def print_findings(title: str, found: list[tuple[str, dict[str, Any]]], verdicts: dict[str, Any] | None) -> int:
    """A row a distinct finding, with the verdict on it. Returns how many have none."""
    traces: dict[str, list[str]] = {}
    first: dict[str, dict[str, Any]] = {}
    for name, finding in found:
        traces.setdefault(finding["fingerprint"], []).append(name)
        first.setdefault(finding["fingerprint"], finding)
    print(f"\n{title}: {len(first)} distinct findings\n")
    print("| finding | traces | evidence | times | µs | operators | between | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for mark, finding in first.items():
        inside = ", ".join(f"{kind} {count}" for kind, count in finding["between"].items())
        more = f" and {len(traces[mark]) - 1} more" if len(traces[mark]) > 1 else ""
        cells = [
            *(mark, traces[mark][0] + more, finding["evidence"], str(finding["occurrences"])),
            *(f"{finding['measured_ns'] / 1e3:.0f}", " → ".join(finding["ops"]).replace("aten::", "")),
            *(inside, (verdicts or {}).get(mark, "")),
        ]
        print(f"| {' | '.join(cells)} |")
    return sum(mark not in (verdicts or {}) for mark in first)


if __name__ == "__main__":
    sys.exit(main())
