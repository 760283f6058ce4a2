"""Why a run of CI failed, or what it passed: at most 25 lines of Markdown, and the first seven for the job's log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from tracemine.documents.screen import own_of, place_of, times_of, whole_percent
from tracemine.documents.words import cause_in, cause_of, saving_of_each
from tracemine.report import diff_words as words
from tracemine.report.escape import code, code_cell, line, prose, prose_cell, table
from tracemine.units import TimeUnit, count_text

if TYPE_CHECKING:
    from tracemine.comparison import Difference, FindingChange
    from tracemine.comparison.gates import GateFailure
    from tracemine.comparison.record import StepChange
    from tracemine.findings.record import Finding, Scan, Source

LOG_LINES = 7
_MOST_ROWS = 10
_GROWN = ("new", "worse", "moved", "unknown")  # what becomes of a finding that is worth a row though nothing fails


class CiRow(Struct, frozen=True, kw_only=True):
    """A finding, or the step, in a row of the table."""

    status: str
    cost: str  # in the table's unit
    what: str
    place: str = ""
    own: Source | None = None  # the user's own line
    fingerprint: str = ""
    fails: bool = False


class CiSummary(Struct, frozen=True, kw_only=True):
    """What a gate came to on one trace."""

    failed: bool
    trace: str
    headline: str
    unit: str  # of costs, and what they are of
    rows: tuple[CiRow, ...]
    notes: tuple[str, ...] = ()
    accept: str = ""  # the command that lets the first failing finding pass

    @property
    def failing(self) -> tuple[CiRow, ...]:
        """The rows for which it fails."""
        return tuple(row for row in self.rows if row.fails)


def of_scan(scan: Scan, frames: Mapping[str, Source], asked: str, failing: Sequence[Finding]) -> CiSummary:
    """Return what --fail-on alone comes to. failing: the findings that reach it."""
    every = len([finding for finding in scan.findings if not finding.refuted])
    said = f"{len(failing):,} of {count_text(every, 'finding')} {'reaches' if len(failing) == 1 else 'reach'}"
    headline = f"failed, {said}" if failing else f"passed, none of {count_text(every, 'finding')} reaches"
    saved = {finding.fingerprint: _saved(finding) for finding in failing}
    unit = TimeUnit.of(max(saved.values(), default=1))
    rows = [
        _row(one.severity, unit.text(saved[one.fingerprint]), one, scan, frames, fails=True)
        for one in sorted(failing, key=lambda one: -saved[one.fingerprint])
    ]
    per = "per step" if scan.summary.per_step is not None else "in the trace"
    return CiSummary(
        failed=bool(failing),
        trace=scan.trace.path,
        headline=f"{headline} --fail-on {asked}",
        unit=f"{unit.name} {per}, saved",
        rows=tuple(rows),
    )


def _saved(finding: Finding) -> int:
    """Return what a finding saves of the step, or else of GPU time."""
    return saving_of_each(finding, "step_saving_ns").mid or saving_of_each(finding, "gpu_saving_ns").mid


def of_difference(
    difference: Difference, scan: Scan, frames: Mapping[str, Source], baseline: str, failures: Sequence[GateFailure]
) -> CiSummary:
    """Return what became of a baseline's findings. baseline: as commands take it."""
    shut = [failure.change for failure in failures if failure.change is not None]
    shown = [*_by_growth(shut), *_by_growth(one for one in _grown(difference) if one not in shut)]
    step, gpu = difference.step, difference.gpu_work
    unit = TimeUnit.of(max(step.before_ns.mid, step.after_ns.mid, *(max(one.before_ns, one.after_ns) for one in shown)))
    found = {finding.fingerprint: finding for finding in scan.findings}
    noise = f"noise {words.noise_text(difference.noise)}"
    fails = any(failure.change is None for failure in failures)
    per = "per step" if difference.per == "step" else "in the trace"
    return CiSummary(
        failed=bool(failures),
        trace=scan.trace.path,
        headline=_headline(difference, shut, failures, baseline),
        unit=f"{unit.name} {per}, recorded",
        rows=(
            CiRow(status=step.status, cost=_moved(step, unit), what=f"the step; {noise}", fails=fails),
            CiRow(status=gpu.status, cost=_moved(gpu, unit), what="GPU work"),
            *(_change(one, found, scan, frames, unit, fails=one in shut) for one in shown),
        ),
        notes=tuple(words.incomparable_texts(difference)),
        accept=_accept(shut, baseline),
    )


def log_lines(summary: CiSummary) -> Iterator[str]:
    """Yield why it failed, for a log: no line of it begins with what a trace says."""
    costs = f"; {summary.unit}:" if summary.rows else ""
    yield f"tracemine: {line(summary.trace)}: {line(summary.headline)}{costs}"
    rows = sorted(summary.rows, key=lambda row: not row.fails)
    room = LOG_LINES - 1
    shown = rows if len(rows) <= room else rows[: room - 1]
    width = max((9, *(len(row.status) for row in shown)))
    for row in shown:
        where = f" · {line(row.place)}" if row.place else ""
        where += f" ({line(row.fingerprint, 20)})" if row.fingerprint else ""
        yield f"  {row.status:<{width}} {row.cost}  {line(row.what)}{where}"
    if len(shown) < len(rows):
        yield f"  and {len(rows) - len(shown):,} more"


def markdown_lines(summary: CiSummary) -> Iterator[str]:
    """Yield the summary as Markdown."""
    yield from (f"## tracemine: {prose(summary.headline)}", "", code(summary.trace), "")
    yield from (f"**Unknown:** {prose(note)}.\n" for note in summary.notes)
    rows = summary.rows[:_MOST_ROWS]
    cells = [
        (f"**{row.status}**" if row.fails else row.status, *map(prose_cell, (row.cost, row.what)), code_cell(row.place))
        for row in rows
    ]
    if cells:
        yield table(("", prose_cell(summary.unit), "what", "your code"), cells, {1})
    if len(rows) < len(summary.rows):
        yield f"\nand {len(summary.rows) - len(rows):,} more, in the full report"
    if summary.accept:
        yield f"\nAccept one: {code(summary.accept)}"


def _headline(
    difference: Difference, shut: Sequence[FindingChange], failures: Sequence[GateFailure], baseline: str
) -> str:
    counts = Counter(change.status for change in shut)
    parts = [f"{count:,} {status}" for status, count in counts.items()]
    parts += (
        ["the step takes longer"] if any(one.change is None for one in failures) and not difference.incomparable else []
    )
    parts += ["nothing compares"] if difference.incomparable else []
    said = f"failed, {', '.join(parts)}" if failures else f"passed, {words.counts_text(difference)}"
    return f"{said} (baseline {baseline})"


def _grown(difference: Difference) -> Iterator[FindingChange]:
    """Yield changes that are no better and that a report shows."""
    for one in difference.changes:
        if one.status in _GROWN and any(part.reported for part in (*one.after, *one.before)):
            yield one


def _by_growth(changes: Iterable[FindingChange]) -> list[FindingChange]:
    return sorted(changes, key=lambda one: one.before_ns - one.after_ns)


def _moved(change: StepChange | FindingChange, unit: TimeUnit) -> str:
    """Return before and after, and by which share that is more; of what was not there before what it is."""
    before, after = (ns if isinstance(ns, int) else ns.mid for ns in (change.before_ns, change.after_ns))
    if not before:
        return unit.text(after)
    share = f"{'+' if after >= before else '−'}{whole_percent(abs(after - before), before)}"
    return f"{unit.text(before)} → {unit.text(after)} ({share})"


def _change(
    one: FindingChange,
    found: Mapping[str, Finding],
    scan: Scan,
    frames: Mapping[str, Source],
    unit: TimeUnit,
    *,
    fails: bool,
) -> CiRow:
    status = f"{one.status}, accepted" if one.accepted is not None else one.status
    finding = next((found[part.fingerprint] for part in one.after if part.fingerprint in found), None)
    if finding is not None:
        return _row(status, _moved(one, unit), finding, scan, frames, fails=fails)
    cost, what = _moved(one, unit), cause_in(one.title)
    return CiRow(status=status, cost=cost, what=what, place=words.where(one), fails=fails)


def _row(status: str, cost: str, finding: Finding, scan: Scan, frames: Mapping[str, Source], *, fails: bool) -> CiRow:
    what, own = cause_of(finding) + times_of(finding, scan), own_of(finding, frames)
    place, mark = place_of(finding, frames), finding.fingerprint
    return CiRow(status=status, cost=cost, what=what, place=place, own=own, fingerprint=mark, fails=fails)


def _accept(shut: Sequence[FindingChange], baseline: str) -> str:
    """Return the command that lets the first failing finding pass."""
    for one in shut:
        for part in one.after:
            return f"tracemine baseline accept {baseline} {part.fingerprint} --reason TEXT"
    return ""
