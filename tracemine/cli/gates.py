"""What --noise, --min-saving, --fail-on and --baseline say: a time, a share of the trace, a severity, a change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeAlias

from tracemine import units
from tracemine.cli.console import say, say_lines
from tracemine.cli.described import option
from tracemine.errors import UsageError
from tracemine.report.escape import line
from tracemine.units import Threshold, parse_percent

if TYPE_CHECKING:
    from tracemine.comparison import Difference
    from tracemine.comparison.gates import Gate as DifferenceGate
    from tracemine.findings.record import Finding, Scan
    from tracemine.report import Drawing
    from tracemine.report.ci_summary import CiSummary

_FULL = "<details><summary>Full report</summary>"
# What --fail-on and --baseline come to on a scan.
Gate: TypeAlias = "Callable[[Scan, Drawing], GateResult]"
NoiseOption = Annotated[str, option("gates.noise")]
BaselineOption = Annotated[Path | None, option("gates.baseline")]
SEVERITIES = ("low", "medium", "high")


def noise_given(text: str) -> float | None:
    """Return the share that --noise says; None: auto. Raises UsageError for anything else."""
    if text == "auto":
        return None
    try:
        return float(parse_percent(text))
    except ValueError as error:
        raise UsageError(f"--noise: {error}", hint="write a share, 3%, or auto") from None


def gates_given(texts: Iterable[str]) -> list[DifferenceGate]:
    """Return what --fail-on asks of a difference, several with commas too. Raises UsageError for what it cannot."""
    from tracemine.comparison.gates import WORDS, parse_gate

    try:
        return [parse_gate(one.strip()) for text in texts for one in text.split(",")]
    except ValueError as error:
        hint = f"write {', '.join(WORDS)}, a share of the step (2%) or a time (1ms)"
        raise UsageError(f"--fail-on: {error}", hint=hint) from None


def fails(difference: Difference, gates: Sequence[DifferenceGate]) -> bool:
    """Return whether a gate is shut; what shuts it is said, each once."""
    lines = dict.fromkeys(str(one) for gate in gates for one in gate(difference))
    for text in lines:
        say(f"--fail-on: {text}")
    return bool(lines)


@dataclass(frozen=True, slots=True)
class GateResult:
    """What became of a scan before a gate; without one it passes, and there is nothing to say."""

    summary: CiSummary | None = None
    difference: Difference | None = None  # from the baseline

    @property
    def failed(self) -> bool:
        """Return whether the call fails."""
        return self.summary is not None and self.summary.failed

    def draw(self, name: str, scan: Scan, out: TextIO, how: Drawing) -> None:
        """Draw the report of a scan. In Markdown a summary stands before it, and it is folded below."""
        from tracemine.report import render, render_difference

        folds = name == "markdown" and self.summary is not None
        if folds and self.summary is not None:
            from tracemine.report.ci_summary import markdown_lines

            out.write("\n".join((*markdown_lines(self.summary), "", _FULL, "")) + "\n")
        render(name, scan, out, how)
        if self.difference is not None and name in ("text", "markdown"):
            out.write("\n\n")
            render_difference(name, self.difference, out, how)
        out.write("\n</details>\n" if folds else "")

    def say(self) -> None:
        """Say why the call fails; to GitHub's runner also at the user's own lines."""
        if self.summary is None or not self.summary.failed:
            return
        from tracemine.report.ci_summary import log_lines

        say_lines(log_lines(self.summary))
        if os.environ.get("GITHUB_ACTIONS") == "true":
            say_lines(runner_lines(self.summary, Path.cwd()))


def runner_lines(summary: CiSummary, repository: Path) -> Iterator[str]:
    """Yield a command for GitHub's runner for each failing finding: its line shows it in the pull request."""
    from tracemine.files.reading import path_in

    for row in summary.failing:
        place = ""
        if row.own is not None and (path := path_in(repository, row.own.file)) is not None:
            place = f"file={_property(path)},line={row.own.line},"
        says = f"{row.what}, {row.cost} {summary.unit}, {row.status}"
        yield f"::error {place}title=tracemine::{_data(line(says))}"


def _data(text: str) -> str:
    """Return a text as a command's message: what would end it is encoded.

    >>> print(_data("100%"), _property("a:b,c"))
    100%25 a%3Ab%2Cc
    """
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _watched(baseline: Path, fail_on: str | None) -> Gate:
    """Return what a baseline asks of a scan. Raises UsageError, InputError where the file or --fail-on is wrong."""
    from tracemine.comparison.baseline import against, file_meant, read_baseline

    gates = gates_given([] if fail_on is None else [fail_on])
    before = read_baseline(file_meant(baseline))

    def judged(scan: Scan, how: Drawing) -> GateResult:
        from tracemine.report.ci_summary import of_difference

        difference = against(before, scan)
        failures = {one.text: one for gate in gates for one in gate(difference)}
        return GateResult(of_difference(difference, scan, how.frames, str(baseline), [*failures.values()]), difference)

    return judged


def scan_gate(baseline: Path | None, fail_on: str | None) -> Gate:
    """Return what --fail-on and --baseline ask of a scan. Raises UsageError, InputError where one of them is wrong."""
    if baseline is not None:
        return _watched(baseline, fail_on)
    if fail_on is None:
        return lambda scan, how: GateResult()
    reached = parse_fail_on(fail_on)

    def judged(scan: Scan, how: Drawing) -> GateResult:
        from tracemine.report.ci_summary import of_scan

        return GateResult(of_scan(scan, how.frames, fail_on, reached(scan)))

    return judged


def parse_threshold(option: str, text: str) -> Threshold:
    """Raises UsageError for what is neither a time nor a percentage.

    >>> parse_threshold("--min-saving", "0.1ms")
    Threshold(ns=100000, share=None)
    """
    try:
        return units.parse_threshold(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="write a time or a share of the trace: 0.1ms, 50us, 1%") from None


def parse_fail_on(text: str) -> Callable[[Scan], list[Finding]]:
    """Return what finds those of a severity in a scan, or that save this much; refuted ones do not count.

    Several have commas between them: one is enough. Raises UsageError for anything else.
    """
    every = [_fail_on(one.strip()) for one in text.split(",")]
    return lambda scan: list({one.fingerprint: one for reached in every for one in reached(scan)}.values())


def _fail_on(text: str) -> Callable[[Scan], list[Finding]]:
    from tracemine.comparison.gates import WORDS

    if text in SEVERITIES:
        reached = SEVERITIES[SEVERITIES.index(text) :]
        return lambda scan: [one for one in scan.reported if one.severity in reached and not one.refuted]
    try:
        threshold = parse_threshold("--fail-on", text)
    except UsageError:
        if text in WORDS:
            raise UsageError(f"--fail-on: {text} is said of a difference", hint="name one side: --baseline") from None
        says = f"--fail-on: {text!r} is no severity, no time and no share"
        raise UsageError(says, hint="write high, medium, low, a time (1ms) or a share (5%)") from None
    return lambda scan: [one for one in scan.findings if _saving_ns(one) >= threshold.of(scan.summary.span_ns)]


def _saving_ns(finding: Finding) -> int:
    return max(finding.step_saving_ns.mid, finding.gpu_saving_ns.mid)
