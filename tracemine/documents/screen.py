"""The first screen: what bounds the step, and what to do about it on Monday morning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tracemine.documents.at_once import at_once, said_once
from tracemine.documents.bar import BarPart, bar_parts, covered_text
from tracemine.documents.headline import bound_headline
from tracemine.documents.next_step import effort, next_step
from tracemine.documents.numbered import claimed
from tracemine.documents.own_code import own_frame
from tracemine.documents.step_words import is_sums, nothing_text, unequal_text, unestimated
from tracemine.documents.trust import (
    NOT_RUN,
    is_unusable,
    no_findings,
    no_lines,
    notes_below,
    nothing_found,
    trust_text,
)
from tracemine.documents.verdict_words import unprofiled_ns
from tracemine.documents.words import (
    all_of,
    basis_text,
    cause_of,
    chain,
    of_finding,
    operator_name,
    outside_steps,
    saved_alone,
)
from tracemine.findings.compile_losses import LOSES
from tracemine.findings.grouping import one_kernel_fixes
from tracemine.findings.labels import class_of
from tracemine.findings.notes import LIGHT, SLOWED
from tracemine.findings.payback import COMPILE
from tracemine.perfmodel import Range
from tracemine.rows.user_frames import is_own
from tracemine.units import TimeUnit, count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan, Source

MOST_ROWS = 3
_WORTH = 0.01  # of the step, or of GPU time: a row
_IDLE = 0.2  # of the step, at least: so much bounds it
_LATER = 2  # times what it saves alone: its part once others are done
_APART = 0.1  # of what all save together: rows that do not add up to it
_ONCE = "the step gains it once nothing else sets its pace"
_SURE = 0.3  # of the middle: ends of an interval that is sure
_UNPROFILED = {"captured": "unprofiled, timed", "estimated": "unprofiled", "recorded": "as recorded"}


class ScreenRow(Struct, frozen=True, kw_only=True):
    """A finding in a row of the table, and what to do about it."""

    number: int  # by which commands take it
    saves: str  # in the table's unit
    share: str
    cause: str
    place: str
    sure: str
    effort: str
    todo: str


class Screen(Struct, frozen=True, kw_only=True):
    """All of the first screen."""

    doubts: str  # before all else
    headline: str
    path: str
    about: tuple[str, ...]
    bar: tuple[BarPart, ...]
    beside: str  # what the bar does not show
    unit: str
    whole: str  # what shares are of
    alone: bool  # a row's saving is that of its fix alone, and rows do not add up
    own: bool  # some row names a line of the user's
    rows: tuple[ScreenRow, ...]
    at_once: str  # rows that one edit does
    total: str
    nothing: tuple[str, ...]  # why there is no row
    unpriced: bool  # the first note says that no GPU time is estimated, and the way out
    notes: tuple[str, ...]
    commands: tuple[str, ...]


def first_screen(scan: Scan, frames: Mapping[str, Source] | None = None, width: int = 100) -> Screen:
    """Return the first screen of a scan. frames: the user's own, of findings that hold none (`DeeperFrames`)."""
    judged = bool(scan.trace.activities) and not is_unusable(scan) and not nothing_text(scan)
    saved = _Saved.of(scan)
    rows = [_row(number, one, scan, saved, frames or {}, width) for number, one in saved.rows] if judged else []
    nothing = () if scan.reported else (no_findings(scan), nothing_found(scan))
    one_edit = _at_once(rows, saved)
    compiles = any(COMPILE in text for text in (one_edit, *(row.todo for row in rows)))
    return Screen(
        doubts=trust_text(scan),
        headline=_sentence(bound_headline(scan)),
        path=scan.trace.path,
        about=_about(scan, saved),
        bar=bar_parts(scan.summary.parts),
        beside=covered_text(scan.summary.parts),
        unit=saved.unit.name,
        whole=saved.whole,
        alone=saved.name == "step_saving_ns",
        own=any(own_of(one, frames or {}) for _, one in saved.rows),
        rows=_said_once(rows, saved),
        at_once=one_edit,
        total=_total(scan, saved) if rows or (judged and scan.reported) else "",
        nothing=nothing,
        unpriced=bool(unestimated(scan)),
        notes=_notes(scan, compiles=compiles),
        commands=_commands(rows, _verified(scan, saved), judged=judged, idle=_idles(scan)),
    )


def _at_once(rows: Sequence[ScreenRow], saved: _Saved) -> str:
    if not rows or saved.name != "step_saving_ns":
        return ""
    return at_once(saved.rows, saved.unit, saved.whole_ns, {row.number: row.sure for row in rows})


def _said_once(rows: Sequence[ScreenRow], saved: _Saved) -> tuple[ScreenRow, ...]:
    todos = said_once([(row.number, one.rule, row.todo) for row, (_, one) in zip(rows, saved.rows, strict=False)])
    return tuple(replace(row, todo=todo) for row, todo in zip(rows, todos, strict=True))


def all_rows(scan: Scan, frames: Mapping[str, Source] | None = None, width: int = 100) -> tuple[ScreenRow, ...]:
    """Return a row for every finding that reports number, those of the first screen first and as they stand there."""
    saved, numbered = _Saved.of(scan), list(enumerate(claimed(scan), 1))
    numbered.sort(key=lambda each: -_saving(each[1], saved.name).mid)
    return tuple(_row(number, one, scan, saved, frames or {}, width) for number, one in numbered)


class _Saved(Struct, frozen=True):
    """Which findings are rows, and in what their savings are said."""

    name: str  # step_saving_ns, or where the step gains of none of them, gpu_saving_ns
    whole_ns: int
    whole: str
    unit: TimeUnit
    rows: tuple[tuple[int, Finding], ...]

    @staticmethod
    def of(scan: Scan) -> _Saved:
        numbered = list(enumerate(claimed(scan), 1))
        step, step_ns = scan.summary.per_step, unprofiled_ns(scan.summary)
        found = _Saved._of_kind("step_saving_ns", step_ns or scan.summary.span_ns, "step" if step else "span", numbered)
        if found.rows or not numbered:
            return found
        gpu_ns = scan.summary.gpu_time_ns if step is None else step.gpu_busy_ns
        return _Saved._of_kind("gpu_saving_ns", gpu_ns, "GPU time", numbered)

    @staticmethod
    def _of_kind(name: str, whole_ns: int, whole: str, numbered: Sequence[tuple[int, Finding]]) -> _Saved:
        worth = [(at, one) for at, one in numbered if _saving(one, name).mid >= _WORTH * max(whole_ns, 1)]
        worth.sort(key=lambda each: -_saving(each[1], name).mid)
        return _Saved(name, whole_ns, whole, TimeUnit.of(whole_ns), tuple(worth[:MOST_ROWS]))


def _saving(finding: Finding, name: str) -> Range:
    if outside_steps(finding):
        return Range(0, 0, 0)
    return saved_alone(finding) if name == "step_saving_ns" else of_finding(finding, name)


def _row(
    number: int, finding: Finding, scan: Scan, saved: _Saved, frames: Mapping[str, Source], width: int
) -> ScreenRow:
    saving = _saving(finding, saved.name)
    lines = effort(finding.fix)
    return ScreenRow(
        number=number,
        saves=saved.unit.text(saving.mid),
        share=whole_percent(saving.mid, saved.whole_ns),
        cause=cause_of(finding) + times_of(finding, scan),
        place=place_of(finding, frames),
        sure=sure_of(finding, saving),
        effort="–" if lines is None else count_text(lines, "line"),
        todo=next_step(finding.fix, width),
    )


def off_terminal(total: str) -> str:
    """Return what all findings save without the option that lists more of them on a terminal.

    >>> off_terminal("Together with 2 smaller findings (--all): 3 ms. 1 refuted: --all")
    'Together with 2 smaller findings: 3 ms. 1 refuted'
    """
    return total.replace(" (--all)", "").removesuffix(": --all")


def whole_percent(part_ns: int, whole_ns: int) -> str:
    """Return a share in whole per cents.

    >>> whole_percent(1, 3), whole_percent(1, 1_000), whole_percent(0, 5)
    ('33%', '<1%', '0%')
    """
    share = 100 * part_ns / max(whole_ns, 1)
    return "<1%" if 0 < share < 0.5 else f"{share:.0f}%"


def times_of(finding: Finding, scan: Scan) -> str:
    """Return how often it occurs in a step, where that is the same in each."""
    if finding.per_step is None or outside_steps(finding):
        return ""
    apart = () if scan.summary.per_step is None else scan.summary.per_step.apart
    each, left = divmod(finding.occurrences, max(scan.trace.steps + len(apart), 1))
    return f" ×{each:,}" if not left and each > 1 else ""


def own_of(finding: Finding, frames: Mapping[str, Source]) -> Source | None:
    """Return the user's own line of a finding; None: it has none."""
    return own_frame(finding) or frames.get(finding.fingerprint)


def place_of(finding: Finding, frames: Mapping[str, Source]) -> str:
    """Return the user's own line, else the module, else the operators."""
    if (own := own_of(finding, frames)) is not None:
        line = f"{PurePath(own.file.replace(chr(92), '/')).name}:{own.statement or own.line}"
        if not finding.source:
            return f"{line} (backward)"
        within = finding.module is not None and not is_own(finding.source[0].file)
        return f"{line} → {class_of(finding.module or '')}" if within else f"{line} {own.function}"
    if finding.module:
        return ".".join(map(class_of, finding.module.split(".")[-2:]))
    if finding.ops:
        names = ", ".join(chain([operator_name(name).partition("#")[0] for name in finding.ops])[:2])
        return names if finding.on_gpu else f"before {names}"
    return "–"


def sure_of(finding: Finding, saving: Range) -> str:
    """Return how sure a saving is: measured; high where dataflow is proven and the interval is narrow; medium; low."""
    if basis_text(finding) == "measured":
        return "measured"
    narrow = saving.low >= (1 - _SURE) * saving.mid and saving.high <= (1 + _SURE) * saving.mid
    return ("low", "medium", "high")[narrow + (finding.evidence == "proven")]


def _about(scan: Scan, saved: _Saved) -> tuple[str, ...]:
    """Return device, steps and the one time that all figures are of."""
    step, of = scan.summary.per_step, scan.summary
    alone = of.unprofiled_ns if step is None else step.unprofiled_ns
    about = [scan.trace.gpu or "GPU not named"]
    if scan.summary.bound is None:
        return (*about, count_text(scan.trace.activities, "GPU activity"))
    unit = TimeUnit.of(unprofiled_ns(of) or of.span_ns)
    if is_sums(of):
        return (*about, f"{unit.text(of.span_ns)} {unit.name} of GPU time in all")
    how = "" if alone is None else f" {_UNPROFILED.get(alone.source, alone.source)}"
    if step is None:
        return (
            *about,
            f"no steps found: shares are of all {unit.text(unprofiled_ns(of) or of.span_ns)} {unit.name}{how}",
        )
    if alone is None:
        return (*about, count_text(scan.trace.steps, "step"))
    return (*about, count_text(scan.trace.steps, "step"), f"{unit.text(alone.mid)} {unit.name} per step{how}")


def _total(scan: Scan, saved: _Saved) -> str:
    """Return what all findings save together, once, with before and after; and how many more there are."""
    every, unit = len(claimed(scan)), saved.unit
    refuted, smaller = len(scan.reported) - every, every - len(saved.rows)
    behind = f" {refuted} refuted: --all" if refuted else ""
    lead = {1: "This finding", 2: "Both findings together"}.get(every, f"All {every} findings together")
    if not saved.rows:
        small = f"{count_text(every, 'finding')} below 1% of the step" if every else "No finding is left"
        return f"{small}{f', {refuted:,} refuted' if refuted else ''}: --all"
    each = sum(_saving(one, saved.name).mid for _, one in saved.rows)
    together = each if every == 1 else all_of(scan, saved.name).mid
    if smaller:
        lead = f"Together with {_others(scan, saved, smaller, unit.text(together) == unit.text(each))} (--all)"
    text = f"{unit.text(together)} {unit.name} ({whole_percent(together, saved.whole_ns)})"
    if saved.name == "gpu_saving_ns":
        gains = "what the step gains, sums do not say" if is_sums(scan.summary) else _ONCE
        return f"{lead}: {text} of GPU time; {gains}.{behind}"
    after = unit.text(max(saved.whole_ns - together, 0))
    per = " per step" if saved.whole == "step" else ""
    alone = "; each row: its fix alone" if abs(each - together) > _APART * together else ""
    return f"{lead}: {text}, {unit.text(saved.whole_ns)} → {after} {unit.name}{per}{alone}.{behind}"


def _others(scan: Scan, saved: _Saved, count: int, nothing: bool) -> str:
    """Return how many findings are no rows, and whether they are small, or save once the rows' fixes are done.

    nothing: all findings save what the rows save alone.
    """
    shown = {number for number, _ in saved.rows}
    others = [one for number, one in enumerate(claimed(scan), 1) if number not in shown]
    alone, part = (sum(f(one, saved.name).mid for one in others) for f in (_saving, of_finding))
    if part >= max(_WORTH * saved.whole_ns, _LATER * alone):
        return f"{count} more, worth doing after these"
    return f"{count} smaller, which {'adds' if count == 1 else 'add'} nothing" if nothing else f"{count} smaller"


def _notes(scan: Scan, *, compiles: bool) -> tuple[str, ...]:
    """Return what to know before believing the rest, the most important first; each once.

    compiles: some row asks for torch.compile; else what that slows down is no matter here.
    """
    first = (unestimated(scan), no_lines(scan), unequal_text(scan.summary.devices))
    known = [text for text in dict.fromkeys((*first, *notes_below(scan))) if text and LIGHT not in text]
    known = [text for text in known if compiles or not text.startswith(LOSES)]
    return tuple(
        _sentence(text) for text in sorted(known, key=lambda text: SLOWED in text)
    )  # its figures are without that already


def _sentence(text: str) -> str:
    """Return a text with a capital at its beginning, but of a name that is written its own way.

    >>> _sentence("nothing to judge"), _sentence("vLLM decode"), _sentence("torch.compile makes none")
    ('Nothing to judge', 'vLLM decode', 'torch.compile makes none')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def _idles(scan: Scan) -> bool:
    """Return whether idle time is what bounds the step, and the host may say why."""
    bound = scan.summary.bound
    if bound is None or (bound.by == "unknown" and bound.held is None):
        return False
    return bound.unprofiled_idle_share is not None and bound.unprofiled_idle_share.low > _IDLE


def _verified(scan: Scan, saved: _Saved) -> str:
    """Return the command that tries a row's fix, of the first that one kernel fixes; "" where none is."""
    fixed = () if scan.trace.format in NOT_RUN else (number for number, one in saved.rows if one_kernel_fixes(one))
    return next((f"verify FILE --finding {number}" for number in fixed), "")


def _commands(rows: Sequence[ScreenRow], verify: str, *, judged: bool, idle: bool) -> tuple[str, ...]:
    if not judged:
        return ("scan FILE --all",)
    if not rows and idle:
        return ("top FILE --host", "scan FILE --why-not", "scan FILE --all")
    if not rows:
        return ("top FILE", "scan FILE --why-not", "scan FILE -f html -o page.html")
    known = (f"explain {rows[0].number} FILE", verify, "top FILE", "scan FILE -f html -o page.html")
    return tuple(filter(None, known))
