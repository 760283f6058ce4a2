"""Findings that one folder of scans has and another has no more: printed as a list, with what became of each.

    python -m benchmarks findings_lost BEFORE AFTER [--reasons REASONS.toml] [--least-share 0.01]

Both folders hold what `tracemine scan FILE --format json` wrote, under equal names. A finding of the first is kept
where the second has one of its rule for the same file; where it has not, the list says what of the second claims its
activities, or how the file's answer changed. REASONS names why what is gone was false: `[[reason]]` with `rule`, `why`
and, where it holds for some files alone, `files` (patterns). Ends with 1 where something is gone without a reason.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Scan = dict[str, Any]


@dataclass(frozen=True)
class Gone:
    """A rule's findings of a file that the second folder has none of."""

    file: str
    rule: str
    count: int
    share: float  # of the step, or of GPU time: the larger of both
    became: str


def shown(scan: Scan, least_share: float) -> dict[str, list[dict[str, Any]]]:
    """Return the findings that a report shows and that save this share of the step or of GPU time, by rule."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in scan["findings"]:
        if one["reported"] and share_of(scan, one) >= least_share:
            found.setdefault(one["rule"], []).append(one)
    return found


def share_of(scan: Scan, finding: Mapping[str, Any]) -> float:
    """Return the share that a finding saves of the trace's span, or of its GPU time: the larger of both."""
    wholes = (("step_saving_ns", "span_ns"), ("gpu_saving_ns", "gpu_time_ns"))
    return max(float(finding[saving]["mid"] / max(scan["summary"][whole], 1)) for saving, whole in wholes)


def became(gone: Sequence[Mapping[str, Any]], after: Scan) -> str:
    """Return what the second scan says of the activities that findings held."""
    rows = {row for one in gone for once in one["activities"] for row in once}
    holds: Counter[str] = Counter()
    for one in after["findings"]:
        own = {row for once in one["activities"] for row in once}
        holds[f"{one['rule']}{'' if one['reported'] else ' (too small to show)'}"] += len(rows & own)
    most = [f"{count / max(len(rows), 1):.0%} {name}" for name, count in holds.most_common(2) if count]
    if not after["summary"].get("bound"):
        most.append("no verdict")
    return ", ".join(most) or "no finding"


def gone_of(before: Path, after: Path, least_share: float) -> Iterator[Gone]:
    """Yield what is gone, file by file."""
    for path in sorted(before.glob("*.json")):
        old, other = json.loads(path.read_text("utf-8")), after / path.name
        new = json.loads(other.read_text("utf-8")) if other.exists() else None
        here = set() if new is None else {one["rule"] for one in new["findings"] if one["reported"]}
        for rule, findings in shown(old, least_share).items():
            if rule not in here:
                share = max(share_of(old, one) for one in findings)
                told = "refused" if new is None else became(findings, new)
                yield Gone(path.stem, rule, len(findings), share, told)


def reason_for(one: Gone, reasons: Sequence[Mapping[str, Any]]) -> str:
    """Return why what is gone was false; "" where no reason is kept."""
    fitting = (
        each["why"]
        for each in reasons
        if each["rule"] == one.rule
        and any(fnmatch.fnmatchcase(one.file, pattern) for pattern in each.get("files", ["*"]))
    )
    return next(fitting, "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--reasons", type=Path)
    parser.add_argument("--least-share", type=float, default=0.01)
    options = parser.parse_args()
    reasons = [] if options.reasons is None else tomllib.loads(options.reasons.read_text("utf-8"))["reason"]
    files = sorted(options.before.glob("*.json"))
    print("| file | rule | findings | share | now | why it was false |\n|---|---|--:|--:|---|---|")
    gone = list(gone_of(options.before, options.after, options.least_share))
    for one in gone:
        why = reason_for(one, reasons) or "**no reason kept**"
        print(f"| {one.file} | {one.rule} | {one.count} | {one.share:.1%} | {one.became} | {why} |")
    had = sum(len(shown(json.loads(path.read_text("utf-8")), options.least_share)) for path in files)
    without = sum(not reason_for(one, reasons) for one in gone)
    print(
        f"\n{len(files)} files; {had} rules with findings before, {len(gone)} of them gone, {without} without a reason"
    )
    return int(without > 0 or not files)


if __name__ == "__main__":
    sys.exit(main())
