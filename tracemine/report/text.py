"""The report for a person at a terminal: what the trace is, what is worth doing, most first, what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from tracemine.report.escape import line, shorten
from tracemine.report.words import (
    blocks,
    chain,
    counted_text,
    dropped_text,
    error_text,
    evidence_text,
    first_sentence,
    headline,
    no_findings,
    nothing_found,
    operator_name,
    refuted_text,
    said_text,
    step_texts,
    summary_parts,
    times_text,
)
from tracemine.units import bytes_text, count_text, percent_text, range_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Refused, Scan, Source, Summary
    from tracemine.perfmodel import Range
    from tracemine.report import Options

_SEVERITY_STYLES = {"high": "bold red", "medium": "yellow", "low": "dim"}
_LABEL = "dim"
_RANK_WIDTH = 4  # a rank and the space after it
_LABEL_WIDTH = 10  # a label and the spaces after it
_BAR_WIDTH = 30
_RIGHT_EDGE = 90
_LINES_OF_OPS = 2
_LONGEST_NAME = 40
_WRAPPING = 16  # what a line may lose at its end where a name does not fit any more
_LINES_OF_SOURCE = 2
_LINES_OF_CODE = 4
_LINES_OF_REFUSED = 20


@dataclass(frozen=True, slots=True)
class _Row:
    """A paragraph with a label in front of its first line; the others are indented as far."""

    value: Text
    label: str = ""
    indent: int = 0  # of the label
    width: int = 0  # of the label with the spaces after it

    def wrapped(self, console: Console) -> Iterator[Text]:
        margin = self.indent + self.width
        lines = self.value.wrap(console, max(console.width - margin, 20)) or [Text()]
        for number, text in enumerate(lines):
            label = "" if number else " " * self.indent + self.label
            row = Text.assemble((f"{label:<{margin}}", _LABEL), text)
            row.rstrip()
            yield row


def _paragraph(*parts: str | tuple[str, str]) -> _Row:
    return _Row(Text.assemble(*parts))


def _labelled(label: str, *values: Text, indent: int = 0) -> Iterator[_Row]:
    for value in values:
        yield _Row(value, label, indent, _LABEL_WIDTH)
        label = ""


def render(scan: Scan, out: TextIO, options: Options) -> None:
    """Write the report; nothing but text and, with `options.color`, styles."""
    console = Console(
        file=out,
        width=options.width,
        force_terminal=options.color,
        color_system="standard" if options.color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    claimed = [finding for finding in scan.findings if not finding.refuted]
    refuted = [finding for finding in scan.findings if finding.refuted]
    shown = claimed[: options.top]
    blocks = [
        _head(scan),
        *(_finding(rank, finding, scan, options.width) for rank, finding in enumerate(shown, 1)),
        *([_refuted(refuted)] if refuted else []),
        *([_why_not(scan.refused)] if scan.refused is not None else []),
        _foot(scan, len(claimed) - len(shown)),
    ]
    for number, block in enumerate(blocks):
        if number:
            console.print()
        for row in block:
            for wrapped in row.wrapped(console):
                console.print(wrapped, no_wrap=True, overflow="ignore", crop=False)


def _head(scan: Scan) -> Iterator[_Row]:
    summary = scan.summary
    if text := headline(scan):
        yield _paragraph((line(text), "bold"))
    yield _paragraph((line(scan.trace.path), "bold"))
    yield _paragraph((line(" · ".join(summary_parts(scan.trace))), _LABEL))
    if not scan.trace.activities:
        return
    yield _paragraph()
    yield from _labelled("GPU busy", _busy(summary))
    if summary.per_step is not None:
        yield from _labelled("a step", *(Text(line(text)) for text in step_texts(summary.per_step)))
    if scan.findings:
        yield from _labelled("to win", *_savings(summary, scan))
    if text := evidence_text(scan):
        yield from _labelled("verdicts", Text(line(text)))


def _busy(summary: Summary) -> Text:
    # Idle time is counted a device at a time, as busy time is: their sum, not the span, is the whole.
    whole = summary.gpu_busy_ns + summary.gpu_idle_ns
    filled = round(_BAR_WIDTH * summary.gpu_busy_ns / whole) if whole else 0
    return Text.assemble(
        (f"{percent_text(summary.gpu_busy_ns, whole)} ", "bold"),
        ("━" * filled, "green"),
        ("─" * (_BAR_WIDTH - filled), _LABEL),
        f" {time_text(summary.gpu_busy_ns)} of {time_text(whole)}",
    )


def _finding(rank: int, finding: Finding, scan: Scan, width: int) -> Iterator[_Row]:
    title = Text(line(finding.title), "bold")
    severity = Text(line(finding.severity), _SEVERITY_STYLES.get(finding.severity, ""))
    # At the right edge, unless that is far away; in the title's own line where both fit.
    room = min(width, _RIGHT_EDGE) - _RANK_WIDTH - title.cell_len - severity.cell_len
    yield _Row(Text.assemble(title, " " * max(room, 2), severity), f"{rank:>{_RANK_WIDTH - 1}}", 0, _RANK_WIDTH)
    times = f"{finding.occurrences:,} times, " if finding.occurrences > 1 else ""
    now = f"{times}{time_text(finding.measured_ns)} in all · evidence: {line(finding.evidence)}"
    for label, values in (
        ("saves", _savings(finding, scan)),
        ("verdict", _verdict(finding)),
        ("now", [Text(now)]),
        ("counted", [Text(counted_text(finding.counters))] if finding.counters else ()),
        ("what", _what(finding, width - _RANK_WIDTH - _LABEL_WIDTH)),
        ("where", _where(finding)),
        ("do", _what_to_do(finding.fix, width - _RANK_WIDTH - _LABEL_WIDTH)),
    ):
        yield from _labelled(label, *values, indent=_RANK_WIDTH)


def _savings(of: Finding | Summary, scan: Scan) -> Iterator[Text]:
    """The step first: it is what a person waits for. A finding without a saving of one kind does not mention it, but
    one of GPU time alone says so."""
    step, gpu = of.step_saving_ns, of.gpu_saving_ns
    if step.high:
        yield _saving(step, "step", scan.summary.span_ns, "of the trace")
    if gpu.high:
        verified = getattr(of, "verdict", None)
        basis = "" if verified is None else f", {verified.basis}"
        yield _saving(gpu, "GPU", scan.summary.gpu_time_ns, f"of GPU time{line(basis)}")
    if gpu.high and not step.high:
        yield Text("step none: the GPU is not what it waits for", _LABEL)


def _saving(saving: Range, name: str, whole_ns: int, of_what: str) -> Text:
    return Text.assemble(
        f"{name:<4} ",
        (f"{time_text(saving.mid):>7}", "bold green"),
        f"  {f'({range_text(saving.low, saving.high)})':<18}",
        (f"  {percent_text(saving.mid, whole_ns):>6} {of_what}", _LABEL),
    )


def _verdict(finding: Finding) -> Iterator[Text]:
    """What was measured, what was predicted, and what nobody tried."""
    if finding.verdict is None:
        return
    for text in (said_text(finding.verdict), times_text(finding.verdict), error_text(finding)):
        if text:
            yield Text(line(text))


def _refuted(findings: Sequence[Finding]) -> Iterator[_Row]:
    """What verdicts took away, with what was predicted of GPU time: it saves nothing, so it is one line each."""
    yield _paragraph(("refuted: what was predicted here is claimed by nobody", "bold"))
    for finding in findings[:_LINES_OF_REFUSED]:
        verified = finding.verdict
        if verified is None:
            continue
        what = Text.assemble(
            line(finding.title), (f" · {line(finding.fingerprint)}: {line(refuted_text(verified))}", _LABEL)
        )
        yield _Row(what, f"{time_text(verified.predicted_ns.mid):>9}", 0, 11)
    if len(findings) > _LINES_OF_REFUSED:
        yield _paragraph((f"{count_text(len(findings) - _LINES_OF_REFUSED, 'more line')}: --format json", _LABEL))


def _what(finding: Finding, width: int) -> Iterator[Text]:
    names = chain([line(operator_name(name), _LONGEST_NAME) for name in finding.ops or finding.kernels])
    if names:
        yield Text(_arrows(names, _LINES_OF_OPS * width - _WRAPPING))
    operands = " ".join(line(part) for part in (finding.dtype, finding.shapes) if part)
    if operands:
        yield Text(shorten(operands, width))


def _arrows(names: Sequence[str], longest: int) -> str:
    """Names with arrows between them; what does not fit is taken from the middle and counted.

    >>> _arrows(["pow", "mean", "add", "rsqrt", "mul"], 20)
    'pow → …+3… → mul'
    """
    text = " → ".join(names)
    for shown in range(len(names) - 1, 0, -1):
        if len(text) <= longest:
            break
        left, right = names[: (shown + 1) // 2], names[len(names) - shown // 2 :]
        text = " → ".join([*left, f"…+{len(names) - shown}…", *right])
    return text


def _where(finding: Finding) -> Iterator[Text]:
    if finding.module:
        yield Text(line(finding.module))
    if finding.source:
        yield Text(" ← ".join(_source_text(source) for source in finding.source[:_LINES_OF_SOURCE]))


def _what_to_do(fix: str, width: int) -> Iterator[Text]:
    """The first sentence; a paragraph that leads up to code, with the code."""
    (_, first), *others = blocks(fix) or [(False, "")]
    if not (first.endswith(":") and others and others[0][0]):
        yield Text(line(first_sentence(first)))
        return
    yield Text(line(first))
    code = [one for one in others[0][1].splitlines() if one]
    for number, one in enumerate(code[:_LINES_OF_CODE], 1):
        last = " …" if number == _LINES_OF_CODE < len(code) else ""
        yield Text(f"  {_code_line(line(one), width - 4)}{last}", "cyan")


def _code_line(text: str, width: int) -> str:
    """A line of code without its comment where both do not fit.

    >>> _code_line("x = f(x)    # not: x = f(f(x))", 12)
    'x = f(x)'
    """
    if len(text) > width:
        text = text.partition("  #")[0].rstrip()
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _source_text(source: Source) -> str:
    parts = PurePath(source.file).parts
    return line(f"{'/'.join(parts[-2:])}:{source.line} {source.function}")


def _why_not(refused: Sequence[Refused]) -> Iterator[_Row]:
    """What shares data and is not one kernel."""
    yield _paragraph(("why not one kernel", "bold"))
    if not refused:
        yield _paragraph("Nothing that shares data was kept apart, or nobody knows what reads what.")
    for one in refused[:_LINES_OF_REFUSED]:
        names = [line(operator_name(name), _LONGEST_NAME) for name in (one.first, one.second)]
        times = f", {one.occurrences:,} times" if one.occurrences > 1 else ""
        what = Text.assemble(" → ".join(names), (f"{times}: {line(one.reason)}", _LABEL))
        yield _Row(what, f"{'?' if one.bytes is None else bytes_text(one.bytes):>9}", 0, 11)
    if len(refused) > _LINES_OF_REFUSED:
        yield _paragraph((f"{count_text(len(refused) - _LINES_OF_REFUSED, 'more line')}: --format json", _LABEL))


def _foot(scan: Scan, hidden: int) -> Iterator[_Row]:
    if not scan.findings:
        yield _paragraph((no_findings(scan), "bold"))
        yield _paragraph(nothing_found(scan))
    if hidden:
        yield _paragraph(f"{count_text(hidden, 'more finding')}: --top {len(scan.findings)}")
    if scan.dropped:
        yield from _labelled("left out", Text(line(dropped_text(scan.dropped))))
    for number, warning in enumerate(scan.warnings):
        yield from _labelled("" if number else "note", Text(line(warning)))
