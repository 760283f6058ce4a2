"""Collectives of different groups that run one after another on one stream, though nothing says that they must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracemine.ops.collectives import PAIRED
from tracemine.ranks.exposed import Exposed, within
from tracemine.ranks.record import Interval
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled, gain_of_transfers
from tracemine.rows.table import BoolArray
from tracemine.units import time_text

_QUEUED_NS = 20_000
_LEAST, _LEAST_SHARE = 2, 0.01  # a step, and of it
_HALF = 0.5  # of what is hidden stays hidden where both groups share a link: assumed


def serialised(
    ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step_ns: int, claimed: BoolArray
) -> list[Exposed]:
    """Return collectives that stood behind another group's on their stream, each the shorter of two, as one cause.

    Those of one group must keep their order. Of two that have a count of elements in common the second may read what
    the first gives: nothing is said of them.
    """
    pairs = [pair for at in range(len(ranks)) for pair in _pairs(ranks, job, at) if not claimed[list(pair)].any()]
    shorter = np.unique([min(pair, key=lambda k: int(job.transfer[k])) for pair in pairs]).astype(np.int64)
    if not len(shorter):
        return []
    at, i = job.members[shorter[0]][0]
    sent, steps = ranks[at].collectives, ranks[at].steps
    mine = [k for k in shorter.tolist() if any(who == at for who, _ in job.members[k])]
    count, transfer = len(mine) / steps, int(job.transfer[mine].sum() / steps)
    gain = gain_of_transfers(job, without, shorter, 0.0).mid
    if count < _LEAST or gain < _LEAST_SHARE * step_ns:
        return []
    fact = (
        f"{count:g} a step stand behind a collective of another group on one stream, launched and ready: on their own "
        f"stream {time_text(transfer)} of transfer may run meanwhile."
    )
    return [
        Exposed(
            rule="serialised_collectives", kind=job.kind[shorter[0]], group=sent.groups[sent.group[i]], count=count,
            saving=within(Interval(0, int(gain * _HALF), gain), step_ns), transfer_ns=transfer, facts=(fact,),
            evidence="adjacent",
        )
    ]  # fmt: skip


def _pairs(ranks: Sequence[RankSummary], job: JobReplay, at: int) -> Iterator[tuple[int, int]]:
    """Yield which collective of the job stood behind which, on a rank."""
    rank, sent = ranks[at], ranks[at].collectives
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
