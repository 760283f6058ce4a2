"""The job without the profiler: each rank's stretches with what recording added to its host taken off.

Recording stretches hosts, each rank's by another factor, and so decides who waits for whom. A rank's own estimate of
its step holds the waits for the others, so neither their mean nor their largest is the job's: the stretches are taken,
and all ranks are replayed together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tracemine.ranks.parts import NAMES
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import CALL_NS, OPERATOR_NS, RankSummary
from tracemine.rows.table import BoolArray, FloatArray, IntArray

# Of eight jobs on four H100 the steps that follow are -23 to +36 % off the measured ones: so wide is the interval.
STEP_LOW, STEP_HIGH = 0.75, 1.3
# Kept a stretch of idle time that nothing explains, where it may be waiting for what is not recorded.
ELASTIC_NS = 5_000_000
Parts: TypeAlias = dict[str, dict[int, FloatArray]]  # parts of ranks, by name and rank
_RECORDED = {"busy": "busy", "queued": "queued_idle", "silent": "silent", "silent_idle": "silent_idle"}  # as stretches
_PARTS = (*_RECORDED, "extra")
_MORE_OPERATORS, _MORE_SHARE = 20, 1.05  # a step, by which one rank does what its peers do not
_NEARLY_ALL = 0.95
_HOST_MORE = 1.15  # so much longer a host may work than it seems to without its recording


class JobUnprofiled(Struct, frozen=True):
    """Stretches of all ranks without the profiler, float nanoseconds: of a device and a host part the longer counts.

    busy, queued, silent, silent_idle: [stretches] of each rank. host: its own. least_host: the least of the
    ranks that do the same; what recording adds differs by rank, up to twice, so that differences between ranks are
    judged by this one. extra: how much longer a host works where it runs operators that its peers do not.
    """

    busy: tuple[FloatArray, ...]
    queued: tuple[FloatArray, ...]
    silent: tuple[FloatArray, ...]
    silent_idle: tuple[FloatArray, ...]
    extra: tuple[FloatArray, ...]
    host: tuple[FloatArray, ...]
    least_host: tuple[FloatArray, ...]
    meets: tuple[BoolArray, ...]  # of each rank the stretches in which its host waits for its device
    role: tuple[int, ...]  # of each rank: ranks of one role have the same list of collectives

    def of_own_host(self, *, queue: bool) -> list[FloatArray]:
        """Return each rank's stretches with its own host: how long the step is. queue: as of `of_least_host`."""
        none = {"extra": {at: np.zeros(1) for at in range(len(self.busy))}}
        return [self._longer(at, self.host[at], queue, none) for at in range(len(self.busy))]

    def of_least_host(self, *, queue: bool, **changed: dict[int, FloatArray]) -> list[FloatArray]:
        """Return them with the least host of the role: who loses how much.

        queue: whether launches are so far ahead that the device works through a silence of its host (steps that follow
        each other without a synchronisation), or none of them. changed: parts of ranks to put in place of theirs.

        >>> part, zero = (np.array([4.0]), np.array([1.0])), (np.zeros(1), np.zeros(1))
        >>> late = JobUnprofiled(
        ...     busy=part, silent=part, silent_idle=part, queued=zero, extra=zero, host=zero, least_host=zero,
        ...     meets=(zero[0] > 0,) * 2, role=(0, 0),
        ... )
        >>> [[each.tolist() for each in late.of_least_host(queue=queue)] for queue in (True, False)]
        [[[4.0], [1.0]], [[8.0], [2.0]]]
        >>> [each.tolist() for each in late.of_least_host(queue=True, busy={0: zero[0]}, silent={0: zero[0]})]
        [[0.0], [1.0]]
        """
        return [self._longer(at, self.least_host[at], queue, changed) for at in range(len(self.busy))]

    def of_rank(
        self, at: int, *, queue: bool, is_elastic: bool = False, **changed: dict[int, FloatArray]
    ) -> FloatArray:
        """Return one rank's stretches with the least host of the role. Arguments as of `of_least_host`.

        is_elastic: its idle time that nothing recorded explains may be waiting for another rank: little of it stays.
        """
        return self._longer(at, self.least_host[at], queue, changed, is_elastic)

    def _longer(self, at: int, host: FloatArray, queue: bool, changed: Parts, is_elastic: bool = False) -> FloatArray:
        busy, *parts = (changed.get(name, {}).get(at, getattr(self, name)[at]) for name in _PARTS)
        *idle, extra = parts
        queued, silent, silent_idle = (np.minimum(part, ELASTIC_NS) for part in idle) if is_elastic else idle
        longer: FloatArray = np.maximum(busy + queued + (0 if queue else silent_idle), host + silent + extra)
        return longer

    def room_ns(self, at: int) -> int:
        """Return by how much a rank's device is behind its host in the end, at least: what a faster device may gain.

        A host that is ahead of its device takes what the device lacks; where it waits for it both begin anew.
        """
        host = np.median([self.host[one] for one in (at, *self.peers(at))], axis=0) * _HOST_MORE + self.silent[at]
        device, behind, begin = self.busy[at] + self.queued[at], 0.0, 0
        for end in (*(np.flatnonzero(self.meets[at]) + 1).tolist(), len(device)):
            ahead = np.cumsum(host[begin:end]) - np.cumsum(device[begin:end])
            behind += max(float(ahead.max(initial=0.0)) - float(ahead[-1]), 0.0) if end > begin else 0.0
            begin = end
        return int(behind)

    def peers(self, at: int) -> list[int]:
        """Return the other ranks of a rank's role."""
        return [peer for peer, role in enumerate(self.role) if role == self.role[at] and peer != at]


def unprofiled(ranks: Sequence[RankSummary]) -> JobUnprofiled:
    """Return the job's stretches without the profiler."""
    roles = _roles(ranks)
    host = []
    for rank in ranks:
        stretch = rank.stretches
        recording = stretch.operators * OPERATOR_NS + stretch.calls * CALL_NS
        host.append(np.maximum(stretch.own - stretch.silent - recording, 0).astype(float))
    least_of = {
        role: np.min([own for own, other in zip(host, roles, strict=True) if other == role], axis=0)
        for role in set(roles)
    }
    parts = {
        name: tuple(getattr(rank.stretches, field).astype(float) for rank in ranks) for name, field in _RECORDED.items()
    }
    extra = tuple(_extra(ranks, host, roles, at) for at in range(len(ranks)))
    least = tuple(least_of[role] for role in roles)
    return JobUnprofiled(
        meets=tuple(rank.meets for rank in ranks), host=tuple(host), least_host=least, role=roles, extra=extra, **parts
    )


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
        longer = host[at] - np.median([host[peer] for peer in peers], axis=0)
        extra[chosen] = np.maximum(longer[chosen], 0)
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
        key = tuple(
            (own.kind[i], own.groups[own.group[i]].size, own.groups[own.group[i]].description, _peers(rank, i))
            for i in inside
        )
        roles.append(keys[key])
    return tuple(roles)


def _peers(rank: RankSummary, at: int) -> tuple[tuple[str, int], ...]:
    """Return whom a rank sends to and receives from, as far behind or ahead of itself: the same in each pipeline."""
    return tuple((part.kind, part.peer - rank.rank) for part in rank.collectives.parts[at] if part.peer is not None)


def gain_of_transfers(
    job: JobReplay, without: JobUnprofiled, jobs: IntArray, scale: float, part: str | None = None
) -> tuple[int, int]:
    """Return what a step gains where transfers take this share of their time: with each rank's own host, and with the
    least one. part: collectives that are gone, with the hosts' calls, so that no rank meets another there.
    """
    transfer: FloatArray = np.tile(job.transfer.astype(float), (2, 1))
    transfer[1, jobs] *= scale
    gains = []
    for hosts, before in (
        (without.host, without.of_own_host(queue=True)),
        (without.least_host, without.of_least_host(queue=True)),
    ):
        after = before
        if part is not None:
            after = [_met_no_more(rank, without, at, hosts[at], part) for at, rank in enumerate(job.ranks)]
        both = [np.stack(pair) for pair in zip(before, after, strict=True)]
        ends = job.ends(both, transfer, together=True).max(axis=1) / job.ranks[0].steps
        gains.append(max(int(ends[0] - ends[1]), 0))
    return gains[0], gains[1]


def _met_no_more(rank: RankSummary, without: JobUnprofiled, at: int, host: FloatArray, part: str) -> FloatArray:
    """Return a rank's stretches without the calls of a part: those that its collectives end are one with the next.

    Of what is one the longer part counts, of the host and of the device: the host runs ahead over it.
    """
    ends = rank.part[rank.step >= 0] != NAMES.index(part)
    first = np.flatnonzero(np.append(True, ends))
    device = without.busy[at] + without.queued[at]
    works = np.maximum(host - rank.calls_ns.get(part, np.zeros(len(host))), 0) + without.silent[at]
    whole = np.maximum(np.add.reduceat(device, first), np.add.reduceat(works, first))
    stretches = np.zeros(len(host))
    stretches[np.append(first[1:] - 1, len(host) - 1)] = whole
    return stretches
