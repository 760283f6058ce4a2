"""A ticket's text for each finding: what, where, on what evidence, the cost, the fix and how to check it.

Everything that may come from the trace stands in code spans, or is escaped: see escape.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from tracemine.documents import verdict_words, words
from tracemine.documents.bar import legend
from tracemine.documents.cost_words import cost_rows, traffic_texts
from tracemine.documents.numbered import claimed
from tracemine.documents.screen import first_screen
from tracemine.documents.step_words import bound_sentence, device_texts, step_texts
from tracemine.findings.record import Range, Variant
from tracemine.report.escape import code, code_cell, line, prose, prose_cell, shorten, without_html
from tracemine.units import bytes_text, count_text, percent_text, range_text, time_text

if TYPE_CHECKING:
    from tracemine.documents.screen import Screen
    from tracemine.findings.record import Finding, Scan, Verified
    from tracemine.report import Drawing

_LONGEST_CODE_LINE = 1_000
_MOST_ALIASES = 8
_LONGEST_KERNEL = 160

# How each profiler records source lines, or what stands in their place.
_RECORDS_LINES = {
    "kineto": "record with `with_stack=True`",
    "nsys": "`nsys profile --python-backtrace=cuda` records Python's lines, and NVTX ranges the modules",
}


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the first screen, and below it, folded, the first `options.top` findings and what was left out."""
    numbered = claimed(scan)
    shown = numbered[: options.top]
    screen = first_screen(scan, options.frames)
    parts = [*_screen(screen, scan)]
    if screen.bar:
        parts += _folded("The step", [*_facts(scan)])
    for rank, finding in enumerate(shown, 1):
        parts += _folded(f"Finding {rank}", [f"## {rank}. {prose(finding.title)}", *_finding(finding, scan)])
    parts += _refuted([finding for finding in scan.reported if finding.refuted])
    parts += _why_not(scan)
    parts += _foot(scan, len(numbered) - len(shown))
    out.write("\n\n".join(parts) + "\n")


def _folded(summary: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield parts that a reader unfolds. summary: ours, nothing of a trace."""
    yield f"<details>\n<summary>{summary}</summary>"
    yield from parts
    yield "</details>"


def ticket(finding: Finding, scan: Scan, out: TextIO) -> None:
    """Write one finding as a text that stands alone: for an issue, with the trace that it was found in."""
    trace = f"Found in {code(scan.trace.path)}: {prose(' · '.join(words.summary_parts(scan.trace)))}."
    out.write("\n\n".join([f"# {prose(finding.title)}", trace, *_finding(finding, scan)]) + "\n")


def _screen(screen: Screen, scan: Scan) -> Iterator[str]:
    """Yield what a terminal's first screen says."""
    yield f"# tracemine: {code(screen.path)}"
    yield from (f"**{prose(text)}**" for text in (screen.doubts, screen.headline) if text)
    yield prose(" · ".join(screen.about))
    if scan.summary.parts is not None:
        yield f"{'A step' if scan.summary.per_step else 'All'}: {prose(legend(scan.summary.parts))}."
    if screen.rows:
        yield "\n".join(_table(screen))
    if screen.total:
        yield prose(screen.total.replace(": --all", ""))
    for number, text in enumerate(screen.nothing):
        yield prose(text) if number else f"**{prose(text)}**"
    if screen.notes:
        yield "\n".join(f"- {prose(note)}" for note in screen.notes)


def _table(screen: Screen) -> Iterator[str]:
    place = "your code" if screen.own else "where"
    saves = f"saves{' alone' if screen.alone else ''}, {screen.unit}"
    yield f"| # | {saves} | {screen.whole} | cause | {place} | sure | effort | to do |"
    yield "|--:|--:|--:|---|---|---|---|---|"
    for row in screen.rows:
        cells = (row.cause, row.place, row.sure, row.effort, row.todo)
        shown = (prose_cell(cells[0]), code_cell(cells[1]), *map(prose_cell, cells[2:4]), code_cell(cells[4]))
        yield f"| {row.number} | {row.saves} | {prose_cell(row.share)} | {' | '.join(shown)} |"


def _facts(scan: Scan) -> list[str]:
    """Return a paragraph each: what was read, busy time, steps, savings, what bounds the step, limits, verdicts."""
    summary = scan.summary
    whole = summary.gpu_busy_ns + summary.gpu_idle_ns
    share = percent_text(summary.gpu_busy_ns, whole)
    read = f"{prose(' · '.join(words.summary_parts(scan.trace)))}."
    facts = [
        read,
        f"The GPU was busy for {share} of the time ({time_text(summary.gpu_busy_ns)} of {time_text(whole)}).",
    ]
    steps = [] if summary.per_step is None else list(step_texts(summary.per_step))
    if texts := [*([text] if (text := words.unprofiled_text(summary)) else []), *steps]:
        facts.append(f"{'A step' if steps else 'All'}: {prose('; '.join(texts))}.")
    if texts := list(device_texts(summary)):
        facts.append(f"Each of them: {prose('; '.join(texts))}.")
    if scan.findings:
        step, gpu = words.all_of(scan, "step_saving_ns"), words.all_of(scan, "gpu_saving_ns")
        left = f"; the {words.whole_text(scan)} goes {prose(text)}" if (text := verdict_words.saved_text(scan)) else ""
        first = f", {text}" if (text := words.first_text(scan)) else ""
        facts.append(f"All findings together save {_savings(step, gpu, scan)}{first}{left}.")
    memory = f"memory: {text}" if (text := words.memory_text(scan)) else ""
    sentences = (bound_sentence(scan), words.ceiling_text(scan), memory, words.payback_text(scan))
    facts += [f"{prose(text[:1].upper() + text[1:])}." for text in sentences if text]
    if text := verdict_words.evidence_text(scan):
        facts.append(f"Verdicts: {prose(text)}.")
    return facts


def _finding(finding: Finding, scan: Scan) -> Iterator[str]:
    if finding.refuted:
        often = count_text(finding.occurrences, "occurrence")
        yield f"**Refuted**: nothing is claimed any more, of {often} in the trace."
    else:
        step, gpu = words.of_finding(finding, "step_saving_ns"), words.of_finding(finding, "gpu_saving_ns")
        saves = _savings(step, gpu, scan)
        if words.outside_steps(finding):
            saves = f"**{time_text(finding.gpu_saving_ns.mid)}** of GPU time over the trace, outside of the steps"
        yield f"Saves {saves}. It occurs {words.cost_text(finding, scan)}."
    yield "### Why"
    yield from _blocks(finding.why)
    yield "### Where"
    yield "\n".join(_where(finding, scan))
    yield "### Evidence"
    yield f"*{prose(finding.evidence)}*: {words.EVIDENCE.get(finding.evidence, 'see the documentation')}."
    if finding.counters:
        yield f"Nsight Compute counted {prose(words.counted_text(finding.counters))}."
    if finding.verdict is not None:
        yield "### Verdict"
        yield from _verdicts(finding)
    yield "### Cost"
    yield "\n".join(_cost(finding))
    if facts := " ".join(traffic_texts(finding)):
        yield facts
    if len(finding.variants) > 1:
        yield "### Variants"
        yield "\n".join(_variants(finding, scan))
    if finding.kernels:
        yield f"### Kernels{' of the first occurrence' if finding.occurrences > 1 else ''}"
        yield "\n".join(_kernels(finding.kernels))
    yield "### Fix"
    yield from _blocks(finding.fix)
    yield "### How to check"
    yield "\n".join(_check(finding))
    if finding.assumptions:
        yield "### Assumptions"
        yield "\n".join(f"- {prose(text)}" for text in finding.assumptions)
    yield f"Rule {code(finding.rule)}, severity {prose(finding.severity)}, fingerprint {code(finding.fingerprint)}."
    if finding.identity.aliases:
        yield f"Without modules recorded: {', '.join(map(code, finding.identity.aliases))}."


def _savings(step: Range, gpu: Range, scan: Scan) -> str:
    """Return step and GPU time, a step where steps are known, and so are the shares."""
    whole_ns, steps = verdict_words.unprofiled_ns(scan.summary), scan.summary.per_step is not None
    of_step = "" if whole_ns is None else f"; {percent_text(step.mid, whole_ns)} of {words.share_of_text(scan)}"
    of_gpu = f"; {words.gpu_text(gpu.mid, scan)}"
    parts = [
        f"**{time_text(saving.mid)}** of {name} ({range_text(saving.low, saving.high)}{share})"
        for saving, name, share in (
            (step, "each step" if steps else "step time", of_step),
            (gpu, "GPU time a step" if steps else "GPU time", of_gpu),
        )
        if saving.high
    ]
    return " and ".join(parts) or "nothing"


def _verdicts(finding: Finding) -> Iterator[str]:
    """Yield the verdict, or that on each variant that has one."""
    every: Sequence[Finding | Variant] = finding.variants or (finding,)
    for one in every:
        if one.verdict is not None:
            if len(every) > 1:
                yield f"Variant {code(one.identity.finding)}:"
            yield "\n".join(_verdict(one, one.verdict))


def _variants(finding: Finding, scan: Scan) -> Iterator[str]:
    each = f" {words.each_text(finding)}" if finding.per_step is not None else ""
    yield f"| occurs | GPU time saved{each} | step time saved{each} | operators | tensors | fingerprint |"
    yield "|---|--:|--:|---|---|---|"
    for variant in finding.variants:
        gpu, step = (words.a_step(finding, saving).mid for saving in (variant.gpu_saving_ns, variant.step_saving_ns))
        operators = " → ".join(code_cell(op) for op in words.chain(variant.ops)) or "–"
        cells = (
            words.cost_text(finding, scan, variant),
            time_text(gpu),
            time_text(step),
            operators,
            code_cell(variant.shapes) if variant.shapes else "–",
            code_cell(variant.identity.finding),
        )
        yield f"| {' | '.join(cells)} |"


def _where(finding: Finding, scan: Scan) -> Iterator[str]:
    if finding.module:
        yield f"- module {code(finding.module)}"
    for source in finding.source:
        yield f"- {code(words.source_text(source, source.file))}"
    if finding.ops:
        between = " → " if finding.on_gpu else ", "
        yield f"- operators {between.join(code(op) for op in words.chain(finding.ops))}"
    if finding.shapes or finding.dtype:
        yield f"- tensors {' '.join(code(text) for text in (finding.dtype, finding.shapes) if text)}"
    if not (finding.module or finding.source):
        how = _RECORDS_LINES.get(scan.trace.format)
        yield f"- no module or source line was recorded{'' if how is None else f': {how}'}"


def _verdict(finding: Finding | Variant, verified: Verified) -> Iterator[str]:
    by = "" if verified.by == "kernel" else f" · with {code(verified.by)}"
    yield f"- {prose(f'{verified.level}, {verified.says}')}{by}"
    if text := verdict_words.times_text(verified):
        yield f"- {prose(text)}"
    if text := verdict_words.error_text(finding):
        yield f"- GPU time saved: {prose(text)}"
    if text := verdict_words.not_tested_text(verified):
        yield f"- not tested: {prose(text)}"
    for text in verified.assumptions:
        yield f"- assumed: {prose(text)}"
    yield f"- read from {code(verified.file)}"


def _cost(finding: Finding) -> Iterator[str]:
    yield f"| {words.each_text(finding)} | low | mid | high |"
    yield "|---|--:|--:|--:|"
    for name, low, mid, high in cost_rows(finding):
        cells = (prose_cell(name), low, mid, high)
        yield f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def _kernels(kernels: Sequence[str]) -> Iterator[str]:
    yield "| # | kernel |"
    yield "|--:|---|"
    for number, kernel in enumerate(kernels, 1):
        yield f"| {number} | {code_cell(shorten(kernel, _LONGEST_KERNEL))} |"


def _check(finding: Finding) -> Iterator[str]:
    yield "1. Make the change and record the same steps again, to `after.json.gz`."
    names = (finding.fingerprint, *finding.identity.aliases[:_MOST_ALIASES])
    marks = " or ".join(f"`{re.sub('[^0-9a-zA-Z]', '', name)}`" for name in names)
    yield f"2. Compare both recordings. What was {marks} must be `fixed`, and the step shorter as predicted:"
    yield ""
    yield "   ```bash"
    yield "   tracemine diff before.json.gz after.json.gz"
    yield "   ```"
    yield "3. Compare the results of both programs."


def _blocks(text: str) -> Iterator[str]:
    """Yield a rule's text: paragraphs, and its indented code in a fence that nothing in it can close."""
    for is_code, block in words.blocks(text):
        yield _fenced(block) if is_code else prose(block)


def rule_text(text: str) -> str:
    """Return a rule's text as `rules show` prints it: its author's own Markdown, for a terminal and without HTML.

    >>> rule_text("Call `f`, <b>not</b>\\n`g`.")
    'Call `f`, &lt;b>not&lt;/b> `g`.'
    """
    return "\n\n".join(_fenced(block) if is_code else without_html(block) for is_code, block in words.blocks(text))


def _fenced(block: str) -> str:
    lines = [line(one, _LONGEST_CODE_LINE) for one in block.splitlines()]
    longest = max((len(run) for one in lines for run in re.findall("`+", one)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}python", *lines, fence])


def _refuted(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what verdicts took away: a line each, for it saves nothing."""
    if not findings:
        return
    yield "## Refuted"
    yield "Nothing is claimed for these, and no other rule claims them."
    rows = ["| predicted | finding | fingerprint | verdict |", "|--:|---|---|---|"]
    for finding in findings:
        verified = finding.verdict
        if verified is None:
            continue
        cells = (
            prose_cell(finding.title),
            code_cell(finding.fingerprint),
            prose_cell(verdict_words.refuted_text(verified)),
        )
        rows.append(f"| {time_text(verdict_words.refuted_ns(finding))} | {' | '.join(cells)} |")
    yield "\n".join(rows)


def _why_not(scan: Scan) -> Iterator[str]:
    if not scan.refused:
        return
    yield "## Why not one kernel"
    rows = ["| traffic that stays | times | first | second | because |", "|--:|--:|---|---|---|"]
    for one in scan.refused:
        names = " | ".join(code_cell(name) for name in (one.first, one.second))
        stays = "?" if one.bytes is None else bytes_text(one.bytes)
        rows.append(f"| {stays} | {one.occurrences:,} | {names} | {prose(one.reason)} |")
    yield "\n".join(rows)


def _foot(scan: Scan, hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{words.shown_text(scan, hidden)}: `--top 0` shows all"
    if text := words.little_text(scan):
        yield prose(text)
    if scan.dropped:
        yield f"Left out: {prose(words.dropped_text(scan.dropped))}."
