"""What is drawn of a job: each rank's steps next to its peers', and the last step on clocks that were put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.ranks.clocks import Clocks
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary


class DrawnCollective(Struct, frozen=True):
    """A collective of a rank in the last step: since when it runs, until when it waits for other ranks, and its end."""

    number: int  # of the job: equal on all of its members
    kind: str
    begin_ns: int
    waits_until_ns: int
    end_ns: int


class DrawnRank(Struct, frozen=True):
    """One rank: its own time in each step, and what it does in the last. Times since the first rank began that."""

    rank: int
    role: int  # ranks that do the same have the same
    own_ns: tuple[int, ...]
    begin_ns: int
    end_ns: int
    computing_ns: tuple[tuple[int, int], ...]
    collectives: tuple[DrawnCollective, ...]
    bound_ns: int | None  # by which its clock may be off


class JobPicture(Struct, frozen=True):
    """All ranks of a job as they are drawn."""

    ranks: tuple[DrawnRank, ...]
    span_ns: int


def picture_of(ranks: Sequence[RankSummary], job: JobReplay, clocks: Clocks, roles: Sequence[int]) -> JobPicture:
    """Return what is drawn of a job."""
    begin = np.array([rank.window[1] - _last_ns(rank) for rank in ranks], np.int64) + clocks.offset_ns
    first = int(begin.min())
    drawn = []
    for at, rank in enumerate(ranks):
        shift = int(clocks.offset_ns[at]) - first
        inside = np.flatnonzero(rank.step == rank.steps - 1).tolist()
        bound = int(clocks.bound_ns[at])
        drawn.append(
            DrawnRank(
                rank=rank.rank,
                role=roles[at],
                own_ns=tuple(rank.by_step.own.tolist()),
                begin_ns=int(begin[at]) - first,
                end_ns=rank.window[1] + shift,
                computing_ns=tuple((begin + shift, end + shift) for begin, end in rank.computing.tolist()),
                collectives=tuple(_drawn(rank, i, job.of[at, i], job, shift) for i in inside),
                bound_ns=bound if bound >= 0 else None,
            )
        )
    return JobPicture(tuple(drawn), max((rank.end_ns for rank in drawn), default=0))


def _last_ns(rank: RankSummary) -> int:
    """Return how long the last step of a rank is: its own time, and what it waits."""
    return int(rank.by_step.own[-1]) + int(rank.wait_ns_by_step[-1])


def _drawn(rank: RankSummary, i: int, number: int, job: JobReplay, shift: int) -> DrawnCollective:
    begin, end = int(rank.start[i]), int(rank.start[i] + rank.dur[i])
    waits_until = max(end - int(job.transfer[number]), begin)
    return DrawnCollective(number, job.kind[number], begin + shift, waits_until + shift, end + shift)
