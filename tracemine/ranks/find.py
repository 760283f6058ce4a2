"""From the summaries of a job's ranks to its findings, best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.ranks.cause import JobCause
from tracemine.ranks.clocks import Clocks, clocks_of
from tracemine.ranks.exposed import exposed_communication, serialised
from tracemine.ranks.links import groups_of, slow_links
from tracemine.ranks.match import matched
from tracemine.ranks.needless import needless
from tracemine.ranks.picture import JobPicture, picture_of
from tracemine.ranks.pipeline import pipeline_bubbles
from tracemine.ranks.recognise import RanksRead
from tracemine.ranks.record import Interval, Job, JobFinding, JobRank
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.stragglers import LEAST_SHARE, late_ranks
from tracemine.ranks.unprofiled import JobUnprofiled, unprofiled
from tracemine.units import percent_text, time_text

_MOST_ERROR = 5.0  # percent, beyond which a replay tells no saving
_HOST_BOUND = 0.65  # of the step that the devices compute
_SHOWN = 0.01  # of the step: what can be no more is not worth a line


def find_job(read: RanksRead, name: str) -> Job:
    """Find what costs a job its time.

    Raises InputError where its collectives, as matched, wait for each other in a circle.
    """
    return find_and_draw(read, name)[0]


def find_and_draw(read: RanksRead, name: str) -> tuple[Job, JobPicture]:
    """Return what `find_job` does, and what is drawn of it."""
    ranks = read.ranks
    matches = matched(ranks)
    clocks = clocks_of(ranks, matches.blocks)
    job = JobReplay(ranks, matches, clocks)
    error = job.error_percent()
    case = unprofiled(job)
    exact = error <= _MOST_ERROR and len(matches) > 0
    findings = _findings(case) if exact else []
    report = Job(
        name=name,
        world_size=read.world_size,
        steps=ranks[0].steps,
        step_ns=case.step,
        ranks=tuple(_rank(at, job, clocks) for at in range(len(ranks))),
        groups=tuple(groups_of(job)),
        findings=tuple(findings),
        matched=len(matches),
        unmatched={reason: count for reason, count in matches.unmatched.items() if count},
        replay_error_percent=round(error, 2),
        notes=tuple(_notes(read, matches.missing, exact, error)),
    )
    return report, picture_of(ranks, job, clocks, case.role)


def _findings(case: JobUnprofiled) -> list[JobFinding]:
    """Return what is found, best first: each finding is ordered by what it saves, or by what it costs where that is not
    known.
    """
    links = slow_links(case)
    every = [*late_ranks(case), *links, *(pipeline_bubbles(case) or _of_communication(case, links))]
    causes = sorted((one for one in every if _worth(one.saving, case.step_ns)), key=lambda one: -one.weight)
    host = None if any(one.rule.startswith("straggler") for one in causes) else _host_bound(case)
    if host is not None:
        is_first = all(one.saving is not None and one.saving.high < LEAST_SHARE * case.step_ns for one in causes)
        causes = [host, *causes] if is_first else [*causes, host]
    return [cause.finding() for cause in causes]


def _of_communication(case: JobUnprofiled, links: Sequence[JobCause]) -> list[JobCause]:
    causes, claimed = needless(case)
    slow = np.zeros(len(claimed), np.bool_)
    slow[[k for link in links for k in link.jobs.tolist()]] = True
    return [*causes, *serialised(case, claimed), *exposed_communication(case, claimed, slow)]


def _host_bound(case: JobUnprofiled) -> JobCause | None:
    """Return that all ranks wait for their hosts, where their devices compute for little of the step, and none of them
    for as long as hosts work: else they wait for each other.
    """
    computes = [float(rank.stretches.busy.sum()) / rank.steps for rank in case.ranks]
    busy = float(np.mean(computes))
    if busy >= _HOST_BOUND * case.step_ns or max(computes) >= np.mean([rank.hosting_ns for rank in case.ranks]):
        return None
    fact = f"A device computes {time_text(int(busy))} of a step of {time_text(case.step_ns)}."
    share = percent_text(busy, case.step_ns).rstrip(" %")
    everyone = tuple(rank.rank for rank in case.ranks)
    return JobCause(rule="host_bound", ranks=everyone, saving=None, facts=(fact,), count=share)


def _worth(saving: Interval | None, step_ns: int) -> bool:
    """Return whether a saving that is not known, or may be that large, is worth a line."""
    return saving is None or saving.high >= _SHOWN * step_ns


def _rank(at: int, job: JobReplay, clocks: Clocks) -> JobRank:
    rank = job.ranks[at]
    inside = np.flatnonzero(rank.step >= 0)
    transfer = sum(min(int(rank.dur[i]), int(job.transfer[job.of[at, int(i)]])) for i in inside)
    per_step = {
        name: int(getattr(rank.by_step, field).sum() / rank.steps)
        for name, field in (
            ("own_ns", "own"), ("busy_ns", "busy"), ("silent_ns", "silent"), ("queued_idle_ns", "queued_idle")
        )
    }  # fmt: skip
    return JobRank(
        rank=rank.rank,
        file=rank.file,
        device=rank.device,
        wait_ns=int((rank.dur[inside].sum() - transfer) / rank.steps),
        transfer_ns=int(transfer / rank.steps),
        exposed_ns=int(rank.exposed[inside].sum() / rank.steps),
        clock_offset_ns=int(clocks.offset_ns[at]) if clocks.bound_ns[at] >= 0 else None,
        clock_bound_ns=int(clocks.bound_ns[at]) if clocks.bound_ns[at] >= 0 else None,
        **per_step,
    )


def _notes(read: RanksRead, missing: int, exact: bool, error: float) -> list[str]:
    ranks = read.ranks
    notes = [f"{file}: left out: {reason}" for file, reason in sorted(read.left_out.items())]
    size = read.world_size
    if size is not None and size > len(ranks):
        lacking = "their waits are lower bounds, and what is transfer may be wait for those that are missing"
        notes.append(f"{len(ranks)} of {size} ranks are recorded: {lacking}")
    elif missing:
        notes.append(f"members of {missing} groups are not recorded")
    if not exact:
        notes.append(
            f"no savings: the unchanged replay is {error:.1f}% off the recording"
            if error > _MOST_ERROR
            else "no savings: no collective could be matched over the ranks"
        )
    steps = {rank.steps for rank in ranks}
    if len(steps) > 1:
        notes.append("the ranks recorded different numbers of steps")
    return notes
