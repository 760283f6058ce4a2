"""The job without the profiler: the time that hosts and devices of its ranks take, what recording added taken off.

Recording stretches hosts, each rank's by another factor, and so decides who waits for whom. A rank's own estimate of
its step holds the waits for the others, so neither their mean nor their largest is the job's: ranks that do the same
are given their median host, and all are replayed together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.ranks.kernels import Kernel
from tracemine.ranks.record import Interval, JobStep
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.rows.table import FloatArray, IntArray

# Of 35 recordings on H100 and H200 whose steps were measured, the steps that follow are 0.72 to 1.41 times as long.
STEP_LOW, STEP_HIGH = 0.7, 1.45
# Kept a stretch of idle time that nothing explains, where it may be waiting for what is not recorded.
ELASTIC_NS = 5_000_000
Parts: TypeAlias = dict[str, dict[int, FloatArray]]  # parts of ranks, by name and rank
_RECORDED = {"busy": "busy", "queued": "queued_idle", "silent": "silent"}  # as stretches
_MORE_OPERATORS, _MORE_SHARE = 20, 1.05  # a step, by which one rank does what its peers do not
_NEARLY_ALL = 0.95
# Of 35 recordings of 25 jobs on H100 and H200 whose steps were measured, by how much longer hosts worked than what is
# left of them without recording; and what they may be against that: so far off were four of five steps.
_HOST_MORE, _HOSTS = 1.1, (1.1, 0.9, 0.7)


class HostDevice(Struct, frozen=True):
    """What a rank's device and its host take, stretch by stretch; [..., stretches]."""

    device: FloatArray
    host: FloatArray


class JobUnprofiled(Struct, frozen=True, kw_only=True):
    """Stretches of all ranks without the profiler, float nanoseconds; their job, and its step.

    busy, queued: of each rank's device. host, silent, extra: of its host, which works for as long as the median of the
    ranks that do the same; is silent; and works longer where it runs operators that its peers do not.
    """

    busy: tuple[FloatArray, ...]
    queued: tuple[FloatArray, ...]
    silent: tuple[FloatArray, ...]
    extra: tuple[FloatArray, ...]
    host: tuple[FloatArray, ...]
    role: tuple[int, ...]  # of each rank: ranks of one role have the same list of collectives
    contended: tuple[float, ...]  # which share of each rank's computing was lost to collectives that waited
    job: JobReplay
    step: JobStep

    @property
    def ranks(self) -> Sequence[RankSummary]:
        """All ranks, as they were read."""
        return self.job.ranks

    @property
    def step_ns(self) -> int:
        """How long a step is without the profiler."""
        return self.step.mid

    def of_rank(
        self, at: int, *, is_elastic: bool = False, slower: float = 1.0, **changed: dict[int, FloatArray]
    ) -> HostDevice:
        """Return what a rank takes. changed: parts of ranks to put in place of theirs.

        is_elastic: its idle time that nothing recorded explains may be waiting for another rank: little of it stays.
        slower: so much longer its host works.
        """
        busy, queued, silent, extra, host = (
            changed.get(name, {}).get(at, getattr(self, name)[at])
            for name in ("busy", "queued", "silent", "extra", "host")
        )
        if is_elastic:
            queued, silent = np.minimum(queued, ELASTIC_NS), np.minimum(silent, ELASTIC_NS)
        return HostDevice(busy + queued, host * slower + silent + extra)

    def lines(self, slower: float = 1.0) -> list[HostDevice]:
        """Return what each rank takes."""
        return [self.of_rank(at, slower=slower) for at in range(len(self.busy))]

    def peers(self, at: int) -> list[int]:
        """Return the other ranks of a rank's role."""
        return [peer for peer, role in enumerate(self.role) if role == self.role[at] and peer != at]

    def gains_of(
        self, scenarios: Callable[[float], list[list[HostDevice]]], transfer: FloatArray | None = None
    ) -> list[Interval]:
        """Return by how much a step is shorter in each scenario of the second half than in its fellow of the first.

        scenarios: given by how much slower all hosts are. How fast they are without recording is not known: a saving
        is the mean of what it is with slow, usual and fast ones. transfer: [scenarios, collectives].
        """
        every = [scenarios(slower) for slower in _HOSTS]
        times = None if transfer is None else np.tile(transfer, (len(_HOSTS), 1))
        steps = _steps_of(self.job, [one for each in every for one in each], times).reshape(len(_HOSTS), 2, -1)
        gains = np.maximum(steps[:, 0] - steps[:, 1], 0)
        columns = zip(gains.min(axis=0), gains.mean(axis=0), gains.max(axis=0), strict=True)
        return [Interval(*(int(ns) for ns in column)) for column in columns]

    def gain_of_transfers(self, jobs: IntArray, scale: float, gone: Sequence[IntArray] | None = None) -> Interval:
        """Return what a step gains where transfers take this share of their time, those that are known: where a member
        was not recorded the others may have waited for it.

        gone: of each rank's host, in each stretch, the calls that are gone with them.
        """
        transfer: FloatArray = np.tile(self.job.transfer.astype(float), (2, 1))
        transfer[1, jobs[self.job.is_whole[jobs]]] *= scale
        calls = [np.zeros(1, np.int64)] * len(self.ranks) if gone is None else gone

        def scenarios(slower: float) -> list[list[HostDevice]]:
            before = self.lines(slower)
            pairs = zip(before, (slower * _HOST_MORE * own for own in calls), strict=True)
            return [before, [HostDevice(own.device, np.maximum(own.host - less, 0)) for own, less in pairs]]

        return self.gains_of(scenarios, transfer)[0]


def _steps_of(
    job: JobReplay, scenarios: Sequence[Sequence[HostDevice]], transfer: FloatArray | None = None
) -> FloatArray:
    """Return how long the job's step is in each scenario, of which each has the lines of all ranks."""
    ranks = list(zip(*scenarios, strict=True))
    device, host = ([np.stack([getattr(one, name) for one in rank]) for rank in ranks] for name in ("device", "host"))
    whole: FloatArray = job.ends(device, transfer, together=True, hosts=host).max(axis=1) / job.ranks[0].steps
    return whole


def unprofiled(job: JobReplay) -> JobUnprofiled:
    """Return the job's stretches without the profiler, and its step."""
    ranks = job.ranks
    roles = _roles(ranks)
    host = [np.array(rank.stretches.host * _HOST_MORE, np.float64) for rank in ranks]
    extra = tuple(_extra(ranks, host, roles, at) for at in range(len(ranks)))
    host = [own - more for own, more in zip(host, extra, strict=True)]
    whole = np.array([own.sum() for own in host])
    usual_of = {role: float(np.median(whole[np.array(roles) == role])) for role in set(roles)}
    factor = [usual_of[role] / max(float(own.sum()), 1.0) for own, role in zip(host, roles, strict=True)]
    host = [np.array(own * by, np.float64) for own, by in zip(host, factor, strict=True)]
    parts = {
        name: tuple(getattr(rank.stretches, field).astype(float) for rank in ranks) for name, field in _RECORDED.items()
    }
    lost = _contended(job)
    parts["busy"] = tuple(busy * (1 - share) for busy, share in zip(parts["busy"], lost, strict=True))
    recorded = int((job.end.max() - job.begin.min()) / ranks[0].steps)
    case = JobUnprofiled(
        host=tuple(host), role=roles, extra=extra, contended=lost, job=job, step=JobStep(*[recorded] * 4), **parts
    )
    mid = min(int(_steps_of(job, [case.lines()])[0]), recorded)
    return replace(case, step=JobStep(recorded, int(mid * STEP_LOW), mid, min(int(mid * STEP_HIGH), recorded)))


def more_operators(rank: RankSummary, peers: Sequence[RankSummary]) -> int:
    """Return how many operators a step a rank runs more than its peers; 0 where that is little, or of one step."""
    steps = min(one.steps for one in (rank, *peers))
    usual = np.median([peer.by_step.operators[:steps] for peer in peers], axis=0) if peers else np.zeros(steps)
    own = rank.by_step.operators[:steps]
    does = (own - usual >= _MORE_OPERATORS) & (own >= _MORE_SHARE * usual)
    return int(np.median(own - usual)) if peers and 2 * int(does.sum()) > steps else 0


def _extra(ranks: Sequence[RankSummary], host: Sequence[FloatArray], roles: Sequence[int], at: int) -> FloatArray:
    """Return how much longer a host works in the stretches in which it runs what its peers do not."""
    extra = np.zeros(len(host[at]))
    peers = [peer for peer, role in enumerate(roles) if role == roles[at] and peer != at]
    more = more_operators(ranks[at], [ranks[peer] for peer in peers]) * ranks[at].steps
    if more:
        usual: FloatArray = np.median([ranks[peer].stretches.operators for peer in peers], axis=0)
        excess = ranks[at].stretches.operators - usual
        order = np.argsort(-excess, kind="stable")
        chosen = order[: int(np.searchsorted(np.cumsum(excess[order]), _NEARLY_ALL * more)) + 1]
        share = np.maximum(excess, 0) / np.maximum(ranks[at].stretches.operators, 1)
        extra[chosen] = (host[at] * share)[chosen]
    return extra


def _roles(ranks: Sequence[RankSummary]) -> tuple[int, ...]:
    """Return a number for each rank, equal where the list of collectives, in order of issue, is.

    Stages of a pipeline may have equal lists but for the order of sends and receives and their peers.
    """
    keys: dict[object, int] = defaultdict(lambda: len(keys))
    roles = []
    for rank in ranks:
        own = rank.collectives
        inside = np.flatnonzero(rank.step >= 0).tolist()
        key = tuple((own.kind[i], own.group_of(i).size, own.group_of(i).description, _peers(rank, i)) for i in inside)
        roles.append(keys[key])
    return tuple(roles)


def _peers(rank: RankSummary, at: int) -> tuple[tuple[str, int], ...]:
    """Return whom a rank sends to and receives from, as far behind or ahead of itself: the same in each pipeline."""
    return tuple((part.kind, part.peer - rank.rank) for part in rank.collectives.parts[at] if part.peer is not None)


def _contended(job: JobReplay) -> tuple[float, ...]:
    """Return for each rank which share of its computing is lost to collectives that wait: kernels take longer next to
    one than alone, as they do on their peers where none runs alone here, and those that wait run for longer.
    """
    kernels = [rank.kernels.by_kernel() for rank in job.ranks]
    alone: dict[Kernel, list[float]] = defaultdict(list)
    for of in kernels:
        for key, times in of.items():
            if times.alone:
                alone[key].append(times.alone)
    usual = {key: float(np.median(times)) for key, times in alone.items()}
    found = list[float]()
    for at, (rank, of) in enumerate(zip(job.ranks, kernels, strict=True)):
        lost = sum(
            sums.time_ns - (sums.alone or usual.get(key, sums.time_ns / sums.count)) * sums.count
            for key, sums in of.items()
        )
        # Kernels of several streams take longer together than the device computes.
        whole = max(int(rank.stretches.busy.sum()), sum(sums.time_ns for sums in of.values()), 1)
        found.append(_waiting(rank, at, job) * max(lost, 0) / whole)
    return tuple(found)


def _waiting(rank: RankSummary, at: int, job: JobReplay) -> float:
    """Return for which share of its collectives that nothing else must wait for a rank waits for others."""
    beside = np.flatnonzero((rank.step >= 0) & ~rank.computes)
    if not len(beside):
        return 0.0
    transfer = job.transfer[[job.of[at, i] for i in beside.tolist()]]
    return 1 - float(np.minimum(transfer, rank.dur[beside]).sum()) / max(int(rank.dur[beside].sum()), 1)
