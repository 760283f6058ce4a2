"""Communication that nothing hides, and communication that need not be: of a job, or of one rank of it.

What is exposed is not what hiding it would save: a rank that waits for a late one is exposed as well, and where the
host is the limit the device has time to communicate. Transfers are counted, never durations, and all ranks replayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.ops.collectives import PAIRED
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.record import Interval
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled, gain_of_transfers
from tracemine.rows.table import BoolArray, IntArray
from tracemine.units import bytes_text, time_text

_LEAST_SHARE = 0.01  # of the step
_MANY, _SMALL_BYTES, _BUCKET_BYTES = 10, 1_000_000, 25 << 20
_ALONE = 0.95  # of its time: nothing else runs
_SLOWED = 0.5  # of what is hidden: computing next to it takes longer by so much
MORE = 1.25  # what goes with a call on the host is more than what is recorded of it
_CALLS_OF_BUCKET = 2  # that of a bucket takes a host 157 us while recorded, that of a gradient 88


class Exposed(Struct, frozen=True, kw_only=True):
    """Collectives with one cause: which, how many a step, what the step gains, and what is known of them."""

    rule: str
    kind: str
    group: ProcessGroup
    count: float
    saving: Interval | None
    transfer_ns: int  # a step, that nothing hides: by it what saves an unknown time is ordered
    facts: tuple[str, ...]
    evidence: str = "replayed"


class _Set(Struct, frozen=True):
    """The collectives of one kind and group: places in the job, and of each the first recorded member's own.

    Groups of equal size and description that have as many are one set: what costs them costs the job once.
    """

    kind: str
    group: ProcessGroup  # of several the ranks of all
    jobs: IntArray
    rank: RankSummary
    own: IntArray
    alike: tuple[IntArray, ...]  # places in the job of the other groups' collectives, in the same order

    def everywhere(self, these: BoolArray) -> IntArray:
        """Return the places in the job of collectives of this set, in each of its groups."""
        return np.concatenate([jobs[these] for jobs in (self.jobs, *self.alike)])


def exposed_communication(
    ranks: Sequence[RankSummary],
    job: JobReplay,
    without: JobUnprofiled,
    step_ns: int,
    claimed: BoolArray,
    slow: BoolArray,
) -> list[Exposed]:
    """Return what communication costs the job and need not, each collective in one of them.

    claimed: collectives of the job that have a cause already. slow: those whose link is slow: hiding them is no cure.
    """
    causes: list[Exposed] = []
    for same in _sets(ranks, job):
        unclaimed = ~claimed[same.jobs]
        for rule in (_not_overlapped, _exposed, _small):
            free = unclaimed & ~slow[same.jobs] if rule is _exposed else unclaimed
            cause, these = rule(same, free, job, without, step_ns)
            if cause is not None:
                causes.append(cause)
                unclaimed = unclaimed & ~these
    return causes


def _sets(ranks: Sequence[RankSummary], job: JobReplay) -> list[_Set]:
    chosen: dict[tuple[str, ProcessGroup], list[tuple[int, int, int]]] = {}
    for k, members in enumerate(job.members):
        at, i = members[0]
        if job.kind[k] not in PAIRED:
            sent = ranks[at].collectives
            chosen.setdefault((job.kind[k], sent.groups[sent.group[i]]), []).append((k, at, i))
    alike: dict[object, list[_Set]] = {}
    for (kind, group), rows in chosen.items():
        first = rows[0][1]
        mine = [(k, i) for k, at, i in rows if at == first]
        jobs, own = (np.array(column, np.int64) for column in zip(*mine, strict=True))
        of_group = _Set(kind, group, jobs, ranks[first], own, ())
        named = group if group.ranks is None else (group.size, group.description)
        alike.setdefault((kind, named, len(jobs)), []).append(of_group)
    return [_pooled(same) for same in alike.values()]


def _pooled(same: Sequence[_Set]) -> _Set:
    """Return sets of equal groups as one: the first, and where the others' collectives are."""
    first = same[0]
    if len(same) == 1:
        return first
    everyone = tuple(sorted({rank for each in same for rank in each.group.ranks or ()}))
    group = ProcessGroup(everyone, first.group.size, first.group.description)
    return _Set(first.kind, group, first.jobs, first.rank, first.own, tuple(each.jobs for each in same[1:]))


def _not_overlapped(
    each: _Set, unclaimed: BoolArray, job: JobReplay, without: JobUnprofiled, step_ns: int
) -> tuple[Exposed | None, BoolArray]:
    """Find gradients that are reduced one by one when the backward pass is over, on the stream that computes."""
    rank, own = each.rank, each.own
    alone = rank.exposed[own] >= _ALONE * rank.dur[own]
    these = unclaimed & rank.after_backward[own] & rank.computes[own] & alone
    count = these.sum() / rank.steps
    if each.kind != "all_reduce" or count < _MANY:
        return None, these
    transfer = int(job.transfer[each.jobs[these]].sum() / rank.steps)
    nbytes = rank.collectives.nbytes[own[these]]
    buckets = _buckets(nbytes[rank.step[own[these]] == rank.steps - 1])
    call = _call_ns(rank, own[these])
    small = int(((nbytes >= 0) & (nbytes < _SMALL_BYTES)).sum() / rank.steps)
    facts = (
        f"Their transfers take {time_text(transfer)} a step; {buckets} buckets of 25 MB would do, and each further "
        f"call keeps its host for {time_text(call)}.",
        *((f"{small} of them are below 1 MB.",) if small else ()),
    )
    # What a bucket sends meanwhile slows the backward pass down by half of what it takes (assumed).
    jobs = each.everywhere(these)
    stays = 1 - min(_CALLS_OF_BUCKET * buckets / count, 1.0)
    gone = [_calls_of(job, at, jobs, int(stays * call)) for at in range(len(job.ranks))]
    gain = gain_of_transfers(job, without, jobs, _SLOWED, gone)
    least = gain_of_transfers(job, without, jobs, 0.0).low
    saving = Interval(min(least, gain.mid), gain.mid, max(transfer + int(count * call * MORE), gain.mid))
    return Exposed(
        rule="not_overlapped", kind=each.kind, group=each.group, count=float(count), saving=within(saving, step_ns),
        transfer_ns=transfer, facts=facts, evidence="measured",
    ), these  # fmt: skip


def _calls_of(job: JobReplay, at: int, jobs: IntArray, call_ns: int) -> IntArray:
    """Return what the calls of collectives of the job take of a rank's host in each of its stretches."""
    inside = np.flatnonzero(job.ranks[at].step >= 0)
    return np.append(np.isin([job.of[at, i] for i in inside.tolist()], jobs) * call_ns, 0)


def _exposed(
    each: _Set, unclaimed: BoolArray, job: JobReplay, without: JobUnprofiled, step_ns: int
) -> tuple[Exposed | None, BoolArray]:
    """Find transfers that nothing hides and that the job's step feels, or that no overlap can hide as they are run."""
    rank, own = each.rank, each.own
    bare = np.minimum(rank.exposed[own], job.transfer[each.jobs])
    these = unclaimed & (bare > 0)
    if not these.any():
        return None, these
    in_order = bool(rank.computes[own[these]].mean() > 0.5)
    if not in_order:
        these &= ~_last_of_step(rank, own)
        if not these.any():
            return None, these
    transfer = int(bare[these].sum() / rank.steps)
    gain = gain_of_transfers(job, without, each.everywhere(these), 0.0)
    felt = gain.mid if not in_order else transfer
    if felt < _LEAST_SHARE * step_ns:
        return None, these & False
    nbytes = rank.collectives.nbytes[own[these]]
    size = f" of {bytes_text(int(np.median(nbytes)))}" if (nbytes > 0).all() else ""
    where = "on the stream that computes, so that nothing can" if in_order else "on a stream of their own"
    facts = (
        f"Transfers{size} take {time_text(transfer)} a step, {where}.",
        *(
            ("The host is the limit meanwhile, so that hiding them may save nothing.",)
            if gain.mid < transfer // 4
            else ()
        ),
    )
    saving = within(Interval(0, min(gain.mid, transfer), max(min(gain.high, transfer), gain.mid)), step_ns)
    return Exposed(
        rule="exposed_collective", kind=each.kind, group=each.group, count=float(these.sum() / rank.steps),
        saving=saving, transfer_ns=transfer, facts=facts,
    ), these  # fmt: skip


def _small(
    each: _Set, unclaimed: BoolArray, job: JobReplay, without: JobUnprofiled, step_ns: int
) -> tuple[Exposed | None, BoolArray]:
    """Find many small messages a step: each costs its host a call, whatever it sends."""
    rank, own = each.rank, each.own
    nbytes = rank.collectives.nbytes[own]
    small = unclaimed & (nbytes >= 0) & (nbytes < _SMALL_BYTES)
    count = small.sum() / rank.steps
    if count < _MANY:
        return None, small
    these = small | (unclaimed & (nbytes >= 0) & ~rank.computes[own])  # of buckets of gradients the large ones, too
    call = _call_ns(rank, own[these])
    facts = (f"Each keeps its host for about {time_text(call)} and moves {bytes_text(int(np.median(nbytes[small])))}.",)
    fewer = these.sum() / rank.steps - _buckets(nbytes[these & (rank.step[own] == rank.steps - 1)])
    calls, transfer = int(max(fewer, 0) * call), int(job.transfer[each.jobs[these]].sum() / rank.steps)
    saving = within(Interval(0, calls if _is_host_the_limit(job, transfer) else calls // 2, calls), step_ns)
    if saving.mid < _LEAST_SHARE * step_ns:
        return None, these & False
    return Exposed(
        rule="small_collectives", kind=each.kind, group=each.group, count=float(count), saving=saving,
        transfer_ns=transfer, facts=facts, evidence="measured",
    ), these  # fmt: skip


def _buckets(nbytes: IntArray) -> int:
    """Return how many buckets gradients make: one is full once it holds 25 MB.

    >>> _buckets(np.array([20 << 20, 20 << 20, 1 << 20]))
    2
    """
    count, held = 1, 0
    for size in nbytes.tolist():
        count, held = (count + 1, 0) if held >= _BUCKET_BYTES else (count, held)
        held += max(size, 0)
    return count


def _is_host_the_limit(job: JobReplay, transfer_ns: int) -> bool:
    """Return whether hosts work for longer than their devices compute and send."""
    ahead = [rank.hosting_ns - float(rank.by_step.busy.mean()) for rank in job.ranks]
    return bool(np.mean(ahead) >= transfer_ns)


def _last_of_step(rank: RankSummary, own: IntArray) -> BoolArray:
    """Return which collectives are the last on their stream in their step: behind them nothing is left to hide them."""
    is_last = np.zeros(len(rank.start), np.bool_)
    for stream in np.unique(rank.stream).tolist():
        for step in range(rank.steps):
            rows = np.flatnonzero((rank.stream == stream) & (rank.step == step))
            if len(rows):
                is_last[rows[np.argmax(rank.start[rows])]] = True
    return is_last[own]


def _call_ns(rank: RankSummary, own: IntArray) -> int:
    """Return how long one of these calls takes the host in the median, what recording adds left out."""
    known = rank.call_ns[own]
    return int(np.median(known[known >= 0])) if (known >= 0).any() else 0


def within(saving: Interval, step_ns: int) -> Interval:
    """Return a saving that is no more than the step."""
    return Interval(*(min(max(ns, 0), step_ns) for ns in (saving.low, saving.mid, saving.high)))
