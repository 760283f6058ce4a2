"""One run of `verify`: findings, then a whole step; what was done is kept where the run ends early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tracemine.errors import TracemineError
from tracemine.findings.record import GRAPH, Finding, Scan
from tracemine.pipeline import Analysis
from tracemine.verdicts.verdict import StepVerdict, Verdict
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.pipeline import How, verify
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.step.build import NoStep
from tracemine.verify.step.pipeline import gaps_closed, raised, stepped


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRun:
    """What a run came to."""

    verdicts: tuple[Verdict, ...]
    step: StepVerdict | None = None  # None: not asked for, or not possible
    warnings: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()  # of ours, that the step came upon
    left: int = 0  # findings that were not verified when the run ended early
    stopped: KeyboardInterrupt | OSError | TracemineError | None = None  # what ended it early

    @property
    def of_step(self) -> int:
        """Return how many of the verdicts are on launch gaps, which the step's replay closed."""
        return sum(verdict.by == GRAPH for verdict in self.verdicts)


def verified(
    findings: Sequence[Finding],
    analysis: Analysis,
    scan: Scan,
    how: How,
    *,
    step: bool,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyRun:
    """Verify findings, and with `step` the step with their kernels in place.

    What ends the run before anything is verified (Ctrl-C, a full disk, an environment without torch) is raised; after
    that it is kept in the result.
    """
    done: list[Verdict] = []
    try:
        quiet = progress or (lambda done, all_: None)
        done.extend(verify(findings, analysis.dataflow, analysis.groups, how, quiet, causes=analysis.causes))
        run = VerifyRun(verdicts=tuple(done))
        return _with_step(run, findings, analysis, scan, how) if step else run
    except (KeyboardInterrupt, OSError, TracemineError) as error:  # what is validated by now took its time
        if not done:
            raise
        warnings = ("no step was replayed: the run ended before",) * step
        return VerifyRun(verdicts=tuple(done), warnings=warnings, left=len(findings) - len(done), stopped=error)


def _with_step(run: VerifyRun, findings: Sequence[Finding], analysis: Analysis, scan: Scan, how: How) -> VerifyRun:
    """Return the verdicts, raised where the step confirms them, and the step's own; a warning where there is none."""
    bugs = Bugs()

    def replayed() -> tuple[tuple[Verdict, ...], StepVerdict]:
        rebuilder = Rebuilder(analysis.dataflow, analysis.groups)
        found = stepped(findings, run.verdicts, rebuilder, scan, gpu=how.gpu, emit=how.emit)
        return (*raised(run.verdicts, found), *gaps_closed(scan, found, analysis.causes)), found

    try:
        found = bugs.tried(replayed)
    except NoStep as reason:
        found = reason.message
    if isinstance(found, str):
        return replace(run, warnings=(f"no step was replayed: {found}",), bugs=tuple(bugs.said))
    verdicts, step = found
    return replace(run, verdicts=verdicts, step=step, bugs=tuple(bugs.said))
