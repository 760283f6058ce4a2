"""One finding whole, for a person at a terminal: what, where, evidence, cost, saving, fix, verdict. Nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.table import Table
from rich.text import Text

from tracemine.documents import words
from tracemine.documents.verdict_words import not_tested_text
from tracemine.ops.kernel_names import short_name
from tracemine.report.console import console_for
from tracemine.report.escape import line
from tracemine.report.paragraphs import LABEL, LabelledText, labelled, savings, verdict
from tracemine.units import bytes_text, ratio_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.matching import Rule
    from tracemine.report import Drawing

_LONGEST = 2000  # characters of a line


def render(finding: Finding, scan: Scan, rule: Rule | None, out: TextIO, options: Drawing) -> None:
    """Write all that is known of a finding. rule: that which found it; None: it is not loaded."""
    console = console_for(out, options)
    console.print(Text(_plain(finding.title), "bold"))
    about = (scan.trace.path, *words.summary_parts(scan.trace))
    console.print(Text(_plain(" · ".join(about)), LABEL))
    for paragraph in _paragraphs(finding, scan, rule):
        console.print()
        for row in paragraph:
            for wrapped in row.wrapped(console):
                console.print(wrapped, no_wrap=True, overflow="ignore", crop=False)
    if len(finding.variants) > 1:
        console.print()
        with console.capture() as drawn:
            console.print(_variants(finding, scan))
        out.writelines(f"{one.rstrip()}\n" for one in drawn.get().splitlines())


def _paragraphs(finding: Finding, scan: Scan, rule: Rule | None) -> Iterator[Iterator[LabelledText]]:
    """Yield what is said, in paragraphs of labelled lines; those with nothing to say are left out."""
    saves_nothing = [Text("nothing: verdicts took away what was predicted")] if finding.refuted else []
    facts: tuple[tuple[str, list[Text]], ...] = (
        ("id", _texts(f"{finding.fingerprint} · rule {finding.rule} · severity {finding.severity}")),
        ("what", _texts("" if rule is None else rule.what)),
        ("why", _texts(finding.why)),
        ("where", [*_texts(finding.module or ""), *_sources(finding)]),
        ("kernels" if finding.on_gpu else "before", _kernels(finding)),
        ("evidence", _texts(f"{finding.evidence}: {words.EVIDENCE.get(finding.evidence, 'not known')}")),
        ("cost", [*_texts(words.cost_text(finding, scan)), *_costs(finding)]),
        ("saves", saves_nothing or list(savings(finding, scan))),
        ("counted", _texts(words.counted_text(finding.counters) if finding.counters else "")),
        ("verdict", [*verdict(finding), *_verdict_rest(finding)]),
        ("fix", list(_fix(finding.fix))),
        ("assumes", _texts(*finding.assumptions)),
        ("doubts", _texts(*(() if rule is None else rule.false_positives))),
        ("check", _texts(f"tracemine diff BEFORE AFTER says whether {finding.fingerprint} is fixed")),
    )
    for label, values in facts:
        if values:
            yield labelled(label, *values)


def _plain(text: str) -> str:
    return line(" ".join(text.split()), _LONGEST)


def _texts(*texts: str) -> list[Text]:
    return [Text(_plain(text)) for text in texts if text]


def _sources(finding: Finding) -> list[Text]:
    lines = _texts(*(words.source_text(source, source.file) for source in finding.source))
    return lines or ([] if finding.module else [Text("no module or source line was recorded", LABEL)])


def _kernels(finding: Finding) -> list[Text]:
    names = words.chain([words.operator_name(name) for name in finding.ops])
    between = " → " if finding.on_gpu else ", "  # what follows gaps is no chain
    operands = " ".join(text for text in (finding.dtype, finding.shapes) if text)
    found = _texts(between.join(names), operands)
    return found + [
        Text(f"{number:>2} {_plain(short_name(name))}", LABEL) for number, name in enumerate(finding.kernels, 1)
    ]


def _costs(finding: Finding) -> list[Text]:
    """Say what the fix leaves, and what it moves."""
    facts = []
    if (fused := finding.fused_ns) is not None:
        each = words.a_step(finding, fused)
        low, mid, high = (time_text(ns) for ns in (each.low, each.mid, each.high))
        facts.append(f"after the fix {mid} {words.each_text(finding)} ({low} to {high})")
    if (traffic := finding.traffic_bytes) is not None:
        facts.append(f"device memory traffic {bytes_text(traffic.before)} → {bytes_text(traffic.after)}")
    if (intensity := finding.arithmetic_intensity) is not None:
        facts.append(f"{ratio_text(intensity.before)} → {ratio_text(intensity.after)} FLOP a byte")
    if finding.intermediate_bytes:
        facts.append(f"tensors of {bytes_text(finding.intermediate_bytes)} need not exist any more")
    return _texts(*facts)


def _verdict_rest(finding: Finding) -> list[Text]:
    """Say what a verdict left out, what it assumes, and where it is from."""
    verified = finding.verdict
    if verified is None:
        return []
    untried = not_tested_text(verified)
    assumed = (f"assumes: {text}" for text in verified.assumptions)
    return _texts(f"not tested: {untried}" if untried else "", *assumed, f"read from {verified.file}")


def _fix(fix: str) -> Iterator[Text]:
    """Yield all of it: paragraphs, and code that can be copied as it is."""
    for is_code, text in words.blocks(fix):
        if not is_code:
            yield Text(_plain(text))
            continue
        for one in text.splitlines():
            yield Text(f"  {line(one, _LONGEST)}", "cyan", no_wrap=True)


def _variants(finding: Finding, scan: Scan) -> Table:
    """Return a table of where it occurs: how often, what that costs, and what tells one from the others."""
    table = Table(box=None, pad_edge=False, header_style=LABEL)
    table.add_column("variant", no_wrap=True)
    for title in ("occurs", "GPU saved", "step saved", "tensors"):
        table.add_column(title, justify="right" if "saved" in title else "left", overflow="fold")
    for one in finding.variants:
        gpu, step = (words.a_step(finding, saving).mid for saving in (one.gpu_saving_ns, one.step_saving_ns))
        what = one.shapes or " → ".join(words.chain([words.operator_name(name) for name in one.ops]))
        cells = (one.identity.finding, words.cost_text(finding, scan, one), time_text(gpu), time_text(step), what)
        table.add_row(*(Text(_plain(cell)) for cell in cells))
    return table
