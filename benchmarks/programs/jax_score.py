"""What `scan` says of recordings of `jax_pairs.py`, beside what their fixes won: `jax_score.py OUT`.

A row a program: the saving that the finding of its cause names, in percent of the step, and the one measured; then
what else is said. A finding that says the step gains nothing is judged by GPU time; a program without a fixed form is
not judged. Of clean programs and fixed forms, each finding of 3 % of the step or more is printed, and counted.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

from tracemine import pipeline
from tracemine.findings import Scan

CAUSES = {
    "attention_train": "xla_attention_unfused",
    "attention_forward": "xla_attention_unfused",
    "op_by_op": "xla_op_by_op",
    "op_by_op_loss": "xla_op_by_op",
    "highest": "xla_float32_product",
    "odd_vocabulary": "xla_odd_product",
    "loss_scatter": "xla_dense_scatter",
    "scan_lstm": "xla_scan_small",
    "scan_filter": "xla_scan_small",
    "asked_each": "host_sync",
    "tall_product": "xla_split_k_partials",
    "pictures": "xla_layout_copy",
}
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
    judged, inside, near, invented = 0, 0, 0, 0
    for (program, variant), row in rows.items():
        path = folder / program / f"{variant}.xplane.pb.xz"
        scan = scanned(path)
        found, cause = savings(scan), CAUSES.get(program)
        if variant != "before":
            said = others(found, None)
            invented += len(said)
            print(f"{program:22} {variant:7} {row['step_ms']:8.3f} ms  {'; '.join(said) or '-'}")
            continue
        after = rows.get((program, "after"))
        won = float("nan") if after is None else 100 * (1 - after["step_ms"] / row["step_ms"])
        low, mid, high = found.get(cause or "", (0.0, 0.0, 0.0))
        of = "step"
        if mid == 0 and after is not None:
            low, mid, high, won = gpu_savings(scan, scanned(path.with_name("after.xplane.pb.xz")), cause or "")
            of = "GPU time"
        judged += after is not None
        inside += low <= won <= high
        near += abs(mid - won) <= 8
        print(
            f"{program:22} {variant:7} {row['step_ms']:8.3f} ms  {cause}: {mid:.1f} % ({low:.1f} to {high:.1f}), "
            f"won {won:.1f} % of the {of}; {'; '.join(others(found, cause)) or '-'}"
        )
    print(f"{judged} causes, {inside} inside the interval, {near} within 8 points; {invented} said of fixed forms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
