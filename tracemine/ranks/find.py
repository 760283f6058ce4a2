"""From the summaries of a job's ranks to its findings, best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.ranks.clocks import Clocks, clocks_of
from tracemine.ranks.exposed import Exposed, exposed_communication
from tracemine.ranks.lengths import length_imbalance
from tracemine.ranks.links import SlowLink, groups_of, slow_links
from tracemine.ranks.match import matched
from tracemine.ranks.needless import needless
from tracemine.ranks.picture import JobPicture, picture_of
from tracemine.ranks.pipeline import pipeline_bubbles
from tracemine.ranks.recognise import RanksRead
from tracemine.ranks.record import Interval, Job, JobFinding, JobRank, JobStep
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.serialised import serialised
from tracemine.ranks.stragglers import LEAST_SHARE, Straggler, stragglers
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.texts import cause_texts
from tracemine.ranks.unprofiled import STEP_HIGH, STEP_LOW, JobUnprofiled, steps_of, unprofiled
from tracemine.units import percent_text, time_text

_MOST_ERROR = 5.0  # percent, beyond which a replay tells no saving
_HOST_BOUND = 0.65  # of the step that the devices compute
_OF_WORK = ("straggler_work", "straggler_gpu")
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
    without = unprofiled(ranks, job)
    steps = ranks[0].steps
    step = _step(ranks, job, without)
    exact = error <= _MOST_ERROR and len(matches) > 0
    findings = _findings(ranks, job, without, step) if exact else []
    report = Job(
        name=name,
        world_size=read.world_size,
        steps=steps,
        step_ns=step,
        ranks=tuple(_rank(ranks, at, job, clocks) for at in range(len(ranks))),
        groups=tuple(groups_of(ranks, job)),
        findings=tuple(findings),
        matched=len(matches),
        unmatched={reason: count for reason, count in matches.unmatched.items() if count},
        replay_error_percent=round(error, 2),
        notes=tuple(_notes(read, matches.missing, exact, error)),
    )
    return report, picture_of(ranks, job, clocks, without.role)


def _step(ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled) -> JobStep:
    """Return the job's step as recorded and without the profiler."""
    recorded = int((job.end.max() - job.begin.min()) / ranks[0].steps)
    mid = min(int(steps_of(job, [without.lines()])[0]), recorded)
    return JobStep(recorded, int(mid * STEP_LOW), mid, min(int(mid * STEP_HIGH), recorded))


def _findings(ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step: JobStep) -> list[JobFinding]:
    """Return what is found, best first: each finding is ordered by what it saves, or by what it costs where that is not
    known.
    """
    weighed = _of_ranks(ranks, job, without, step)
    links = slow_links(ranks, job, without)
    weighed += [(link.saving.mid, _of_link(link)) for link in links]
    weighed += _of_communication(ranks, job, without, step, links)
    weighed = [pair for pair in weighed if _worth(pair[1].step_saving_ns, step.mid)]
    weighed.sort(key=lambda pair: -pair[0])
    findings = [finding for _, finding in weighed]
    host = None if any(finding.rule.startswith("straggler") for finding in findings) else _host_bound(ranks, step)
    if host is None:
        return findings
    known = [finding.step_saving_ns for finding in findings]
    first = all(saving is not None and saving.high < LEAST_SHARE * step.mid for saving in known)
    return [host, *findings] if first else [*findings, host]


def _of_ranks(
    ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step: JobStep
) -> list[tuple[float, JobFinding]]:
    """Return who holds the others up, what they may wait in, and lengths that differ."""
    late_ranks = stragglers(ranks, job, without, step.mid)
    uneven = length_imbalance(ranks, job, without, step.mid)
    if uneven is not None:  # of many ranks some have more in most steps by chance
        late_ranks = [
            late for late in late_ranks if late.rule not in _OF_WORK or late.saving.mid > uneven.saving.mid
        ] + [uneven]
    weighed: list[tuple[float, JobFinding]] = [
        (late.saving.mid, _finding(late.rule, late.ranks, late.saving, late.facts, "replayed", rank=late.ranks[0]))
        for late in late_ranks
    ]
    return weighed + [(0.0, _barrier(ranks, late)) for late in late_ranks[:1] if late.waited_for_ns]


def _barrier(ranks: Sequence[RankSummary], late: Straggler) -> JobFinding:
    """Return that others seem to wait for a late rank where nothing that they wait in is recorded."""
    others = tuple(rank.rank for rank in ranks if rank.rank not in late.ranks)
    fact = (
        f"They idle with nothing recorded; if that is waiting for rank {late.ranks[0]}, "
        f"{time_text(late.waited_for_ns)} of what it saves a step are theirs, else that much less is saved."
    )
    return _finding("unrecorded_barrier", others, None, (fact,), "model", ranks_text=_named(others))


def _of_communication(
    ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step: JobStep, links: Sequence[SlowLink]
) -> list[tuple[float, JobFinding]]:
    bubbles = pipeline_bubbles(ranks, job, without, step.mid)
    if bubbles:
        return [(one.costs_ns, _finding(one.rule, one.ranks, one.saving, one.facts, one.evidence)) for one in bubbles]
    everyone = tuple(rank.rank for rank in ranks)
    causes, claimed = needless(ranks, job, without, step.mid)
    causes += serialised(ranks, job, without, step.mid, claimed)
    slow = np.zeros(len(job.members), np.bool_)
    slow[[k for link in links for k in link.jobs.tolist()]] = True
    causes += exposed_communication(ranks, job, without, step.mid, claimed, slow)
    return [(_weight(cause), _of_exposed(cause, everyone)) for cause in causes]


def _of_link(link: SlowLink) -> JobFinding:
    return _finding(
        link.rule, link.ranks, link.saving, link.facts, "measured", kind=_words(link.kind),
        ranks_text=_named(link.ranks), count=f"{link.gb_per_s:.0f}",
    )  # fmt: skip


def _host_bound(ranks: Sequence[RankSummary], step: JobStep) -> JobFinding | None:
    """Return that all ranks wait for their hosts, where their devices compute for little of the step, and none of them
    for as long as hosts work: else they wait for each other.
    """
    computes = [float(rank.stretches.busy.sum()) / rank.steps for rank in ranks]
    busy = float(np.mean(computes))
    if busy >= _HOST_BOUND * step.mid or max(computes) >= np.mean([rank.hosting_ns for rank in ranks]):
        return None
    fact = f"A device computes {time_text(int(busy))} of a step of {time_text(step.mid)}."
    share = percent_text(busy, step.mid).rstrip(" %")
    return _finding("host_bound", tuple(rank.rank for rank in ranks), None, (fact,), "measured", count=share)


def _worth(saving: Interval | None, step_ns: int) -> bool:
    """Return whether a saving that is not known, or may be that large, is worth a line."""
    return saving is None or saving.high >= _SHOWN * step_ns


def _weight(one: Exposed) -> float:
    """Return what a finding is ordered by: its saving, or, where the host leaves none, a part of what is exposed."""
    return max(one.saving.mid if one.saving else 0, one.transfer_ns / 2)


def _of_exposed(one: Exposed, everyone: tuple[int, ...]) -> JobFinding:
    members = one.group.ranks or everyone
    here = tuple(rank for rank in members if rank in everyone) or everyone
    return _finding(one.rule, here, one.saving, one.facts, one.evidence, kind=_words(one.kind), count=f"{one.count:g}")


def _finding(
    rule: str,
    ranks: tuple[int, ...],
    saving: Interval | None,
    facts: tuple[str, ...],
    evidence: str,
    *,
    rank: int | None = None,
    kind: str = "",
    count: str = "",
    ranks_text: str = "",
) -> JobFinding:
    text = cause_texts()[rule]
    title = text.title.format(rank=rank, kind=kind, count=count, ranks=ranks_text)
    title = title[:1].upper() + title[1:]
    return JobFinding(
        rule=rule, cause=text.cause, title=title, ranks=ranks, step_saving_ns=saving, evidence=evidence,
        facts=facts, fix=text.fix,
    )  # fmt: skip


def _words(kind: str) -> str:
    """Return a kind as prose has it.

    >>> _words("all_to_all")
    'all-to-alls'
    """
    return kind.replace("_", "-") + "s"


def _named(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:4]))
    return shown + (", …" if len(ranks) > 4 else "")


def _rank(ranks: Sequence[RankSummary], at: int, job: JobReplay, clocks: Clocks) -> JobRank:
    rank = ranks[at]
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
