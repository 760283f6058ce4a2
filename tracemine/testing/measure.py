"""Run a step several times: timed with nothing recording, then recorded and scanned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tracemine.api.calls import scan
from tracemine.api.report import Report
from tracemine.errors import TracemineError
from tracemine.recording import capture, torch_here
from tracemine.recording.files import Capture
from tracemine.testing.limits import StepLimits


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
