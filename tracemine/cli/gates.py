"""What --noise, --fail-on and --baseline say of a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeAlias

import typer

from tracemine.cli.console import say
from tracemine.cli.thresholds import parse_fail_on
from tracemine.errors import UsageError
from tracemine.units import parse_percent

if TYPE_CHECKING:
    from tracemine.comparison import Difference
    from tracemine.comparison.baseline import Baseline
    from tracemine.comparison.gates import Gate as DifferenceGate
    from tracemine.findings import Scan
    from tracemine.report import Drawing

# Whether a scan makes the call fail; what it has to say of that follows the report, of this name, in the text.
Gate: TypeAlias = "Callable[[Scan, str, TextIO, Drawing], bool]"
NoiseOption = Annotated[
    str,
    typer.Option(
        metavar="%|auto",
        help="The share of a step, or of a cost, below which a change says nothing. auto: the spread of the steps in "
        "each trace; 10% of a step and 3% of GPU work where there are fewer than three.",
    ),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="FILE|NAME",
        help="Also say what became of the findings that --save-baseline kept; --fail-on is about that then.",
    ),
]


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
    lines = dict.fromkeys(text for gate in gates for text in gate(difference))
    for text in lines:
        say(f"--fail-on: {text}")
    return bool(lines)


@dataclass(frozen=True, slots=True)
class Watch:
    """A baseline, and what may not have become of its findings."""

    baseline: Baseline
    gates: Sequence[DifferenceGate]

    def reached(self, scan: Scan, name: str, out: TextIO, how: Drawing) -> bool:
        """Return whether a scan fails. The difference follows its report; as JSON and HTML there is the scan alone."""
        from tracemine.comparison.baseline import against
        from tracemine.report import DIFF_REPORTS, render_difference

        found = against(self.baseline, scan)
        if name not in ("json", "html") and name in DIFF_REPORTS:
            out.write("\n\n")
            render_difference(name, found, out, how)
        return fails(found, self.gates)


def watch(baseline: Path, fail_on: str | None) -> Watch:
    """Return the baseline of a file. Raises UsageError or InputError where the file or --fail-on is wrong."""
    from tracemine.comparison.baseline import read_baseline
    from tracemine.comparison.named import file_meant

    return Watch(read_baseline(file_meant(baseline)), gates_given([] if fail_on is None else [fail_on]))


def scan_gate(baseline: Path | None, fail_on: str | None) -> Gate:
    """Return what --fail-on and --baseline ask of a scan. Raises UsageError, InputError where one of them is wrong."""
    if baseline is not None:
        return watch(baseline, fail_on).reached
    if fail_on is None:
        return lambda scan, name, out, how: False
    reached = parse_fail_on(fail_on)
    return lambda scan, name, out, how: reached(scan)
