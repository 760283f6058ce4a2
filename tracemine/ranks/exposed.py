"""Communication that nothing hides, and communication that need not be: of a job, or of one rank of it.

What is exposed is not what hiding it would save: a rank that waits for a late one is exposed as well, and where the
host is the limit the device has time to communicate. Transfers are counted, never durations, and all ranks replayed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.devices import find_device
from tracemine.ops.collectives import PAIRED
from tracemine.ranks.cause import JobCause
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.record import Interval
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled
from tracemine.rows.table import BoolArray, IntArray
from tracemine.units import bytes_text, percent_text, time_text

_LEAST_SHARE = 0.01  # of the step
_MANY, _SMALL_BYTES, _BUCKET_BYTES = 10, 1_000_000, 25 << 20
_ALONE = 0.95  # of its time: nothing else runs
_SLOWED = 0.5  # of what is hidden: computing next to it takes longer by so much where its device is not known
MORE = 1.25  # what goes with a call on the host is more than what is recorded of it
_QUEUED_NS, _LEAST_QUEUED = 20_000, 2  # behind another group's, and how many a step
_HALF = 0.5  # of what is hidden stays hidden where both groups share a link: assumed
_CALLS_OF_BUCKET = 2  # that of a bucket takes a host 157 us while recorded, that of a gradient 88
# Of a gradient's call DDP's hook takes 10 to 28 us while recorded, in which it divides the gradient as well: what it
# takes more than a division that it makes needless, and what it takes of a program that has none.
_HOOK = 0.1, 0.3


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

    def cause(
        self, case: JobUnprofiled, rule: str, count: float, saving: tuple[int, int, int], transfer_ns: int,
        facts: tuple[str, ...],
    ) -> JobCause:  # fmt: skip
        """Return what some of this set cost. count, transfer_ns: of these a step."""
        return JobCause(
            rule=rule, ranks=members_of(case, self.group), kind=self.kind, count=f"{count:g}", facts=facts,
            saving=within(case, *saving), costs_ns=transfer_ns / 2,
        )  # fmt: skip


def exposed_communication(case: JobUnprofiled, claimed: BoolArray, slow: BoolArray) -> list[JobCause]:
    """Return what communication costs the job and need not, each collective in one of them.

    claimed: collectives of the job that have a cause already. slow: those whose link is slow: hiding them is no cure.
    """
    causes: list[JobCause] = []
    for same in _sets(case.job):
        unclaimed = ~claimed[same.jobs]
        for rule in (_not_overlapped, _exposed, _small):
            free = unclaimed & ~slow[same.jobs] if rule is _exposed else unclaimed
            cause, these = rule(case, same, free)
            if cause is not None:
                causes.append(cause)
                unclaimed = unclaimed & ~these
    return causes


def members_of(case: JobUnprofiled, group: ProcessGroup) -> tuple[int, ...]:
    """Return which ranks of a group are recorded, of one that is not all."""
    everyone = tuple(rank.rank for rank in case.ranks)
    return tuple(rank for rank in group.ranks or () if rank in everyone) or everyone


def within(case: JobUnprofiled, low: int, mid: int, high: int) -> Interval:
    """Return a saving that is no more than the step."""
    return Interval(*(min(max(ns, 0), case.step_ns) for ns in (low, mid, high)))


def _sets(job: JobReplay) -> Iterator[_Set]:
    alike: dict[object, list[_Set]] = defaultdict(list)
    for (kind, group), rows in job.by_kind().items():
        first = job.members[rows[0]][0][0]
        mine = [k for k in rows if job.members[k][0][0] == first]
        own = np.array([job.members[k][0][1] for k in mine], np.int64)
        named = group if group.ranks is None else (group.size, group.description)
        of_group = _Set(kind, group, np.array(mine, np.int64), job.ranks[first], own, ())
        alike[kind, named, len(mine)] += [of_group] * (kind not in PAIRED)
    for first_one, *others in (same for same in alike.values() if same):
        group = first_one.group
        if others:
            everyone = {rank for each in (first_one, *others) for rank in each.group.ranks or ()}
            group = ProcessGroup(tuple(sorted(everyone)), group.size, group.description)
        yield replace(first_one, group=group, alike=tuple(each.jobs for each in others))


def _not_overlapped(case: JobUnprofiled, each: _Set, unclaimed: BoolArray) -> tuple[JobCause | None, BoolArray]:
    """Find gradients that are reduced one by one when the backward pass is over, on the stream that computes."""
    rank, own = each.rank, each.own
    alone = rank.exposed[own] >= _ALONE * rank.dur[own]
    these = unclaimed & rank.after_backward[own] & rank.computes[own] & alone
    count = these.sum() / rank.steps
    if each.kind != "all_reduce" or count < _MANY:
        return None, these
    transfer = int(case.job.transfer[each.jobs[these]].sum() / rank.steps)
    nbytes = rank.collectives.nbytes[own[these]]
    buckets = _buckets(nbytes[rank.step[own[these]] == rank.steps - 1])
    jobs = each.everywhere(these)
    call = _call_ns(case.job, jobs)
    small = int(((nbytes >= 0) & (nbytes < _SMALL_BYTES)).sum() / rank.steps)
    lost = slowed(rank, int(rank.collectives.blocks[own[these]].max()), transfer / buckets)
    facts = (
        f"Their transfers take {time_text(transfer)} a step; {buckets} buckets of 25 MB would do, and each further "
        f"call keeps its host for {time_text(call)}.",
        *((f"{small} of them are below 1 MB.",) if small else ()),
        f"Hidden, they take multiprocessors from what is computed: it loses {percent_text(lost, 1)} of their time.",
    )
    calls = [1 - min(_CALLS_OF_BUCKET * buckets / count + hook, 1.0) for hook in _HOOK]
    gone = [[_calls_of(case.job, at, jobs, int(of * call)) for at in range(len(case.ranks))] for of in calls]
    gain, least = (case.gain_of_transfers(jobs, *how) for how in zip((lost, 1.0), gone, strict=True))
    high = max(transfer + int(count * call * MORE), gain.mid)
    return each.cause(case, "not_overlapped", count, (min(least.low, gain.mid), gain.mid, high), transfer, facts), these


def slowed(rank: RankSummary, blocks: int, transfer_ns: float) -> float:
    """Return which share of a collective's time computing next to it loses: its blocks take multiprocessors.

    Kernels of one wave that no longer fit take two, of which the second begins once the first or the collective has
    ended; those of many waves are slower by what it takes; smaller ones fit next to it.
    """
    device = find_device(rank.device)
    if device is None or not blocks or not len(rank.kernels.name):
        return _SLOWED
    of, most, left = rank.kernels, device.sm_count, device.sm_count - blocks
    each = np.maximum(of.time_ns / of.count, 1)
    pairs = transfer_ns // (2 * each)
    wave = (pairs * each + np.minimum(each, transfer_ns - 2 * pairs * each)) / max(transfer_ns, 1)
    share = np.select([of.blocks <= left, of.blocks <= most], [np.zeros(len(each)), wave], blocks / most)
    return float((share * of.time_ns).sum() / max(of.time_ns.sum(), 1))


def _calls_of(job: JobReplay, at: int, jobs: IntArray, call_ns: int) -> IntArray:
    """Return what the calls of collectives of the job take of a rank's host in each of its stretches."""
    inside = np.flatnonzero(job.ranks[at].step >= 0)
    return np.append(np.isin([job.of[at, i] for i in inside.tolist()], jobs) * call_ns, 0)


def _exposed(case: JobUnprofiled, each: _Set, unclaimed: BoolArray) -> tuple[JobCause | None, BoolArray]:
    """Find transfers that nothing hides and that the job's step feels, or that no overlap can hide as they are run."""
    rank, own = each.rank, each.own
    bare = np.minimum(rank.exposed[own], case.job.transfer[each.jobs])
    these = unclaimed & (bare > 0)
    if not these.any():
        return None, these
    in_order = bool(rank.computes[own[these]].mean() > 0.5)
    if not in_order:
        these &= ~_last_of_step(rank, own)
        if not these.any():
            return None, these
    transfer = int(bare[these].sum() / rank.steps)
    gain = case.gain_of_transfers(each.everywhere(these), 0.0)
    felt = gain.mid if not in_order else transfer
    if felt < _LEAST_SHARE * case.step_ns:
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
    saving = (0, min(gain.mid, transfer), max(min(gain.high, transfer), gain.mid))
    return each.cause(case, "exposed_collective", these.sum() / rank.steps, saving, transfer, facts), these


def _small(case: JobUnprofiled, each: _Set, unclaimed: BoolArray) -> tuple[JobCause | None, BoolArray]:
    """Find many small messages a step: each costs its host a call, whatever it sends."""
    rank, own = each.rank, each.own
    nbytes = rank.collectives.nbytes[own]
    small = unclaimed & (nbytes >= 0) & (nbytes < _SMALL_BYTES)
    count = small.sum() / rank.steps
    if count < _MANY:
        return None, small
    these = small | (unclaimed & (nbytes >= 0) & ~rank.computes[own])  # of buckets of gradients the large ones, too
    call = _call_ns(case.job, each.everywhere(these))
    facts = (f"Each keeps its host for about {time_text(call)} and moves {bytes_text(int(np.median(nbytes[small])))}.",)
    fewer = these.sum() / rank.steps - _buckets(nbytes[these & (rank.step[own] == rank.steps - 1)])
    calls, transfer = int(max(fewer, 0) * call), int(case.job.transfer[each.jobs[these]].sum() / rank.steps)
    mid = calls if _is_host_the_limit(case.job, transfer) else calls // 2
    if min(mid, case.step_ns) < _LEAST_SHARE * case.step_ns:
        return None, these & False
    return each.cause(case, "small_collectives", count, (0, mid, calls), transfer, facts), these


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


def _call_ns(job: JobReplay, jobs: IntArray) -> int:
    """Return how long one of these calls takes a host, what recording adds left out: the median of a rank, of all."""
    own: dict[int, list[int]] = defaultdict(list)
    for k in jobs.tolist():
        for at, i in job.members[k]:
            own[at] += [int(job.ranks[at].call_ns[i])] if job.ranks[at].call_ns[i] >= 0 else []
    medians = [float(np.median(calls)) for calls in own.values() if calls]
    return int(np.median(medians)) if medians else 0


def serialised(case: JobUnprofiled, claimed: BoolArray) -> list[JobCause]:
    """Return collectives that stood behind another group's on their stream, each the shorter of two, as one cause.

    Those of one group must keep their order. Of two that have a count of elements in common the second may read what
    the first gives: nothing is said of them.
    """
    job, ranks = case.job, range(len(case.ranks))
    pairs = [pair for at in ranks for pair in _in_a_row(job, at) if not claimed[list(pair)].any()]
    shorter = np.unique([min(pair, key=lambda k: int(job.transfer[k])) for pair in pairs]).astype(np.int64)
    if not len(shorter):
        return []
    at, i = job.members[shorter[0]][0]
    sent, steps = case.ranks[at].collectives, case.ranks[at].steps
    mine = [k for k in shorter.tolist() if any(who == at for who, _ in job.members[k])]
    count, transfer = len(mine) / steps, int(job.transfer[mine].sum() / steps)
    gain = case.gain_of_transfers(shorter, 0.0).mid
    if count < _LEAST_QUEUED or gain < _LEAST_SHARE * case.step_ns:
        return []
    fact = (
        f"{count:g} a step stand behind a collective of another group on one stream, launched and ready: on their own "
        f"stream {time_text(transfer)} of transfer may run meanwhile."
    )
    return [
        JobCause(
            rule="serialised_collectives", ranks=members_of(case, sent.group_of(i)), count=f"{count:g}",
            saving=within(case, 0, int(gain * _HALF), gain), costs_ns=transfer / 2, facts=(fact,),
        )
    ]  # fmt: skip


def _in_a_row(job: JobReplay, at: int) -> Iterator[tuple[int, int]]:
    """Yield which collective of the job stood behind which of another group, on a rank."""
    rank, sent = job.ranks[at], job.ranks[at].collectives
    order = np.lexsort((rank.start, rank.stream))
    for first, second in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
        if rank.stream[first] != rank.stream[second] or rank.queued_ns[second] < _QUEUED_NS:
            continue
        if sent.group[first] == sent.group[second] or sent.kind[first] in PAIRED or sent.kind[second] in PAIRED:
            continue
        counts = [{int(sent.elements_in[i]), int(sent.elements_out[i])} for i in (first, second)]
        if -1 in counts[0] | counts[1] or counts[0] & counts[1] or rank.step[first] < 0 or rank.step[second] < 0:
            continue
        yield job.of[at, first], job.of[at, second]
