"""What a ticket says of a finding: what it costs and saves, where, the fix, how to check it; the rest folded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tracemine.causes import load_rules
from tracemine.documents import words
from tracemine.documents.finding import before_after
from tracemine.documents.screen import own_of, sure_of, times_of, whole_percent
from tracemine.documents.verdict_words import times_text, unprofiled_ns
from tracemine.findings.grouping import of_torch, one_kernel_fixes
from tracemine.findings.record import Finding, Range, Scan, Source
from tracemine.matching import Rule
from tracemine.ops.kernel_names import short_name
from tracemine.rows.user_frames import is_own
from tracemine.tickets.document import (
    Block,
    Bullets,
    Code,
    Folded,
    Name,
    Paragraph,
    Run,
    Runs,
    Strong,
    Text,
    TicketTable,
    listed,
)
from tracemine.tickets.marks import MOST_ALIASES, key_of
from tracemine.tickets.names import EVERYONES, ShownNames
from tracemine.tickets.record import Figures, TicketDraft, TicketMark
from tracemine.tickets.titles import distinct_titles, task_of, ways_to_say
from tracemine.units import TimeUnit, count_text, time_text
from tracemine.version import __version__

_MOST_KERNELS = 12
_MOST_VARIANTS = 4
_CHECK = "Record the same steps again, then "
_FILES = ("before.json.gz", "after.json.gz")


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Where something occurs in the program, as far as that was recorded."""

    module: str | None
    source: tuple[Source, ...]  # innermost first
    ops: tuple[str, ...]
    own: Source | None = None  # the user's own, where it is none of the above

    def hidden(self, rule: str, title: str) -> frozenset[str]:
        """Return names that pseudonyms replace: modules, their parts, files, functions, but not the rule's words."""
        found = set((self.module or "").replace("*", ".").replace("_.", ".").split("."))
        for source in (*self.source, *([self.own] if self.own else [])):
            found.update(re.split(r"[\\/]", source.file))
            found.add(source.function)
        return frozenset(found - EVERYONES - _rule_words(rule, head_of(title, self.module)) - {""})

    def ways(self, rule: str, title: str, names: ShownNames, mark: str, saves: str) -> tuple[str, ...]:
        """Return titles of a finding here, without what it saves, more telling from one to the next."""
        frame = next(iter((*filter(None, (self.own,)), *self.source)), None)
        line = "" if frame is None else f"{names.file(frame.file).rpartition('/')[2]}:{frame.line}"
        module = names.module(self.module) if self.module else None
        said = task_of(head_of(title, self.module), rules().get(rule))
        return tuple(ways_to_say(*said, module=module, line=line, ops=self.ops, mark=mark, saves=saves))

    def runs(self, names: ShownNames, trace_format: str = "kineto") -> Runs:
        """Return it in a line: the user's own frame, what called it, the module; else operators."""
        frames = (f"{names.file(one.file)}:{one.line} {names.function(one.function)}" for one in self._shown)
        found = [*listed(", called from ", frames)]
        if self.module:
            found += [Text(", module " if found else "module "), Name(names.module(self.module).replace("_*", ""))]
        if found:
            return tuple(found)
        ops = words.chain(tuple(map(words.operator_name, self.ops)))[:_MOST_KERNELS]
        found = [*([Text("operators ")] if ops else []), *listed(", ", ops)]
        if not of_torch(self.ops):
            return tuple(found)
        how = ": record with `with_stack=True`" if trace_format == "kineto" else ""
        return (*found, Text(f"; no module or line was recorded{how}"))

    @property
    def _shown(self) -> tuple[Source, ...]:
        """Return the innermost frame, and the user's own that calls it."""
        outer = (*self.source[1:], *([self.own] if self.own else []))
        callers = (one for one in outer if is_own(one.file) and not one.function.startswith("<"))
        return (
            *self.source[:1],
            *([caller] if (caller := next(callers, None)) and self.source[:1] != (caller,) else []),
        )


def drafts_of(
    findings: Sequence[Finding], scan: Scan, names: ShownNames, frames: Mapping[str, Source]
) -> Iterator[TicketDraft]:
    """Yield the ticket of each finding. Raises UsageError where an identity is none.

    frames: the user's own lines of findings that hold none, by fingerprint.
    """
    places = [FindingPlace(one.module, one.source, one.ops, own_of(one, frames)) for one in findings]
    saved = [_saves(finding, scan) for finding in findings]
    ways = [
        place.ways(one.rule, one.title, names, one.identity.finding, saves)
        for one, place, saves in zip(findings, places, saved, strict=True)
    ]
    for finding, place, saves, title in zip(findings, places, saved, distinct_titles(ways), strict=True):
        aliases = tuple(key_of(names.project, alias) for alias in finding.identity.aliases[:MOST_ALIASES])
        key = key_of(names.project, finding.identity.finding)
        mark = TicketMark(key, aliases, figures(finding), redacted=names.redact)
        hidden = _hidden(finding, place) if names.redact else frozenset[str]()
        text = names.blocks(tuple(_blocks(finding, scan, place, names)), hidden)
        yield TicketDraft(mark, names.text(title, hidden) + saves, text)


def figures(finding: Finding) -> Figures:
    """Return what is compared with what the ticket said last."""
    saving = words.saving_of_each(finding, "step_saving_ns").mid or words.saving_of_each(finding, "gpu_saving_ns").mid
    if finding.per_step is None or words.outside_steps(finding):
        return Figures(saving, finding.measured_ns, "trace")
    return Figures(saving, finding.per_step.measured_ns, "step")


def head_of(title: str, module: str | None) -> str:
    """Return a finding's title without its module's class, in which it ends."""
    head, _, tail = title.rpartition(": ")
    return head if head and tail in (module or "") else title


def fix_blocks(text: str) -> tuple[list[Block], list[Block]]:
    """Return how a fix begins, up to its first code, and the rest.

    >>> begin, rest = fix_blocks("Do this:\\n\\n    a = 1\\n\\nOr that.")
    >>> len(begin), rest
    (2, [Paragraph(runs=(Text(text='Or that.'),))])
    """
    parts = words.blocks(text)
    found: list[Block] = [
        Code(part, "python") if is_code else Paragraph((Text(re.sub("^or ", "Or ", part)),)) for is_code, part in parts
    ]
    end = next((at for at, (is_code, _) in enumerate(parts, 1) if is_code), 1)
    return found[:end], found[end:]


def led(word: str, *text: Block) -> Iterator[Block]:
    """Yield blocks behind a bold word, which stands in the first where that is a paragraph; nothing of none.

    >>> list(led("Fix", Paragraph((Text("Do it"),))))
    [Paragraph(runs=(Strong(text='Fix:'), Text(text=' '), Text(text='Do it')))]
    """
    first, *rest = text or (None,)
    if isinstance(first, Paragraph):
        yield Paragraph((Strong(f"{word}:"), Text(" "), *first.runs))
    elif first is not None:
        yield from (Paragraph((Strong(f"{word}:"),)), first)
    yield from rest


def how_to_check(*more: Run, files: Sequence[str] = _FILES) -> Paragraph:
    """Return how to see that a fix has helped. files: what the recordings before and after it are called."""
    return Paragraph((Strong("Check:"), Text(f" {_CHECK}"), Name(f"tracemine diff {' '.join(files)}"), *more))


def _hidden(finding: Finding, place: FindingPlace) -> frozenset[str]:
    variants = (FindingPlace(one.module, one.source, one.ops) for one in finding.variants)
    return frozenset().union(*(one.hidden(finding.rule, finding.title) for one in (place, *variants)))


def _rule_words(name: str, head: str) -> set[str]:
    """Return what a rule says whatever trace it is of: `RMSNorm` and `step` are no secret there."""
    rule = rules().get(name)
    texts = [head, task_of(head, rule)[0], *([rule.title, rule.why, rule.fix] if rule is not None else [])]
    return {word for text in texts for word in re.findall(r"\w+", text)}


@cache
def rules() -> Mapping[str, Rule]:
    """Return the rules that tracemine ships, by id."""
    return {rule.id: rule for rule in load_rules()}


def _saves(finding: Finding, scan: Scan) -> str:
    """Return what stands behind a title: what is saved, of the step or else of GPU time, and which share that is."""
    step, gpu = (words.saving_of_each(finding, name).mid for name in ("step_saving_ns", "gpu_saving_ns"))
    if not (step or gpu):
        return ""
    of_trace = figures(finding).of == "trace"
    of_step = scan.summary.per_step
    gpu_ns = scan.summary.gpu_time_ns if of_trace or of_step is None else of_step.gpu_busy_ns
    whole_ns = (None if words.outside_steps(finding) else unprofiled_ns(scan.summary)) if step else gpu_ns
    share = f" ({whole_percent(step or gpu, whole_ns)})" if whole_ns else ""
    return (
        f": −{time_text(step or gpu)}{'' if step else ' GPU time'}{' in the trace' if of_trace else ' per step'}{share}"
    )


def _blocks(finding: Finding, scan: Scan, place: FindingPlace, names: ShownNames) -> Iterator[Block]:
    yield Paragraph((Text(f"{_what(finding, scan)}. {words.first_sentence(finding.why)}"),))
    yield _before_after(finding, scan)
    yield from led("Where", Paragraph(place.runs(names, scan.trace.format)))
    begin, rest = fix_blocks(finding.fix)
    yield from led("Fix", *begin)
    files = before_after(scan)
    yield how_to_check(*_verify(finding, files[0]), files=files)
    yield Paragraph(tuple(_sure(finding)))
    yield Folded("Kernels, further advice, recording", (*rest, Bullets(tuple(_more(finding, scan)))))


def _what(finding: Finding, scan: Scan) -> str:
    """Return the cause in a few words, of how many kernels it is, and how often it occurs."""
    steps = scan.trace.steps + (0 if scan.summary.per_step is None else len(scan.summary.per_step.apart))
    if times := times_of(finding, scan):
        often = f"{times} per step"
    elif figures(finding).of == "step" and finding.occurrences == steps:
        often = ", once per step"
    else:
        times = "once" if finding.occurrences == 1 else f"{finding.occurrences:,} times"
        often = f", {times} in {count_text(steps, 'step') if figures(finding).of == 'step' else 'the trace'}"
    kernels = f", {count_text(len(finding.kernels), 'kernel')} each" if finding.on_gpu and finding.kernels else ""
    return f"{words.cause_of(finding)}{often}{kernels}"


def _before_after(finding: Finding, scan: Scan) -> TicketTable:
    """Return what is measured, and what is predicted; a step where steps are known."""
    gpu, step = words.saving_of_each(finding, "gpu_saving_ns"), words.saving_of_each(finding, "step_saving_ns")
    measured_ns = words.a_step(finding, Range(*[finding.measured_ns] * 3)).mid
    whole_ns = None if words.outside_steps(finding) else unprofiled_ns(scan.summary)
    unit = TimeUnit.of(max(whole_ns or 0, measured_ns))
    rows = [] if whole_ns is None or not step.high else [_row(words.share_of_text(scan), whole_ns, step, unit)]
    if gpu.high:
        rows.append(_row("these kernels, as recorded", measured_ns, gpu, unit))
    else:
        rows.append(_row("idle here, as recorded", measured_ns, step.at_most(measured_ns), unit))
    of = "in the trace" if figures(finding).of == "trace" else "per step"
    return TicketTable((f"{unit.name} {of}", "now", "predicted", "90% interval"), tuple(rows))


def _row(what: str, before_ns: int, saving: Range, unit: TimeUnit) -> tuple[Runs, ...]:
    low, mid, high = (unit.text(max(before_ns - ns, 0)) for ns in (saving.high, saving.mid, saving.low))
    interval = low if low == high else f"{low}–{high}"
    return tuple((Text(text),) for text in (what, unit.text(before_ns), mid, interval))


def _verify(finding: Finding, file: str) -> Iterator[Run]:
    """Yield how its fix is tried without editing the program, where one kernel is the fix."""
    if one_kernel_fixes(finding):
        yield Text("; the fix alone: ")
        yield Name(f"tracemine verify {file} --finding {finding.identity.finding}")


def _sure(finding: Finding) -> Iterator[Run]:
    name = "step_saving_ns" if words.saving_of_each(finding, "step_saving_ns").mid else "gpu_saving_ns"
    yield Strong("Sure:")
    yield Text(f" {sure_of(finding, words.saving_of_each(finding, name))}")
    verdicts = [one.verdict for one in finding.variants or (finding,) if one.verdict is not None]
    if not verdicts:
        yield Text(f"; {words.EVIDENCE.get(finding.evidence, finding.evidence)}.")
        return
    said = (" · ".join(filter(None, (f"{one.level}, {one.says}", times_text(one)))) for one in verdicts)
    yield Text(f"; verified: {'; '.join(dict.fromkeys(said))}.")


def _more(finding: Finding, scan: Scan) -> Iterator[Runs]:
    """Yield what only who fixes it may ask for, a line each."""
    if finding.kernels:
        each_ns = finding.measured_ns / max(finding.occurrences, 1)
        yield (Text(f"kernels, {time_text(each_ns)} each time: "), *_chained(tuple(map(short_name, finding.kernels))))
    if finding.dtype or finding.shapes:
        yield (Text("tensors "), Name(" ".join(text for text in (finding.dtype, finding.shapes) if text)))
    if len(finding.variants) > 1 and any(one.shapes for one in finding.variants):
        yield tuple(_variants(finding))
    recorded = [
        scan.trace.gpu or "GPU not named",
        *([f"torch {scan.recorded.torch}"] if scan.recorded is not None and scan.recorded.torch else []),
        *(scan.trace.format, count_text(scan.trace.steps, "step")),
    ]
    yield (Name(" · ".join(recorded)), Text(f"; tracemine {__version__}, finding "), Name(finding.identity.finding))


def _chained(names: Sequence[str]) -> Iterator[Run]:
    every = words.chain(names)
    yield from listed(" → ", every[:_MOST_KERNELS])
    if len(every) > _MOST_KERNELS:
        yield Text(f" … {len(every) - _MOST_KERNELS:,} more")


def _variants(finding: Finding) -> Iterator[Run]:
    yield Text(f"{len(finding.variants):,} variants: ")
    for number, one in enumerate(finding.variants[:_MOST_VARIANTS]):
        yield from [Text(", ")] if number else []
        yield Text(f"{one.occurrences:,} of ")
        yield Name(one.shapes or "shapes not recorded")
    if len(finding.variants) > _MOST_VARIANTS:
        yield Text(", …")
