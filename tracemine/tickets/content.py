"""What a ticket says of a finding: what it costs and saves, the fix, and how to reproduce and check it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from tracemine.causes import load_rules
from tracemine.documents.verdict_words import error_text, times_text, unprofiled_ns
from tracemine.documents.words import (
    EVIDENCE,
    a_step,
    blocks,
    chain,
    cost_text,
    each_text,
    outside_steps,
    saving_of_each,
    share_of_text,
    source_text,
    unprofiled_text,
)
from tracemine.findings.record import Finding, Range, Scan, Source, Variant
from tracemine.matching import Rule
from tracemine.ops.kernel_names import short_name
from tracemine.report.escape import shorten
from tracemine.tickets.document import (
    Block,
    Bullets,
    Code,
    Heading,
    Name,
    Paragraph,
    Run,
    Runs,
    Strong,
    Text,
    TicketTable,
)
from tracemine.tickets.marks import MOST_ALIASES, key_of
from tracemine.tickets.names import EVERYONES, ShownNames
from tracemine.tickets.record import Figures, TicketDraft, TicketMark
from tracemine.units import count_text, percent_text, range_text, time_text
from tracemine.version import __version__

_MOST_KERNELS = 24
_MOST_VARIANTS = 12
_LONGEST_PLACE = 80


@dataclass(frozen=True, slots=True)
class Details:
    """What of a recording its findings do not say; empty where only those are at hand."""

    versions: Mapping[str, str] = field(default_factory=dict)  # `torch`, CUDA …
    dur_ns: Mapping[int, int] = field(default_factory=dict)  # of activities, by row


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Where something occurs in the program, as far as that was recorded."""

    module: str | None
    source: tuple[Source, ...]
    ops: tuple[str, ...]
    on_gpu: bool  # one operator's work comes behind the other's
    dtype: str | None
    shapes: str | None

    def short(self, names: ShownNames) -> str:
        """Return it in a title's words: the module, else the source line; "" where neither is known."""
        if self.module:
            return shorten(names.module(self.module), _LONGEST_PLACE)
        for source in self.source[:1]:
            return f"{names.file(source.file).rpartition('/')[2]}, {names.function(source.function)}"
        return ""

    def hidden(self, rule: str, head: str) -> frozenset[str]:
        """Return names that pseudonyms replace: modules, their parts, files, functions, but not the rule's words."""
        found = set((self.module or "").replace("*", ".").replace("_.", ".").split("."))
        for source in self.source:
            found.update(re.split(r"[\\/]", source.file))
            found.add(source.function)
        return frozenset(found - EVERYONES - _rule_words(rule, head) - {""})

    def runs(self, names: ShownNames) -> Iterator[Runs]:
        """Yield a line each of module, source lines, operators and tensors."""
        if self.module:
            yield (Text("module "), Name(names.module(self.module)))
        for source in self.source:
            shown = type(source)(
                file=names.file(source.file),
                line=source.line,
                function=names.function(source.function),
                begins=source.begins,
            )
            yield (Name(source_text(shown, shown.file)),)
        if self.ops:
            runs: list[Run] = [Text("operators ")]
            for number, op in enumerate(chain(self.ops)):
                runs += [Text(" → " if self.on_gpu else ", ")] if number else []
                runs.append(Name(op))
            yield tuple(runs)
        if self.dtype or self.shapes:
            yield (Text("tensors "), Name(" ".join(text for text in (self.dtype, self.shapes) if text)))
        if not (self.module or self.source):
            yield (Text("no module or source line was recorded: record with `with_stack=True`"),)


def _place_of(of: Finding | Variant, finding: Finding) -> FindingPlace:
    return FindingPlace(of.module, of.source, of.ops, finding.on_gpu, finding.dtype, of.shapes)


def draft(finding: Finding, scan: Scan, names: ShownNames, details: Details) -> TicketDraft:
    """Return the ticket of a finding. Raises UsageError where its identity is none."""
    aliases = tuple(key_of(names.project, one) for one in finding.identity.aliases[:MOST_ALIASES])
    key = key_of(names.project, finding.identity.finding)
    mark = TicketMark(key, aliases, figures(finding), redacted=names.redact)
    hidden = _hidden(finding) if names.redact else frozenset()
    text = tuple(_blocks(finding, scan, names, details))
    return TicketDraft(mark, names.text(_title(finding, names), hidden), names.blocks(text, hidden))


def figures(finding: Finding) -> Figures:
    """Return what is compared with what the ticket said last."""
    saving = saving_of_each(finding, "step_saving_ns").mid or saving_of_each(finding, "gpu_saving_ns").mid
    if finding.per_step is None or outside_steps(finding):
        return Figures(saving, finding.measured_ns, "trace")
    return Figures(saving, finding.per_step.measured_ns, "step")


def _hidden(finding: Finding) -> frozenset[str]:
    every: tuple[Finding | Variant, ...] = (finding, *finding.variants)
    parts = (_place_of(one, finding).hidden(finding.rule, head_of(finding.title, finding.module)) for one in every)
    return frozenset().union(*parts)


def _rule_words(name: str, head: str) -> set[str]:
    """Return what a rule says whatever trace it is of: `RMSNorm` and `step` are no secret there."""
    rule = rules().get(name)
    texts = [head, *([rule.title, rule.why, rule.fix] if rule is not None else [])]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@cache
def rules() -> Mapping[str, Rule]:
    """Return the rules that tracemine ships, by id."""
    return {rule.id: rule for rule in load_rules()}


def head_of(title: str, module: str | None) -> str:
    """Return a finding's title without its module's class, in which it ends."""
    head, _, tail = title.rpartition(": ")
    return head if head and tail in (module or "") else title


def _title(finding: Finding, names: ShownNames) -> str:
    """Return the rule's title, the place and what it saves. The place is left out where the title ends in it."""
    title = finding.title
    place = _place(finding, names)
    # A finding's title ends in its module's class; the ticket's has the whole module in its place.
    head = head_of(title, finding.module)
    if names.redact:
        title = head
    saving = figures(finding)
    says = f"saves {time_text(saving.saving_ns)} {saving.each}"
    return f"{head}: {place} ({says})" if place else f"{title} ({says})"


def _place(finding: Finding, names: ShownNames) -> str:
    if text := _place_of(finding, finding).short(names):
        return text
    if ": " in finding.title:  # which names the operators already
        return ""
    return shorten(", ".join(op.removeprefix("aten::") for op in chain(finding.ops)), _LONGEST_PLACE)


def _blocks(finding: Finding, scan: Scan, names: ShownNames, details: Details) -> Iterator[Block]:
    yield Paragraph(tuple(_savings(finding, scan)))
    yield _before_after(finding, scan)
    yield Heading("Why")
    yield from rule_text(finding.why)
    yield Heading("Where")
    yield Bullets(tuple(_place_of(finding, finding).runs(names)))
    if finding.kernels:
        yield Heading("Kernels" + (" of one occurrence" if finding.occurrences > 1 else ""))
        yield from _kernels(finding, details)
    if len(finding.variants) > 1:
        yield Heading("Variants")
        yield _variants(finding, scan)
    yield Heading("Fix")
    yield from rule_text(finding.fix)
    yield Heading("How to check")
    yield Paragraph((Text("Record the same steps with the fix, as they were recorded before, and compare both:"),))
    yield Code("tracemine diff before.json.gz after.json.gz", "bash")
    yield Heading("How to reproduce")
    yield Paragraph((Text("Rebuild it from the recording, generate the kernel, validate it and time it on a GPU:"),))
    rule = shlex.quote(re.sub(r"[^\w-]", "", finding.rule, flags=re.ASCII))
    yield Code(f"tracemine verify before.json.gz --rule {rule}", "bash")
    yield Heading("How sure it is")
    yield Bullets(tuple(_confidence(finding)))
    yield Heading("Recorded with")
    yield Bullets(tuple(_versions(finding, scan, details)))


def _savings(finding: Finding, scan: Scan) -> Iterator[Run]:
    step, gpu = saving_of_each(finding, "step_saving_ns"), saving_of_each(finding, "gpu_saving_ns")
    steps = each_text(finding) == "per step"
    each = "each step" if steps else "the trace"
    whole_ns = None if outside_steps(finding) else unprofiled_ns(scan.summary)
    yield Text("Saves ")
    if step.high:
        share = "" if whole_ns is None else f"; {percent_text(step.mid, whole_ns)} of {share_of_text(scan)}"
        yield Strong(time_text(step.mid))
        yield Text(f" of {each} ({range_text(step.low, step.high)}{share})")
    if gpu.high:
        yield Text(" and " if step.high else "")
        yield Strong(time_text(gpu.mid))
        yield Text(f" of GPU time{' a step' if steps else ''} ({range_text(gpu.low, gpu.high)})")
    yield Text(f". It occurs {cost_text(finding, scan)}.")


def _before_after(finding: Finding, scan: Scan) -> TicketTable:
    """Return what is measured, and what is predicted; a step where steps are known."""
    rows: list[tuple[Runs, ...]] = []
    measured = a_step(finding, Range(*[finding.measured_ns] * 3)).mid
    gpu, step = saving_of_each(finding, "gpu_saving_ns"), saving_of_each(finding, "step_saving_ns")
    if gpu.high:
        rows.append(_row("GPU time of these kernels", measured, gpu))
    else:
        rows.append(_row("the GPU idles here", measured, step.at_most(measured)))
    whole_ns = unprofiled_ns(scan.summary)
    if whole_ns is not None and step.high and not outside_steps(finding):
        rows.append(_row(share_of_text(scan), whole_ns, step))
    return TicketTable((each_text(finding), "before", "after, predicted", "range"), tuple(rows))


def _row(what: str, before_ns: int, saving: Range) -> tuple[Runs, ...]:
    after = [max(before_ns - ns, 0) for ns in (saving.high, saving.mid, saving.low)]
    texts = (what, time_text(before_ns), time_text(after[1]), range_text(after[0], after[2]))
    return tuple((Text(text),) for text in texts)


def rule_text(text: str) -> Iterator[Block]:
    """Yield what a rule says as blocks, its code as code."""
    for is_code, block in blocks(text):
        yield Code(block, "python") if is_code else Paragraph((Text(block),))


def _kernels(finding: Finding, details: Details) -> Iterator[Block]:
    """Yield short names, each with its time where the recording is at hand: the mean over the first kind."""
    first = finding.variants[0].occurrences if finding.variants else finding.occurrences
    alike = [rows for rows in finding.activities[:first] if len(rows) == len(finding.kernels)]
    rows: list[tuple[Runs, ...]] = []
    for number, kernel in enumerate(finding.kernels[:_MOST_KERNELS]):
        times = [ns for rows_of in alike if (ns := details.dur_ns.get(rows_of[number])) is not None]
        time = time_text(sum(times) / len(times)) if times else "–"
        rows.append(((Text(str(number + 1)),), (Name(short_name(kernel)),), (Text(time),)))
    yield TicketTable(("#", "kernel", "time"), tuple(rows))
    if more := len(finding.kernels) - _MOST_KERNELS:
        yield from [Paragraph((Text(f"and {count_text(more, 'more kernel')}"),))] if more > 0 else []
    if not details.dur_ns:
        each_ns = finding.measured_ns / max(finding.occurrences, 1)
        yield Paragraph((Text(f"Together they take {time_text(each_ns)} an occurrence."),))


def _variants(finding: Finding, scan: Scan) -> TicketTable:
    rows: list[tuple[Runs, ...]] = []
    for variant in finding.variants[:_MOST_VARIANTS]:
        gpu, step = (a_step(finding, saving).mid for saving in (variant.gpu_saving_ns, variant.step_saving_ns))
        texts: tuple[Run, ...] = (
            Text(cost_text(finding, scan, variant)),
            Text(time_text(gpu)),
            Text(time_text(step)),
            Name(variant.shapes) if variant.shapes else Text("–"),
        )
        rows.append(tuple((run,) for run in texts))
    more = len(finding.variants) - _MOST_VARIANTS
    if more > 0:
        rows.append(((Text(f"and {more:,} more"),), (Text(""),), (Text(""),), (Text(""),)))
    return TicketTable(("occurs", "GPU time saved", "step time saved", "tensors"), tuple(rows))


def _confidence(finding: Finding) -> Iterator[Runs]:
    says = EVIDENCE.get(finding.evidence, "see the documentation")
    yield (Text("evidence: "), Strong(finding.evidence), Text(f": {says}"))
    step, gpu = saving_of_each(finding, "step_saving_ns"), saving_of_each(finding, "gpu_saving_ns")
    for what, saving in (("step", step), ("GPU time", gpu)):
        if saving.high:
            interval = f"{range_text(saving.low, saving.high)}, {time_text(saving.mid)} in the middle"
            yield (Text(f"90 % interval of what the {what} saves: {interval}"),)
    for one in finding.variants or (finding,):
        if one.verdict is not None:
            texts = (f"{one.verdict.level}, {one.verdict.says}", times_text(one.verdict), error_text(one))
            yield (Text("verified: " + " · ".join(text for text in texts if text)),)
    yield from ((Text(f"assumes: {text}"),) for text in finding.assumptions)


def _versions(finding: Finding, scan: Scan, details: Details) -> Iterator[Runs]:
    stored = getattr(getattr(scan, "recorded", None), "torch", None)  # scans of some versions say it
    torch = details.versions.get("torch") or stored
    yield (Text("GPU "), Name(scan.trace.gpu) if scan.trace.gpu else Text("not named"))
    yield (Text("torch "), Name(torch) if torch else Text("not recorded"))
    for name, version in sorted(details.versions.items()):
        if name != "torch":
            yield (Name(name), Text(" "), Name(version))
    if text := unprofiled_text(scan.summary):
        yield (Text(text),)
    yield (Text(f"tracemine {__version__}; {scan.trace.format}, {count_text(scan.trace.steps, 'step')}"),)
    also = ", ".join(finding.identity.aliases[:MOST_ALIASES])
    yield (Text("finding "), Name(finding.identity.finding), *((Text(", also "), Name(also)) if also else ()))
