"""Two recordings of a job: what became of each finding, by its rule and whose it is."""

from __future__ import annotations

from msgspec import Struct

from tracemine.ranks.record import Interval, Job, JobFinding, JobStep

JOB_DIFFERENCE_SCHEMA_VERSION = 1
STATUSES = ("new", "worse", "same", "improved", "fixed")


class CauseChange(Struct, frozen=True, kw_only=True):
    """What became of a finding. A saving whose interval meets the other's is the same."""

    status: str  # `new`, `worse`, `same`, `improved`, `fixed`
    rule: str
    title: str
    ranks: tuple[int, ...]
    before: Interval | None  # null: it was not there, or its saving could not be said
    after: Interval | None


class JobDifference(Struct, frozen=True, kw_only=True):
    """Two recordings of a job, as `tracemine diff FOLDER FOLDER --format json` prints them."""

    schema_version: int = JOB_DIFFERENCE_SCHEMA_VERSION
    before: str
    after: str
    step_before_ns: JobStep
    step_after_ns: JobStep
    changes: tuple[CauseChange, ...]
    notes: tuple[str, ...] = ()


def compare_jobs(before: Job, after: Job) -> JobDifference:
    """Return what became of a job's findings, those first that cost more than before."""
    ours, theirs = ({_key(finding): finding for finding in reversed(job.findings)} for job in (before, after))
    keys = dict.fromkeys((*map(_key, after.findings), *map(_key, before.findings)))
    changes = [_change(ours.get(key), theirs.get(key)) for key in keys]
    notes = []
    if len(before.ranks) != len(after.ranks):
        notes.append(
            f"{len(before.ranks)} ranks were recorded before, {len(after.ranks)} after: their steps may differ"
        )
    for name, job in (("before", before), ("after", after)):
        notes += [f"{name}: {note}" for note in job.notes if note.startswith("no savings")]
    return JobDifference(
        before=before.name,
        after=after.name,
        step_before_ns=before.step_ns,
        step_after_ns=after.step_ns,
        changes=tuple(sorted(changes, key=lambda one: STATUSES.index(one.status))),
        notes=tuple(notes),
    )


def _key(finding: JobFinding) -> tuple[str, int | None]:
    """Return what a finding is found again by: its rule, and the rank where it is one's own."""
    return finding.rule, finding.ranks[0] if len(finding.ranks) == 1 else None


def _change(before: JobFinding | None, after: JobFinding | None) -> CauseChange:
    shown = after or before
    assert shown is not None  # noqa: S101 - each key is of one of them
    old, new = (None if finding is None else finding.step_saving_ns for finding in (before, after))
    return CauseChange(
        status=_status(before, after), rule=shown.rule, title=shown.title, ranks=shown.ranks, before=old, after=new
    )


def _status(before: JobFinding | None, after: JobFinding | None) -> str:
    if before is None or after is None:
        return "new" if before is None else "fixed"
    old, new = before.step_saving_ns, after.step_saving_ns
    if old is None or new is None or (old.low <= new.high and new.low <= old.high):
        return "same"
    return "worse" if new.low > old.high else "improved"
