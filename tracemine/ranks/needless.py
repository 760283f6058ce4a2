"""Collectives that need not be, by what they are there for: the job again without them and without their calls."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.ranks.cause import JobCause, rule_of_part
from tracemine.ranks.exposed import MORE, members_of, within
from tracemine.ranks.parts import NAMES
from tracemine.ranks.unprofiled import JobUnprofiled
from tracemine.rows.table import BoolArray, IntArray
from tracemine.tables import table_beside
from tracemine.units import bytes_text, time_text

_LEAST = 0.5  # a step
_TABLE = table_beside(__file__, "needless.toml")
# Of each part which share of its transfers stays, and what is said: how many there are a step (`count`), what each
# sends (`size`), and how long a step they keep the device (`transfer`) and a host (`calls`).
_OF_PART: Final = _TABLE["of_part"]
_EVIDENCE: Final = {"again": "shapes"}  # no module is named


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
