"""The report for a person at a terminal: what the trace is, what is worth doing, most first, what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tracemine.documents import words
from tracemine.documents.bar import bar_parts, covered_text
from tracemine.documents.numbered import claimed
from tracemine.documents.step_words import device_texts, headline, nothing_text, step_texts
from tracemine.documents.trust import is_unusable, no_findings, no_lines, notes_below, nothing_found, trust_text
from tracemine.documents.verdict_words import evidence_text, refuted_ns, refuted_text, saved_text, unprofiled_ns
from tracemine.documents.words import blocks
from tracemine.report import screen
from tracemine.report.console import console_for
from tracemine.report.escape import line, shorten
from tracemine.report.paragraphs import (
    LABEL,
    LABEL_WIDTH,
    RANK_WIDTH,
    LabelledText,
    labelled,
    paragraph,
    saved,
    saving_of,
    savings,
    verdict,
)
from tracemine.report.screen import bar_rows
from tracemine.units import bytes_text, count_text, percent_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Parts, Refused, Scan, Source, Summary
    from tracemine.report import Drawing

_SEVERITY_STYLES = {"high": "bold red", "medium": "yellow", "low": "dim"}
_BAR_WIDTH = 30
_RIGHT_EDGE = 90
_LINES_OF_OPS = 2
_LONGEST_NAME = 40
_WRAPPING = 16  # what a line may lose at its end where a name does not fit any more
_LINES_OF_SOURCE = 2
_LINES_OF_VARIANTS = 3
_LINES_OF_REFUSED = 20
_NO_PATHS = ("", "standard input")  # where a trace came from that is no file any more


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the report, or its first screen alone; nothing but text and, with `options.color`, styles."""
    if not options.whole:
        screen.render(scan, out, options)
        return
    console = console_for(out, options)
    numbered = claimed(scan)
    refuted = [finding for finding in scan.reported if finding.refuted]
    shown = numbered[: options.top]
    blocks = [
        _head(scan, options.width),
        *(_finding(rank, finding, scan, options.width) for rank, finding in enumerate(shown, 1)),
        *([_refuted(refuted)] if refuted else []),
        *([_why_not(scan.refused)] if scan.refused is not None else []),
        _foot(scan, len(numbered) - len(shown)),
    ]
    for number, block in enumerate(blocks):
        if number:
            console.print()
        for row in block:
            for wrapped in row.wrapped(console):
                console.print(wrapped, no_wrap=True, overflow="ignore", crop=False)


def _head(scan: Scan, width: int) -> Iterator[LabelledText]:
    summary = scan.summary
    if text := trust_text(scan):
        yield paragraph((line(text), "bold red"))
    if text := headline(scan):
        yield paragraph((line(text), "bold"))
    yield paragraph((line(scan.trace.path), "bold"))
    yield paragraph((line(" · ".join(words.summary_parts(scan.trace))), LABEL))
    if not scan.trace.activities or is_unusable(scan) or nothing_text(scan):
        return
    yield paragraph()
    yield from _step(summary, width)
    if scan.findings:
        yield from labelled("can save", *_all_savings(scan))
    facts = {
        "limit": words.ceiling_text,
        "memory": words.memory_text,
        "pays": words.payback_text,
        "verdicts": evidence_text,
        "where": no_lines,
    }
    for label, says in facts.items():
        if text := says(scan):
            yield from labelled(label, Text(line(text)))


def _step(summary: Summary, width: int) -> Iterator[LabelledText]:
    """Yield what a step takes, and where its time goes."""
    if summary.parts is None:  # stored by a version that did not know them
        yield from labelled("GPU busy", _busy(summary))
    steps = [words.busy_text(summary)] if summary.per_step is None else list(step_texts(summary.per_step))
    if texts := [*([text] if (text := words.unprofiled_text(summary)) else []), *steps]:
        room = min(width - LABEL_WIDTH, _RIGHT_EDGE)
        drawn = () if summary.parts is None else _parts(summary.parts, room)
        yield from labelled(
            "in all" if summary.per_step is None else "a step", *drawn, *(Text(line(text)) for text in texts)
        )
    yield from labelled("devices", *(Text(line(text)) for text in device_texts(summary)))


def _parts(parts: Parts, width: int) -> Iterator[Text]:
    """Yield the step as a bar, and what cannot be seen in it."""
    yield from bar_rows(bar_parts(parts), width)
    if text := covered_text(parts):
        yield Text(text)


def _busy(summary: Summary) -> Text:
    # Idle time is counted a device at a time, as busy time is: their sum, not the span, is the whole.
    whole = summary.gpu_busy_ns + summary.gpu_idle_ns
    filled = round(_BAR_WIDTH * summary.gpu_busy_ns / whole) if whole else 0
    return Text.assemble(
        (f"{percent_text(summary.gpu_busy_ns, whole)} ", "bold"),
        ("━" * filled, "green"),
        ("─" * (_BAR_WIDTH - filled), LABEL),
        f" {time_text(summary.gpu_busy_ns)} of {time_text(whole)}",
    )


def _finding(rank: int, finding: Finding, scan: Scan, width: int) -> Iterator[LabelledText]:
    title = Text(line(finding.title), "bold")
    severity = Text(line(finding.severity), _SEVERITY_STYLES.get(finding.severity, ""))
    # At the right edge, unless that is far away; in the title's own line where both fit.
    room = min(width, _RIGHT_EDGE) - RANK_WIDTH - title.cell_len - severity.cell_len
    yield LabelledText(Text.assemble(title, " " * max(room, 2), severity), f"{rank:>{RANK_WIDTH - 1}}", 0, RANK_WIDTH)
    for label, values in (
        ("saves", savings(finding, scan)),
        ("verdict", verdict(finding)),
        ("cost", [Text(f"{words.cost_text(finding, scan)} · evidence: {line(finding.evidence)}")]),
        ("counted", [Text(words.counted_text(finding.counters))] if finding.counters else ()),
        ("kernels" if finding.on_gpu else "before", _what(finding, width - RANK_WIDTH - LABEL_WIDTH)),
        ("variants", _variants(finding, scan, width - RANK_WIDTH - LABEL_WIDTH)),
        ("where", _where(finding)),
        ("fix", _fix(finding, scan.trace.path, width - RANK_WIDTH - LABEL_WIDTH)),
        ("id", [Text(f"{line(finding.fingerprint)} · rule {line(finding.rule)}", LABEL)]),
    ):
        yield from labelled(label, *values, indent=RANK_WIDTH)


def _all_savings(scan: Scan) -> Iterator[Text]:
    """Yield what all findings save together, shown or not."""
    if scan.summary.step_saving_ns.high:
        step, whole_ns = words.all_of(scan, "step_saving_ns"), unprofiled_ns(scan.summary)
        change = f"({text})" if (text := saved_text(scan)) else f"of {words.share_of_text(scan)}"
        yield saving_of(step, "step", step.mid, whole_ns, change)
        if text := words.first_text(scan):
            yield Text(f"step {text}", LABEL)
    if scan.summary.gpu_saving_ns.high:
        gpu = words.all_of(scan, "gpu_saving_ns")
        yield saved(gpu, "GPU", words.gpu_text(gpu.mid, scan))


def _variants(finding: Finding, scan: Scan, width: int) -> Iterator[Text]:
    """Yield where there are several: how often each, what it costs, and its shapes."""
    if len(finding.variants) < 2:
        return
    told_by_ops = len({variant.ops for variant in finding.variants}) > 1
    for variant in finding.variants[:_LINES_OF_VARIANTS]:
        cost = words.cost_text(finding, scan, variant)
        room = max(width - len(cost) - 2, 20)
        shapes = line(variant.shapes or "") if not finding.shapes else ""
        ops = _arrows(_names(variant.ops), room) if told_by_ops or not shapes else ""
        what = " ".join(text for text in (ops, shapes) if text)
        yield Text(f"{cost}: {shorten(ops if ops and len(what) > room else what, room)}")
    more = len(finding.variants) - _LINES_OF_VARIANTS
    if more > 0:
        yield Text(f"{more:,} more", LABEL)


def _names(ops: Sequence[str]) -> tuple[str, ...]:
    return words.chain([line(words.operator_name(name), _LONGEST_NAME) for name in ops])


def _refuted(findings: Sequence[Finding]) -> Iterator[LabelledText]:
    """Yield what verdicts took away, with what was predicted of GPU time: it saves nothing, so it is one line each."""
    yield paragraph(("refuted: no finding claims what was predicted here", "bold"))
    for finding in findings[:_LINES_OF_REFUSED]:
        verified = finding.verdict
        if verified is None:
            continue
        what = Text.assemble(
            line(finding.title), (f" · {line(finding.fingerprint)}: {line(refuted_text(verified))}", LABEL)
        )
        yield LabelledText(what, f"{time_text(refuted_ns(finding)):>9}", 0, 11)
    if len(findings) > _LINES_OF_REFUSED:
        yield paragraph((f"{count_text(len(findings) - _LINES_OF_REFUSED, 'more line')}: --format json", LABEL))


def _what(finding: Finding, width: int) -> Iterator[Text]:
    names = _names(finding.ops or finding.kernels)
    if names:
        longest = _LINES_OF_OPS * width - _WRAPPING
        yield Text(_arrows(names, longest, " → " if finding.on_gpu else ", "))  # what follows gaps is no chain
    operands = " ".join(line(part) for part in (finding.dtype, finding.shapes) if part)
    if operands:
        yield Text(shorten(operands, width))


def _arrows(names: Sequence[str], longest: int, between: str = " → ") -> str:
    """Return names with arrows between them; what does not fit is taken from the middle and counted.

    >>> _arrows(["pow", "mean", "add", "rsqrt", "mul"], 20)
    'pow → …+3… → mul'
    """
    text = between.join(names)
    for shown in range(len(names) - 1, 0, -1):
        if len(text) <= longest:
            break
        left, right = names[: (shown + 1) // 2], names[len(names) - shown // 2 :]
        text = between.join([*left, f"…+{len(names) - shown}…", *right])
    return text


def _where(finding: Finding) -> Iterator[Text]:
    if finding.module:
        yield Text(line(finding.module))
    if finding.source:
        yield Text(" ← ".join(_source_text(source) for source in finding.source[:_LINES_OF_SOURCE]))


def _fix(finding: Finding, path: str, width: int) -> Iterator[Text]:
    """Yield the first sentence; a paragraph that leads up to code, with the code. That there is more is said."""
    (_, first), *others = blocks(finding.fix) or [(False, "")]
    more = Text(_all_of_it(finding.fingerprint, path, width), LABEL)
    if not (first.endswith(":") and others and others[0][0]):
        sentence = words.first_sentence(first)
        yield Text(line(sentence))
        if others or sentence != first:
            yield more
        return
    yield Text(line(first))
    for one in filter(None, others[0][1].splitlines()):
        yield Text(f"  {_code_line(line(one), width - 2)}", "cyan", no_wrap=True)
    if others[1:]:
        yield more


def _all_of_it(fingerprint: str, path: str, width: int) -> str:
    """Return what explains a finding, to be pasted; FILE replaces a path that a line cannot show whole, as it is.

    >>> _all_of_it("10bb3930e730d027", "my run/trace.json", 80)
    "… all of it: tracemine explain 10bb3930e730d027 'my run/trace.json'"
    >>> _all_of_it("10bb3930e730d027", "my run/trace.json", 60)
    '… all of it: tracemine explain 10bb3930e730d027 FILE'
    """
    command = f"… all of it: tracemine explain {line(fingerprint)}"
    whole = f"{command} {shlex.quote(path)}"
    return whole if path not in _NO_PATHS and line(path) == path and len(whole) <= width else f"{command} FILE"


def _code_line(text: str, width: int) -> str:
    """Return a line of code in full: without its comment where both do not fit, wider than the terminal if it must be.

    >>> _code_line("x = f(x)    # not: x = f(f(x))", 12)
    'x = f(x)'
    >>> _code_line("x = a_long_name(x)    # in place", 12)
    'x = a_long_name(x)'
    """
    return text if len(text) <= width else text.partition("  #")[0].rstrip()


def _source_text(source: Source) -> str:
    return line(words.source_text(source, "/".join(PurePath(source.file).parts[-2:])))


def _why_not(refused: Sequence[Refused]) -> Iterator[LabelledText]:
    """Yield what shares data and is not one kernel."""
    yield paragraph(("why not one kernel", "bold"))
    if not refused:
        yield paragraph("Nothing that shares data was kept apart, or its dataflow is not known.")
    for one in refused[:_LINES_OF_REFUSED]:
        names = [line(words.operator_name(name), _LONGEST_NAME) for name in (one.first, one.second)]
        times = f", {one.occurrences:,} times" if one.occurrences > 1 else ""
        what = Text.assemble(" → ".join(names), (f"{times}: {line(one.reason)}", LABEL))
        yield LabelledText(what, f"{'?' if one.bytes is None else bytes_text(one.bytes):>9}", 0, 11)
    if len(refused) > _LINES_OF_REFUSED:
        yield paragraph((f"{count_text(len(refused) - _LINES_OF_REFUSED, 'more line')}: --format json", LABEL))


def _foot(scan: Scan, hidden: int) -> Iterator[LabelledText]:
    if not scan.reported:
        yield paragraph((line(no_findings(scan)), "bold"))
        yield paragraph(nothing_found(scan))
    if hidden:
        yield paragraph(f"{words.shown_text(scan, hidden)}: --top 0 shows all")
    if text := words.little_text(scan):
        yield paragraph(text)
    if scan.dropped:
        yield from labelled("left out", Text(line(words.dropped_text(scan.dropped))))
    for number, warning in enumerate(notes_below(scan)):
        yield from labelled("" if number else "note", Text(line(warning)))
