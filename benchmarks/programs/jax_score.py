"""What `scan` says of recordings of `jax_pairs.py` or `jax_unseen.py`, beside what fixes won: `jax_score.py OUT`.

A row a program: the saving that the finding of its cause (`jax_labels.toml`) names, in percent of the step, and the one
measured; then what else is said. A finding that says the step gains nothing is judged by GPU time; a program without a
fixed form is not judged. Of clean programs and fixed forms, each finding of 3 % of the step or more is printed, and
counted; with those that are said beside the cause they are what counts against precision.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from tracemine import pipeline
from tracemine.findings import Scan

LABELS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("jax_labels.toml").read_text())
CAUSES = {program: cause for of_kind in LABELS.values() for program, cause in of_kind.items()}
LEAST = 3.0  # percent of the step, of what is worth naming


def scanned(path: Path) -> Scan:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "host.xplane.pb"
        raw.write_bytes(lzma.decompress(path.read_bytes()))
        return pipeline.scan(raw)


def savings(scan: Scan) -> dict[str, tuple[float, float, float]]:
    """Low, middle and high of each rule's findings, in percent of the unprofiled step as the scan estimates it."""
    unprofiled = None if scan.summary.per_step is None else scan.summary.per_step.unprofiled_ns
    step_ns = unprofiled.mid if unprofiled is not None else 1
    found: dict[str, tuple[float, float, float]] = {}
    for finding in scan.findings:
        saving, count = finding.step_saving_ns, max(scan.trace.steps, 1)
        if finding.per_step is not None:
            saving, count = finding.per_step.step_saving_ns, 1
        ends = tuple(each * 100 / count / step_ns for each in (saving.low, saving.mid, saving.high))
        before = found.get(finding.rule, (0.0, 0.0, 0.0))
        found[finding.rule] = tuple(a + b for a, b in zip(before, ends, strict=True))  # type: ignore[assignment]
    return found


def gpu_savings(before: Scan, after: Scan, rule: str) -> tuple[float, float, float, float]:
    """Low, middle and high of a rule's findings in GPU time, and what was won of that, in percent of its GPU work."""
    both = [scan.summary.per_step for scan in (before, after)]
    busy = [1 if step is None else step.gpu_busy_ns for step in both]
    own = [one.per_step.gpu_saving_ns for one in before.findings if one.rule == rule and one.per_step is not None]
    low, mid, high = (100 * sum(getattr(each, end) for each in own) / busy[0] for end in ("low", "mid", "high"))
    return low, mid, high, 100 * (1 - busy[1] / busy[0])


def others(found: dict[str, tuple[float, float, float]], cause: str | None) -> list[str]:
    return [f"{rule} {mid:.0f} %" for rule, (_, mid, _) in found.items() if rule != cause and mid >= LEAST]


def main() -> int:
    folder = Path(sys.argv[1])
    rows: dict[tuple[str, str], dict[str, Any]] = {
        (row["program"], row["variant"]): row
        for row in json.loads((folder / "pairs.json").read_text())["rows"]
        if "step_ms" in row
    }
    judged, inside, near, found_causes, causes, said_besides, invented = 0, 0, 0, 0, 0, 0, 0
    for (program, variant), row in rows.items():
        path = folder / program / f"{variant}.xplane.pb.xz"
        scan = scanned(path)
        found, cause = savings(scan), CAUSES.get(program)
        if variant != "before":
            said = others(found, None)
            invented += len(said)
            print(f"{program:22} {variant:10} {row['step_ms']:8.3f} ms  {'; '.join(said) or '-'}")
            continue
        after = rows.get((program, "after"))
        won = float("nan") if after is None else 100 * (1 - after["step_ms"] / row["step_ms"])
        low, mid, high = found.get(cause or "", (0.0, 0.0, 0.0))
        of = "step"
        if mid == 0 and after is not None:
            low, mid, high, won = gpu_savings(scan, scanned(path.with_name("after.xplane.pb.xz")), cause or "")
            of = "GPU time"
        besides = others(found, cause)
        causes, found_causes, said_besides = causes + 1, found_causes + (mid > 0), said_besides + len(besides)
        judged += after is not None
        inside += low <= won <= high
        near += abs(mid - won) <= 8
        print(
            f"{program:22} {variant:10} {row['step_ms']:8.3f} ms  {cause}: {mid:.1f} % ({low:.1f} to {high:.1f}), "
            f"won {won:.1f} % of the {of}; {'; '.join(besides) or '-'}"
        )
    print(
        f"{found_causes} of {causes} causes found, {said_besides} findings beside them, {invented} of fixed forms and "
        f"clean programs; of {judged} fixes {inside} inside the interval, {near} within 8 points"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
