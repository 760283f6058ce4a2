"""Collectives that need not be, by what they are there for: the job again without them and without their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.ranks.exposed import MORE, Exposed, within
from tracemine.ranks.parts import NAMES
from tracemine.ranks.record import Interval
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.texts import rule_of_part
from tracemine.ranks.unprofiled import JobUnprofiled, gain_of_transfers
from tracemine.rows.table import BoolArray, IntArray
from tracemine.units import bytes_text, time_text

_LEAST = 0.5  # a step


class _Needless(Struct, frozen=True):
    """What becomes of the collectives of a part: which share of their transfers stays, and what is said.

    says: of how many there are a step (`count`), what each sends (`size`), and how long a step they keep the device
    (`transfer`) and a host (`calls`).
    """

    stays: float
    says: str
    evidence: str = "replayed"


_OF_PART: Final = {
    "statistics": _Needless(
        0.0,
        "{count:g} messages of {size} a step carry statistics of SyncBatchNorm: their layers keep a host for {calls} a "
        "step, and the device waits for each.",
    ),
    "buffers": _Needless(
        0.0,
        "{count:g} broadcasts of {size} a step begin the forward pass: with the copies around them they keep a host "
        "for {calls}.",
    ),
    "sliced": _Needless(
        0.5,
        "Of {count:g} sums of {size} a step nothing but a slice of a rank's part is read; they take {transfer}, and a "
        "reduce-scatter sends half.",
        "shapes",
    ),
    "again": _Needless(
        0.0,
        "{count:g} a step have the input shape of the one before, and only readers of that run between: if nothing "
        "wrote the input, they cost {transfer} of transfer and their launches.",
        "shapes",
    ),
    "regathered": _Needless(
        0.0,
        "{count:g} all-gathers of {size} a step fetch parameters that the step has gathered before: {transfer} of "
        "transfer, and {calls} of a host, copies included. Kept, the parameters take memory.",
    ),
}


def needless(
    ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step_ns: int
) -> tuple[list[Exposed], BoolArray]:
    """Return what collectives that need not be cost the job, and which these are, by their places in the job."""
    claimed = np.zeros(len(job.members), np.bool_)
    code = np.array([ranks[members[0][0]].part[members[0][1]] for members in job.members], np.int64)
    causes = []
    for number in np.unique(code[code >= 0]).tolist():
        jobs = np.flatnonzero(code == number)
        claimed[jobs] = True
        causes += _cause(NAMES[number], jobs, ranks, job, without, step_ns)
    return causes, claimed


def _cause(
    part: str, jobs: IntArray, ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step_ns: int
) -> list[Exposed]:
    how = _OF_PART[part]
    first = job.members[jobs[0]][0]
    at, i = first
    steps, sent = ranks[at].steps, ranks[at].collectives
    mine = [k for k in jobs.tolist() if job.members[k][0][0] == at]
    count = len(mine) / steps
    if count < _LEAST:
        return []
    transfer = int(job.transfer[mine].sum() / steps)
    calls = int(max(rank.calls_ns.get(part, np.zeros(1)).sum() for rank in ranks) / steps)
    nbytes = int(np.median([sent.nbytes[own] for k in mine for _, own in job.members[k][:1]]))
    alone = gain_of_transfers(job, without, jobs, how.stays)
    both = gain_of_transfers(
        job, without, jobs, how.stays, [rank.calls_ns.get(part, np.zeros(1, np.int64)) for rank in ranks]
    )
    saving = Interval(alone.low, both.mid, int(both.high * MORE))
    took = {"transfer": time_text(transfer), "calls": time_text(calls)}
    fact = how.says.format(count=count, size=bytes_text(nbytes), **took)
    return [
        Exposed(
            rule=rule_of_part(part), kind=job.kind[jobs[0]], group=sent.groups[sent.group[i]], count=count,
            saving=within(saving, step_ns), transfer_ns=transfer, facts=(fact,),
            evidence=how.evidence,
        )
    ]  # fmt: skip
