"""From the summaries of a job's ranks to its findings, best first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.devices import device_named
from tracemine.errors import UsageError
from tracemine.ops.collectives import PAIRED, bus_factor
from tracemine.ranks.cause import JobCause, rule_of_part
from tracemine.ranks.clocks import Clocks, clocks_of
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.exposed import MORE, exposed_communication, members_of, serialised, within
from tracemine.ranks.match import matched
from tracemine.ranks.parts import NAMES
from tracemine.ranks.picture import JobPicture, picture_of
from tracemine.ranks.pipeline import pipeline_bubbles
from tracemine.ranks.recognise import RanksRead
from tracemine.ranks.record import Interval, Job, JobFinding, JobGroup, JobRank
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.stragglers import LEAST_SHARE, late_ranks
from tracemine.ranks.unprofiled import JobUnprofiled, unprofiled
from tracemine.rows.table import BoolArray, FloatArray, IntArray
from tracemine.tables import table_beside
from tracemine.units import bytes_text, percent_text, time_text

_MOST_ERROR = 5.0  # percent, beyond which a replay tells no saving
_HOST_BOUND = 0.65  # of the step that the devices compute
_SHOWN = 0.01  # of the step: what can be no more is not worth a line

_LEAST = 0.5  # a step
_TABLE = table_beside(__file__, "needless.toml")
# Of each part which share of its transfers stays, and what is said: how many there are a step (`count`), what each
# sends (`size`), and how long a step they keep the device (`transfer`) and a host (`calls`).
_OF_PART: Final = _TABLE["of_part"]
_EVIDENCE: Final = {"again": "shapes"}  # no module is named

_LEAST_MESSAGES, _LEAST_BYTES = 5, 1_000_000
_SLOWER = 1.3
_LARGE_BYTES, _OF_LINK = 16_000_000, 0.25  # four H100 over NVLink reach 43 to 88 % of its rate with so large messages
_BEST = 0.9  # the best decile is what the link can do


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


def needless(case: JobUnprofiled) -> tuple[list[JobCause], BoolArray]:
    """Return what collectives that need not be cost the job, and which these are, by their places in the job."""
    claimed = np.zeros(len(case.job.members), np.bool_)
    code = np.array([case.ranks[at].part[i] for (at, i), *_ in case.job.members], np.int64)
    causes = []
    for number in np.unique(code[code >= 0]).tolist():
        jobs = np.flatnonzero(code == number)
        claimed[jobs] = True
        causes += _cause(case, NAMES[number], jobs)
    return causes, claimed


def _cause(case: JobUnprofiled, part: str, jobs: IntArray) -> list[JobCause]:
    job, (stays, says) = case.job, _OF_PART[part]
    at, i = job.members[jobs[0]][0]
    steps, sent = case.ranks[at].steps, case.ranks[at].collectives
    mine = [k for k in jobs.tolist() if job.members[k][0][0] == at]
    count = len(mine) / steps
    if count < _LEAST:
        return []
    transfer = int(job.transfer[mine].sum() / steps)
    calls = [rank.calls_ns.get(part, np.zeros(1, np.int64)) for rank in case.ranks]
    nbytes = int(np.median([sent.nbytes[job.members[k][0][1]] for k in mine]))
    alone, both = (case.gain_of_transfers(jobs, stays, gone) for gone in (None, calls))
    took = {"transfer": time_text(transfer), "calls": time_text(int(max(own.sum() for own in calls) / steps))}
    return [
        JobCause(
            rule=rule_of_part(part), ranks=members_of(case, sent.group_of(i)),
            count=f"{count:g}", saving=within(case, alone.low, both.mid, int(both.high * MORE)),
            costs_ns=transfer / 2, evidence=_EVIDENCE.get(part, ""),
            facts=(says.format(count=count, size=bytes_text(nbytes), **took),),
        )
    ]  # fmt: skip


def groups_of(job: JobReplay) -> list[JobGroup]:
    """Return what each kind of collective of each group sends, takes and waits, a step."""
    groups = []
    for (kind, group), rows in job.by_kind(job.matched).items():
        members, transfer, nbytes = job.members[rows[0]], job.transfer[rows], _bytes(job, rows)
        of = [(job.ranks[at], i, k) for k in rows for at, i in job.members[k]]
        known, ranks = bool((nbytes > 0).all()), len(members) * job.ranks[members[0][0]].steps
        named = group.ranks or tuple(sorted(job.ranks[at].rank for at, _ in members))
        groups.append(
            JobGroup(
                kind=kind, ranks=named, description=group.description,
                count=len(rows) / job.ranks[members[0][0]].steps,
                bytes=int(np.median(nbytes)) if known else None, transfer_ns=int(np.median(transfer)),
                bus_gb_per_s=round(_bus(kind, len(named), nbytes, transfer), 1) if known else None,
                exposed_ns=sum(int(rank.exposed[i]) for rank, i, _ in of) // ranks,
                wait_ns=sum(int(rank.dur[i] - job.transfer[k]) for rank, i, k in of) // ranks,
            )
        )  # fmt: skip
    return sorted(groups, key=lambda one: -one.exposed_ns)


def slow_links(case: JobUnprofiled) -> list[JobCause]:
    """Return groups that are slower than equal ones, and kinds that reach little of what the link is sold for."""
    slow: list[JobCause] = []
    alike: dict[tuple[str, int | None, str | None], list[_LinkRates]] = defaultdict(list)
    for (kind, group), rows in case.job.by_kind(case.job.matched).items():
        if group.ranks is not None and kind not in PAIRED:
            alike[kind, group.size, group.description].append(_LinkRates.of(case.job, group, rows))
    for (kind, size, _), groups in alike.items():
        many = [rates for rates in groups if len(rates.per_byte) >= _LEAST_MESSAGES]
        medians = np.array([np.median(rates.per_byte) for rates in many])
        for at, rates in enumerate(many if len(many) > 1 else ()):
            usual = float(np.median(np.delete(medians, at)))
            slow += _slower(case, kind, rates, float(medians[at]) / max(usual, 1e-12), len(many) - 1)
        slow += _below_rate(case, kind, size or 0, groups)
    return slow


class _LinkRates(Struct, frozen=True):
    """One group's messages of one kind: places in the job, their bytes, and nanoseconds a byte of the large ones."""

    group: ProcessGroup
    rows: IntArray
    nbytes: IntArray
    per_byte: FloatArray

    @classmethod
    def of(cls, job: JobReplay, group: ProcessGroup, rows: list[int]) -> _LinkRates:
        at, nbytes = np.array(rows, np.int64), _bytes(job, rows)
        large = nbytes >= _LEAST_BYTES
        return cls(group, at, nbytes, job.transfer[at[large]] / nbytes[large])


def _slower(case: JobUnprofiled, kind: str, own: _LinkRates, ratio: float, others: int) -> Iterator[JobCause]:
    if ratio >= _SLOWER:
        fact = (
            f"A byte takes {ratio:.1f} × as long as in {others} equal groups, over {len(own.per_byte)} messages above "
            "1 MB."
        )
        yield JobCause(
            rule="slow_link", ranks=own.group.ranks or (), kind=kind, jobs=own.rows, facts=(fact,),
            saving=case.gain_of_transfers(own.rows, 1 / ratio),
        )  # fmt: skip


def _below_rate(case: JobUnprofiled, kind: str, size: int, groups: Sequence[_LinkRates]) -> Iterator[JobCause]:
    rows = np.concatenate([group.rows[group.nbytes >= _LARGE_BYTES] for group in groups])
    nbytes = np.concatenate([group.nbytes[group.nbytes >= _LARGE_BYTES] for group in groups])
    rate = _link(case.ranks[0].device)
    if len(rows) < _LEAST_MESSAGES or rate is None or not 1 < size <= 8:
        return
    best = _bus(kind, size, nbytes, case.job.transfer[rows])
    if best * 1e9 >= _OF_LINK * rate:
        return
    every = np.concatenate([group.rows for group in groups])
    fact = f"The best of {len(rows)} messages of 16 MB and more; the link is sold for {rate / 1e9:.0f} GB/s each way."
    yield JobCause(
        rule="link_below_rate", ranks=tuple(sorted({rank for group in groups for rank in group.group.ranks or ()})),
        kind=kind, jobs=every, count=f"{best:.0f}", facts=(fact,),
        saving=case.gain_of_transfers(every, best * 1e9 / (0.8 * rate)),
    )  # fmt: skip


def _bytes(job: JobReplay, rows: Sequence[int]) -> IntArray:
    first = [job.members[k][0] for k in rows]
    return np.array([int(job.ranks[at].collectives.nbytes[i]) for at, i in first], np.int64)


def _bus(kind: str, size: int, nbytes: IntArray, transfer: IntArray) -> float:
    """Return GB/s of the bus, of the best decile."""
    return float(np.quantile(nbytes / np.maximum(transfer, 1) * bus_factor(kind, size), _BEST))


def _link(device: str | None) -> float | None:
    """Return bytes a second that the device's links to its peers are sold for; None where it is not known."""
    if device is None:
        return None
    try:
        return device_named(device).peer_link_bytes_per_s
    except UsageError:
        return None
