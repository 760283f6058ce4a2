"""From findings to a step's verdict: place them, write the file, run it, and raise the findings that it confirms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tracemine.columns import string_ids
from tracemine.findings.grouping import scan_of_variants
from tracemine.findings.record import GRAPH, Finding, Scan
from tracemine.flow.record import Flow
from tracemine.pipeline import Analysis
from tracemine.units import range_text, time_text
from tracemine.validate.sandbox import MEMORY_LIMIT_BYTES
from tracemine.verdicts.candidate import Candidate
from tracemine.verdicts.verdict import StepVerdict, Verdict, verdict
from tracemine.verify.fixes.by_rule import Cause
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.repro import standalone
from tracemine.verify.repro.emitter import write
from tracemine.verify.step.build import NoStep
from tracemine.verify.step.compared import Expected, Summary, expected, step_verdict, summary
from tracemine.verify.step.placing import Placed, place
from tracemine.verify.step.program import LEAST_SHARE
from tracemine.verify.step.text import step_file

GPU_LIMIT_S = 300.0
META_LIMIT_S = 120.0
NOT_SHORTER = "the step as a CUDA graph did not get shorter: it changed"
_REACHED = ("L4", "L5")  # a finding's kernel is put in place where it is faster than eager


def prepared(findings: Sequence[Finding], rebuilder: Rebuilder, scan: Scan) -> tuple[Summary, Expected, str]:
    """Return a step with findings in place, what is predicted of it, and its file. Raises NoStep."""
    placed = place(findings, rebuilder)
    if placed.program.share < LEAST_SHARE:
        why = max(placed.program.left, key=lambda each: each.gpu_ns)
        raise NoStep(
            f"only {placed.program.share:.0%} of the step's GPU time can be replayed, {LEAST_SHARE:.0%} are asked for: "
            f"{why.reason}"
        )
    flow, groups = rebuilder.flow, rebuilder.groups
    analysis = Analysis(path=scan.trace.path, timeline=flow.timeline, dataflow=flow, groups=groups)
    expects = expected(scan, analysis, findings)
    about = summary(placed)
    names = recorded_names(placed, rebuilder.flow)
    return about, expects, step_file(placed, about.counts, names, msgspec.json.encode(expects))


def recorded_names(placed: Placed, flow: Flow) -> list[str]:
    """Return the name of each kernel, copy and set that the replayed calls launched."""
    codes, names = string_ids(flow.timeline.activities.column("name"))
    return [names[codes[a]] for call in placed.program.calls for a in call.activities]


def stepped(
    findings: Sequence[Finding],
    verdicts: Sequence[Verdict],
    rebuilder: Rebuilder,
    scan: Scan,
    *,
    gpu: str | None,
    emit: Path | None = None,
) -> StepVerdict:
    """Return the verdict on a step with the findings in place that reached L4; without a GPU, whether its calls fit."""
    about, expects, text = prepared(findings, rebuilder, scan)
    write(emit, "repro_step.py", text)
    if gpu is None:
        return step_verdict(about, expects, _on_meta(text), text)
    faster = [v.fingerprint for v in verdicts if v.level in _REACHED]
    ran = standalone.run(text, ["--json", "--keep", ",".join(faster)], GPU_LIMIT_S, what="the step")
    return step_verdict(about, expects, ran, text)


def _on_meta(text: str) -> str:
    """Return whether a step's calls fit each other, tried without data but for what lies on the host."""
    found = standalone.run(text, ["--meta"], META_LIMIT_S, what="the step", most_bytes=MEMORY_LIMIT_BYTES)
    if isinstance(found, str):
        return f"this machine has no GPU; {found}"
    if all(said == "fits" for said in found.values()):
        return "this machine has no GPU; without data its calls fit each other, with subgraphs in place too"
    said = next(said for said in found.values() if said != "fits")
    return f"this machine has no GPU; without data it was not run to its end: {said}"


def raised(verdicts: Sequence[Verdict], step: StepVerdict) -> tuple[Verdict, ...]:
    """Return the verdicts, at L6 where the fused kernel stood in a step that got shorter."""
    inside = {f.fingerprint: f for f in step.findings}
    return tuple(
        _raised(v, step, inside[v.fingerprint].occurrences if v.fingerprint in inside else 0) for v in verdicts
    )


def gaps_closed(scan: Scan, step: StepVerdict, causes: Sequence[Cause]) -> tuple[Verdict, ...]:
    """Return verdicts on launch gaps: what the step took less as one CUDA graph, which has none, and the prediction.

    They are closed together, so each verdict is of all. None where no graph was timed.
    """
    closed = {cause.rule for cause in causes if cause.closed_by_graph}
    change = next((c for c in step.changes if c.change == "graph"), None)
    gaps = [f for f in scan_of_variants(scan).reported if f.rule in closed and not f.on_gpu]
    if change is None or not gaps:
        return ()
    shorter = change.low_ns > 0
    says = f"{'the step as a CUDA graph, with no launch gaps, got shorter' if shorter else NOT_SHORTER} by "
    says += f"{time_text(abs(change.measured_ns))} ({range_text(change.low_ns, change.high_ns)})"
    if change.predicted_ns is not None:
        claim = change.predicted_ns
        says += f", predicted of all gaps {time_text(claim.mid)} ({range_text(claim.low, claim.high)})"
    says += f"; not compared: {change.says}" if change.says else ""
    return tuple(_closed(finding, step, says, shorter) for finding in gaps)


def _closed(finding: Finding, step: StepVerdict, says: str, shorter: bool) -> Verdict:
    graph = Candidate(by=GRAPH, evidence=finding.evidence, assumptions=tuple(step.assumptions), refused=says)
    found = verdict(finding, [graph])
    return msgspec.structs.replace(found, level="L6" if shorter else "L0", not_tested=())


def _raised(verdict: Verdict, step: StepVerdict, occurrences: int) -> Verdict:
    untried = tuple(t for t in verdict.not_tested if not t.startswith("L6"))
    if step.shorter is None or not occurrences:
        return msgspec.structs.replace(verdict, not_tested=(*untried, f"L6: {step.says}"))
    reached = verdict.level == "L5" or (verdict.level == "L4" and any(t.startswith("L5") for t in untried))
    if not reached:
        return msgspec.structs.replace(verdict, not_tested=untried)
    if step.shorter:
        return msgspec.structs.replace(verdict, level="L6", says=step.says, not_tested=untried)
    return msgspec.structs.replace(verdict, says=f"{verdict.says}; {step.says}", not_tested=untried)
