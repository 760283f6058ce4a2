"""Links: what each kind of collective reaches in each group, against equal groups and what the link is sold for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracemine.devices import device_named
from tracemine.errors import UsageError
from tracemine.ops.collectives import PAIRED, bus_factor
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.record import Interval, JobGroup
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled, gain_of_transfers
from tracemine.rows.table import FloatArray, IntArray

_LEAST_MESSAGES, _LEAST_BYTES = 5, 1_000_000
_SLOWER = 1.3
_LARGE_BYTES, _OF_LINK = 16_000_000, 0.25  # four H100 over NVLink reach 43 to 88 % of its rate with so large messages
_BEST = 0.9  # the best decile is what the link can do


class SlowLink(Struct, frozen=True):
    """A group whose messages take longer than others': by which rule, its kind and collectives of the job, what a step
    gains, and what is known.
    """

    rule: str
    kind: str
    ranks: tuple[int, ...]
    jobs: IntArray
    gb_per_s: float
    saving: Interval
    facts: tuple[str, ...]


def groups_of(ranks: Sequence[RankSummary], job: JobReplay) -> list[JobGroup]:
    """Return what each kind of collective of each group sends, takes and waits, a step."""
    groups = []
    for (kind, group), rows in _by_kind(ranks, job).items():
        members = job.members[rows[0]]
        steps = ranks[members[0][0]].steps
        first = [(job.members[k][0][0], job.members[k][0][1]) for k in rows]
        nbytes = np.array([int(ranks[at].collectives.nbytes[i]) for at, i in first])
        transfer = job.transfer[rows]
        exposed = [int(ranks[at].exposed[i]) for k in rows for at, i in job.members[k]]
        waits = [int(ranks[at].dur[i] - job.transfer[k]) for k in rows for at, i in job.members[k]]
        known = bool((nbytes > 0).all())
        named = group.ranks or tuple(sorted(ranks[at].rank for at, _ in members))
        groups.append(
            JobGroup(
                kind=kind, ranks=named, description=group.description, count=len(rows) / steps,
                bytes=int(np.median(nbytes)) if known else None, transfer_ns=int(np.median(transfer)),
                bus_gb_per_s=round(_bus(kind, len(named), nbytes, transfer), 1) if known else None,
                exposed_ns=sum(exposed) // max(len(members), 1) // steps,
                wait_ns=sum(waits) // max(len(members), 1) // steps,
            )
        )  # fmt: skip
    return sorted(groups, key=lambda one: -one.exposed_ns)


def slow_links(ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled) -> list[SlowLink]:
    """Return groups that are slower than equal ones, and kinds that reach little of what the link is sold for."""
    slow: list[SlowLink] = []
    alike: dict[tuple[str, int | None, str | None], list[_LinkRates]] = defaultdict(list)
    for (kind, group), rows in _by_kind(ranks, job).items():
        if group.ranks is not None and kind not in PAIRED:
            alike[kind, group.size, group.description].append(_LinkRates.of(ranks, job, group, rows))
    for (kind, size, _), groups in alike.items():
        many = [rates for rates in groups if len(rates.per_byte) >= _LEAST_MESSAGES]
        medians = np.array([np.median(rates.per_byte) for rates in many])
        for at, rates in enumerate(many if len(many) > 1 else ()):
            usual = float(np.median(np.delete(medians, at)))
            slow += _slower(job, without, kind, rates, float(medians[at]) / max(usual, 1e-12), len(many) - 1)
        slow += _below_rate(job, without, kind, size or 0, groups)
    return slow


class _LinkRates(Struct, frozen=True):
    """One group's messages of one kind: places in the job, their bytes, and nanoseconds a byte of the large ones."""

    group: ProcessGroup
    rows: IntArray
    nbytes: IntArray
    per_byte: FloatArray

    @classmethod
    def of(cls, ranks: Sequence[RankSummary], job: JobReplay, group: ProcessGroup, rows: list[int]) -> _LinkRates:
        at = np.array(rows, np.int64)
        nbytes = np.array([_bytes(ranks, job, k) for k in rows], np.int64)
        large = nbytes >= _LEAST_BYTES
        return cls(group, at, nbytes, job.transfer[at[large]] / nbytes[large])


def _slower(
    job: JobReplay, without: JobUnprofiled, kind: str, own: _LinkRates, ratio: float, others: int
) -> Iterator[SlowLink]:
    if ratio < _SLOWER:
        return
    fact = (
        f"A byte takes {ratio:.1f} × as long as in {others} equal groups, over {len(own.per_byte)} messages above 1 MB."
    )
    speed = bus_factor(kind, own.group.size or 0) / max(float(np.median(own.per_byte)), 1e-9)
    saving = gain_of_transfers(job, without, own.rows, 1 / ratio)
    yield SlowLink("slow_link", kind, own.group.ranks or (), own.rows, speed, saving, (fact,))


def _below_rate(
    job: JobReplay, without: JobUnprofiled, kind: str, size: int, groups: Sequence[_LinkRates]
) -> Iterator[SlowLink]:
    rows = np.concatenate([group.rows[group.nbytes >= _LARGE_BYTES] for group in groups])
    nbytes = np.concatenate([group.nbytes[group.nbytes >= _LARGE_BYTES] for group in groups])
    rate = _link(job.ranks[0].device)
    if len(rows) < _LEAST_MESSAGES or rate is None or not 1 < size <= 8:
        return
    best = float(np.quantile(nbytes / np.maximum(job.transfer[rows], 1) * bus_factor(kind, size), _BEST))
    if best * 1e9 >= _OF_LINK * rate:
        return
    every = np.concatenate([group.rows for group in groups])
    saving = gain_of_transfers(job, without, every, best * 1e9 / (0.8 * rate))
    fact = f"The best of {len(rows)} messages of 16 MB and more; the link is sold for {rate / 1e9:.0f} GB/s each way."
    named = tuple(sorted({rank for group in groups for rank in group.group.ranks or ()}))
    yield SlowLink("link_below_rate", kind, named, every, best, saving, (fact,))


def _by_kind(ranks: Sequence[RankSummary], job: JobReplay) -> dict[tuple[str, ProcessGroup], list[int]]:
    kinds: dict[tuple[str, ProcessGroup], list[int]] = defaultdict(list)
    for k in range(job.matched):
        at, i = job.members[k][0]
        own = ranks[at].collectives
        kinds[job.kind[k], own.groups[own.group[i]]].append(k)
    return dict(kinds)


def _bytes(ranks: Sequence[RankSummary], job: JobReplay, k: int) -> int:
    at, i = job.members[k][0]
    return int(ranks[at].collectives.nbytes[i])


def _bus(kind: str, size: int, nbytes: np.ndarray, transfer: np.ndarray) -> float:
    """Return GB/s of the bus, of the best decile."""
    return float(np.quantile(nbytes / np.maximum(transfer, 1), _BEST) * bus_factor(kind, size))


def _link(device: str | None) -> float | None:
    """Return bytes a second that the device's links to its peers are sold for; None where it is not known."""
    if device is None:
        return None
    try:
        return device_named(device).peer_link_bytes_per_s
    except UsageError:
        return None
