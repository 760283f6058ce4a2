"""What is found of a job of many ranks, as a screen of a terminal, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from tracemine.ranks.record import JobReport, named
from tracemine.report.escape import line, prose, prose_cell, table
from tracemine.report.json import json_of
from tracemine.units import TimeUnit, count_text, percent_text, range_text, time_text

if TYPE_CHECKING:
    from tracemine.ranks.compare import JobDifference
    from tracemine.ranks.record import Interval, Job, JobFinding, JobRank, JobStep

_ROWS = 4  # ranks shown; of more, those that differ most
_FINDINGS = 3
_NOTES = 2
_FOLDED = 2  # lines of a fact, and of what to do
_WAITED_FOR, _WAITS, _SILENT = 0.1, 0.1, 0.03  # of the others' waiting; of the recorded step
HEADS: Final[Sequence[tuple[str, str]]] = (
    ("computes", "busy_ns"), ("waits", "wait_ns"), ("transfers", "transfer_ns"), ("exposed", "exposed_ns"),
    ("host silent", "silent_ns"),
)  # fmt: skip

FORMATS = ("text", "json", "markdown")


def render_json(job: Job) -> str:
    """Return the job as one object on a line."""
    return json_of(JobReport(job=job))


def render_text(job: Job, width: int, *, whole: bool = False) -> str:
    """Return a screen: the step, the ranks, and what to do first. whole: all ranks, findings, groups and notes."""
    lines = [*head(job), "", *_table(job, whole=whole), *_last(job), ""]
    shown = job.findings if whole else job.findings[:_FINDINGS]
    for number, finding in enumerate(shown, 1):
        lines += _rows(number, finding, job, width, whole=whole)
    if not job.findings:
        lines.append(nothing_found(job))
    lines += ["", *_groups(job)] if whole else []
    for note in job.notes if whole else job.notes[:_NOTES]:
        lines += wrap(line(f"Note: {note}", longest=4000), width, subsequent_indent=" " * 6)[: None if whole else 2]
    more = len(job.findings) - len(shown)
    hidden = f" · {count_text(more, 'finding')} more: --all" if more > 0 else ""
    lines.append(f"Next: scan {_alone(job)}{hidden}")
    return "\n".join(row for text in lines for row in _folded(text, width)) + "\n"


def nothing_found(job: Job) -> str:
    """Return what is said of a job without findings: that there is nothing, or that it cannot be known."""
    if any(note.startswith("no savings") for note in job.notes):
        return "Who waits for whom cannot be said, and so nothing is advised: see the notes."
    return "No rank holds the others up, and no communication is worth a change."


def _alone(job: Job) -> str:
    """Return what a scan of one rank takes: of the one named alone, or the first."""
    if len({rank.file.partition(" (rank ")[0] for rank in job.ranks}) == 1:
        return "FILE --rank all (its kernels)"
    named = next((one.ranks[0] for one in job.findings if len(one.ranks) == 1), job.ranks[0].rank)
    return f"FOLDER --rank {named} (that rank alone)"


def _folded(text: str, width: int) -> list[str]:
    """Return a line, or of several facts so many as they need."""
    if " · " in text:
        return wrap(text, width)
    return [text if len(text) <= width else text[: width - 1] + "…"]


def _rows(number: int, finding: JobFinding, job: Job, width: int, *, whole: bool) -> Iterator[str]:
    """Yield a finding's lines: what it is, what it saves, what shows it, what to do."""
    yield f"{number}  {line(finding.title)}"
    facts = finding.facts if whole else finding.facts[:1]
    for text in (*saves(finding, job), *facts, finding.fix):
        folded = wrap(line(text, longest=4000), width - 3)
        if not whole and len(folded) > _FOLDED:
            folded = [*folded[: _FOLDED - 1], folded[_FOLDED - 1][: width - 5] + " …"]
        yield from (f"   {row}" for row in folded)


def render_markdown(job: Job) -> str:
    """Return the job with all of its findings as Markdown."""
    first, about = head(job)
    parts = [f"## {prose(first)}", prose(about)]
    ranks = [(str(rank.rank), *(time_text(getattr(rank, name)) for _, name in HEADS)) for rank in job.ranks]
    parts.append(table(("rank", *(name for name, _ in HEADS)), ranks, range(len(HEADS) + 1)))
    for number, finding in enumerate(job.findings, 1):
        parts.append(f"### {number}. {prose(finding.title)}")
        parts.append("\n".join(f"- {prose(fact)}" for fact in (*saves(finding, job), *finding.facts)))
        parts.append(prose(finding.fix))
    parts += [f"*{prose(note)}*" for note in job.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(job: Job) -> list[str]:
    """Return what a report begins with: the step, and of what it is."""
    step, size = job.step_ns, job.world_size or len(job.ranks)
    devices = sorted({rank.device for rank in job.ranks if rank.device})
    facts = [
        line(job.name), *map(line, devices[:1]), f"{len(job.ranks)} of {size} ranks", count_text(job.steps, "step"),
        f"{count_text(job.matched, 'collective')} matched",
    ]  # fmt: skip
    bounds = range_text(step.low, step.high)
    return [
        f"Job of {size} ranks: {time_text(step.mid)} a step without the profiler ({bounds}), "
        f"{time_text(step.recorded)} recorded",
        " · ".join(facts),
    ]


def _table(job: Job, *, whole: bool) -> Iterator[str]:
    unit = TimeUnit.of(job.step_ns.recorded)
    yield f"{'rank':>5}" + "".join(f"{name:>13}" for name, _ in HEADS) + f"   {unit.name} a step, as recorded"
    for rank in job.ranks if whole or len(job.ranks) <= _ROWS else _standing_out(job):
        yield f"{rank.rank:>5}" + "".join(f"{unit.text(getattr(rank, name)):>13}" for _, name in HEADS)
    if not whole and len(job.ranks) > _ROWS:
        yield f"    … {len(job.ranks) - _ROWS} more: --all"


def _last(job: Job) -> Iterator[str]:
    """Yield, where no rank is named though the others wait for one as recorded, why it is not."""
    last, *rest = sorted(job.ranks, key=lambda rank: rank.wait_ns)
    usual = sum(rank.wait_ns for rank in rest) / max(len(rest), 1)
    named = any(len(finding.ranks) == 1 for finding in job.findings)
    if named or usual < _WAITS * job.step_ns.recorded or last.wait_ns > _WAITED_FOR * usual:
        return
    if last.silent_ns - min(rank.silent_ns for rank in rest) < _SILENT * job.step_ns.recorded:
        yield f"      As recorded the others wait for rank {last.rank}. Recording slows its host, so it is not named."


def _standing_out(job: Job) -> list[JobRank]:
    """Return the ranks that are named, and of the others those that wait least: the others wait for them."""
    named = {rank for finding in job.findings if len(finding.ranks) == 1 for rank in finding.ranks}
    ordered = sorted(job.ranks, key=lambda rank: (rank.rank not in named, rank.wait_ns))
    return sorted(ordered[:_ROWS], key=lambda rank: rank.rank)


def saves(finding: JobFinding, job: Job) -> list[str]:
    """Return what the step gains, as a sentence; none where that cannot be said."""
    saving = finding.step_saving_ns
    if saving is None:
        return []
    if not saving.mid:
        return [f"Saves at most {time_text(saving.high)} of the step, and as the hosts are now nothing."]
    share = percent_text(saving.mid, job.step_ns.mid)
    return [f"Saves {time_text(saving.mid)} of the step ({range_text(saving.low, saving.high)}), {share}."]


def _groups(job: Job) -> Iterator[str]:
    for group in job.groups:
        size = "" if group.bytes is None else f", {group.bytes / 1e6:,.1f} MB"
        speed = "" if group.bus_gb_per_s is None else f", {group.bus_gb_per_s:.0f} GB/s of the bus at best"
        yield (
            f"{group.kind} of ranks {named(group.ranks, 8)}: {group.count:g} a step{size}, "
            f"{time_text(group.transfer_ns)} each{speed}; exposed {time_text(group.exposed_ns)}, waiting "
            f"{time_text(group.wait_ns)} a step"
        )


def render(form: str, found: JobDifference, width: int) -> str:
    """Return the difference in one of these formats."""
    if form == "json":
        return json_of(found)
    made = _markdown(found) if form == "markdown" else _text(found, width)
    return "\n".join(made) + "\n"


def _text(found: JobDifference, width: int) -> Iterator[str]:
    yield _steps(found)
    yield f"{line(found.before)} → {line(found.after)}"
    yield ""
    for change in found.changes:
        text = line(f"{change.status:<9} {_costs(change.before):>9} → {_costs(change.after):<9} {change.title}")
        yield text if len(text) <= width else text[: width - 1] + "…"
    if not found.changes:
        yield "Nothing was found on either side."
    yield from (f"Note: {line(note)}" for note in found.notes)


def _markdown(found: JobDifference) -> Iterator[str]:
    yield f"## {_steps(found)}"
    yield ""
    rows = [
        (change.status, _costs(change.before), _costs(change.after), prose_cell(change.title))
        for change in found.changes
    ]
    yield table(("", "before", "after", "finding"), rows, {1, 2})
    yield ""
    yield from (f"*{prose_cell(note)}*" for note in found.notes)


def _steps(found: JobDifference) -> str:
    before, after = (_step(step) for step in (found.step_before_ns, found.step_after_ns))
    return f"Job's step without the profiler: {before} → {after}"


def _step(step: JobStep) -> str:
    return f"{time_text(step.mid)} ({range_text(step.low, step.high)})"


def _costs(saving: Interval | None) -> str:
    return "" if saving is None else time_text(saving.mid)
