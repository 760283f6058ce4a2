"""Run a step several times, record and scan it; say in at most fifteen lines what it exceeds, why, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracemine.api.calls import scan
from tracemine.api.report import Report
from tracemine.documents.headline import bound_headline
from tracemine.documents.next_step import next_step
from tracemine.documents.own_code import own_frame
from tracemine.documents.trust import trust_text
from tracemine.documents.words import cause_of
from tracemine.errors import TracemineError
from tracemine.findings.record import Finding, Scan
from tracemine.recording import capture, torch_here
from tracemine.recording.files import Capture
from tracemine.report.escape import line
from tracemine.testing.limits import StepLimits
from tracemine.units import count_text, range_text, time_text

LINES, COLUMNS = 15, 200
_SHOWN = 4  # findings
_NEXT = 100  # characters of what to do


def message(limits: StepLimits, found: MeasuredStep) -> str:
    """Return what a test fails with; "" where the step is within its limits."""
    scan = None if found.report is None else found.report.scan
    counted = (
        ()
        if scan is None
        else tuple(variant for variant in scan.reported if limits.counts(variant.rule, variant.severity))
    )
    exceeded = [*_slow(limits, found), *_unjudged(limits, scan), *_many(limits, counted)]
    if not exceeded:
        return ""
    findings = counted if limits.most_findings is not None or scan is None else scan.reported
    lines = [*exceeded, *_why(scan, findings), *_next(found, findings)]
    return "\n".join(line(text, longest=COLUMNS) for text in lines[:LINES])


def _slow(limits: StepLimits, found: MeasuredStep) -> Iterator[str]:
    step_ns = found.written.alone_step_ns
    if limits.step_ms is None or step_ns is None or step_ns <= limits.step_ms * 1e6:
        return
    p10_ns, p90_ns = found.written.alone_step_p10_ns, found.written.alone_step_p90_ns
    spread = "" if p10_ns is None or p90_ns is None else f", {range_text(p10_ns, p90_ns)}"
    how = f"unprofiled, median of {found.written.timed}{spread}"
    yield f"step {time_text(step_ns)} > step_ms={limits.step_ms:g} ({how})"


def _unjudged(limits: StepLimits, scan: Scan | None) -> Iterator[str]:
    """Yield that nothing can be said of findings, where they are to be counted: a test does not pass for that."""
    if scan is None or limits.most_findings is None:
        return
    if not scan.trace.activities or (scan.recorded is not None and scan.recorded.unusable):
        yield f"findings cannot be counted: {trust_text(scan)}"


def _many(limits: StepLimits, counted: Sequence[Finding]) -> Iterator[str]:
    most = limits.most_findings
    if most is None or len(counted) <= most:
        return
    which = [f"severity={limits.severity}"] if limits.severity else []
    which += [f"rule={','.join(limits.rule)}"] if limits.rule else []
    yield f"{count_text(len(counted), 'finding')} > max_findings={most}{' of ' * bool(which)}{' '.join(which)}"


def _why(scan: Scan | None, findings: Sequence[Finding]) -> Iterator[str]:
    if scan is None:
        return
    if said := bound_headline(scan):
        yield said
    for finding in findings[:_SHOWN]:
        yield f"  {_saves(finding)}  {cause_of(finding)}{_place(finding)}"
        yield f"      {next_step(finding.fix, _NEXT)}"
    if len(findings) > _SHOWN:
        yield f"  {len(findings) - _SHOWN} more"


def _saves(finding: Finding) -> str:
    if finding.per_step is None:
        saved_ns = max(finding.step_saving_ns.mid, finding.gpu_saving_ns.mid)
        return f"{time_text(saved_ns)} in all"
    saved_ns = finding.per_step.step_saving_ns.mid or finding.per_step.gpu_saving_ns.mid
    return f"{time_text(saved_ns)} per step"


def _place(finding: Finding) -> str:
    """Return the innermost line that is no installed package's; of none that of a package."""
    own = own_frame(finding) or next(iter(finding.source), None)
    return "" if own is None else f"  {own.file}:{own.line} {own.function}"


def _next(found: MeasuredStep, findings: Sequence[Finding]) -> Iterator[str]:
    folder = shlex.quote(str(found.folder))
    if findings:
        yield f"more: tracemine explain {findings[0].fingerprint[:8]} {folder}"
    elif found.report is not None:
        yield f"more: tracemine scan {folder}"
    else:
        yield "a step on a CPU is timed alone: there are no findings"


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What a step took, and what was found in it."""

    written: Capture
    folder: Path
    report: Report | None  # None: on a CPU

    @property
    def properties(self) -> list[tuple[str, object]]:
        """Return what a JUnit file keeps of it."""
        step_ns = self.written.alone_step_ns
        kept: list[tuple[str, object]] = [] if step_ns is None else [("tracemine_step_ms", round(step_ns / 1e6, 6))]
        return kept if self.report is None else [*kept, ("tracemine_findings", len(self.report))]


def lacking(device: str) -> str:
    """Return what is missing to run a step on a device; "" where nothing is."""
    try:
        torch = torch_here()
    except TracemineError as error:
        return error.message
    if device == "cuda" and not torch.cuda.is_available():
        return "torch sees no GPU here; device='cpu' times a step on the host"
    return ""


def measured(step: Callable[[], object], limits: StepLimits, folder: Path) -> MeasuredStep:
    """Run a step as often as it takes, and keep the recording in a folder. Whatever the step raises goes through."""
    __tracebackhide__ = True
    on_gpu = limits.device == "cuda"
    with capture(
        folder,
        steps=limits.steps,
        warmup=limits.warmup,
        timed=limits.timed,
        stacks=on_gpu,
        execution_trace=on_gpu,
        quiet=True,
    ) as recording:
        for _ in recording.steps():
            step()
    if recording.written is None:
        raise TracemineError("the step was not recorded")
    return MeasuredStep(recording.written, folder, scan(folder) if on_gpu else None)
