"""Paragraphs of reports for a terminal, and what they say of a finding's savings and verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from tracemine.documents.verdict_words import error_text, said_text, times_text, unprofiled_ns
from tracemine.documents.words import basis_text, gpu_text, of_finding, outside_steps, share_of_text
from tracemine.report.escape import line
from tracemine.units import percent_text, range_text, time_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.perfmodel import Range

LABEL = "dim"
RANK_WIDTH = 4  # a rank and the space after it
LABEL_WIDTH = 10  # a label and the spaces after it


class LabelledText(Struct, frozen=True):
    """A paragraph with a label in front of its first line; the others are indented as far."""

    value: Text
    label: str = ""
    indent: int = 0  # of the label
    width: int = 0  # of the label with the spaces after it

    def wrapped(self, console: Console) -> Iterator[Text]:
        margin = self.indent + self.width
        whole = self.value.no_wrap  # code: where the terminal breaks it, it can still be copied
        lines = [self.value] if whole else self.value.wrap(console, max(console.width - margin, 20)) or [Text()]
        for number, text in enumerate(lines):
            label = "" if number else " " * self.indent + self.label
            row = Text.assemble((f"{label:<{margin}}", LABEL), text)
            row.rstrip()
            yield row


def paragraph(*parts: str | tuple[str, str]) -> LabelledText:
    return LabelledText(Text.assemble(*parts))


def labelled(label: str, *values: Text, indent: int = 0) -> Iterator[LabelledText]:
    for value in values:
        yield LabelledText(value, label, indent, LABEL_WIDTH)
        label = ""


def savings(finding: Finding, scan: Scan) -> Iterator[Text]:
    """Yield the savings, the step's first: it is what a person waits for.

    A finding without a saving of one kind does not mention it, but one of GPU time alone says so.
    """
    step, gpu = finding.step_saving_ns, finding.gpu_saving_ns
    if outside_steps(finding):
        for name, saving in (("all", step), ("GPU", gpu)):
            if saving.high:
                yield saved(saving, name, "over the trace, outside of the steps")
        return
    if step.mid or (step.high and not gpu.high):
        each = of_finding(finding, "step_saving_ns")
        yield saving_of(each, "step", each.mid, unprofiled_ns(scan.summary), f"of {share_of_text(scan)}")
    if gpu.high:
        each, basis = of_finding(finding, "gpu_saving_ns"), basis_text(finding)
        basis = f", {basis}" if basis else ""
        yield saved(each, "GPU", gpu_text(each.mid, scan) + line(basis))
    if gpu.high and not step.mid:
        yield Text("step none: of use once nothing else sets its pace", LABEL)


def saving_of(saving: Range, name: str, part_ns: int, whole_ns: int | None, of_what: str) -> Text:
    return saved(saving, name, "" if whole_ns is None else f"{percent_text(part_ns, whole_ns)} {of_what}")


def saved(saving: Range, name: str, share: str) -> Text:
    number, percent, rest = share.partition("%")
    share = f"  {number + percent:>6}{rest}" if percent else f"  {share}" if share else ""
    return Text.assemble(
        f"{name:<4} ",
        (f"{time_text(saving.mid):>7}", "bold green"),
        f"  {f'({range_text(saving.low, saving.high)})':<18}",
        (share, LABEL),
    )


def verdict(finding: Finding) -> Iterator[Text]:
    """Draw what was measured, what was predicted, and what was not tried."""
    for one in finding.variants or (finding,):
        if one.verdict is not None:
            for text in (said_text(one.verdict), times_text(one.verdict), error_text(one)):
                if text:
                    yield Text(line(text))
