"""Links: what each kind of collective reaches in each group, against equal groups and what the link is sold for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracemine.devices import device_named
from tracemine.errors import UsageError
from tracemine.ops.collectives import PAIRED, bus_factor
from tracemine.ranks.cause import JobCause
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.record import JobGroup
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.unprofiled import JobUnprofiled
from tracemine.rows.table import FloatArray, IntArray

_LEAST_MESSAGES, _LEAST_BYTES = 5, 1_000_000
_SLOWER = 1.3
_LARGE_BYTES, _OF_LINK = 16_000_000, 0.25  # four H100 over NVLink reach 43 to 88 % of its rate with so large messages
_BEST = 0.9  # the best decile is what the link can do


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
