"""Links: what each kind of collective reaches in each group, against equal groups and what the link is sold for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.devices import device_named
from tracemine.errors import UsageError
from tracemine.ops.collectives import PAIRED, bus_factor
from tracemine.ranks.collectives import ProcessGroup
from tracemine.ranks.record import Interval, JobGroup
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary

_LEAST_MESSAGES, _LEAST_BYTES = 5, 1_000_000
_SLOWER = 1.3
_LARGE_BYTES, _OF_LINK = 16_000_000, 0.25  # four H100 over NVLink reach 43 to 88 % of its rate with so large messages
_BEST = 0.9  # the best decile is what the link can do


class SlowLink(Struct, frozen=True):
    """A group whose messages take longer than others': by which rule, which kind, what a step gains, what is known."""

    rule: str
    kind: str
    ranks: tuple[int, ...]
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


def slow_links(ranks: Sequence[RankSummary], job: JobReplay) -> list[SlowLink]:
    """Return groups that are slower than equal ones, and kinds that reach little of what the link is sold for."""
    slow = []
    sets = _by_kind(ranks, job)
    alike: dict[tuple[str, int | None, str | None], list[tuple[ProcessGroup, list[int]]]] = defaultdict(list)
    for (kind, group), rows in sets.items():
        if group.ranks is not None and kind not in PAIRED:
            alike[kind, group.size, group.description].append((group, rows))
    for (kind, size, _), groups in alike.items():
        for group, rows in groups:
            slow += _slower(ranks, job, kind, group, rows, [others for peer, others in groups if peer is not group])
        slow += _below_rate(ranks, job, kind, size or 0, groups)
    return slow


def _slower(
    ranks: Sequence[RankSummary],
    job: JobReplay,
    kind: str,
    group: ProcessGroup,
    rows: list[int],
    others: list[list[int]],
) -> list[SlowLink]:
    own = _per_byte(ranks, job, rows)
    peers = [rates for rates in (_per_byte(ranks, job, peer) for peer in others) if len(rates) >= _LEAST_MESSAGES]
    if len(own) < _LEAST_MESSAGES or not peers:
        return []
    ratio = float(np.median(own)) / float(np.median([np.median(rates) for rates in peers]))
    if ratio < _SLOWER:
        return []
    steps = ranks[job.members[rows[0]][0][0]].steps
    gain = int(job.transfer[rows].sum() * (1 - 1 / ratio) / steps)
    fact = f"A byte takes {ratio:.1f} × as long as in {len(peers)} equal groups, over {len(own)} messages above 1 MB."
    speed = bus_factor(kind, group.size or 0) / max(float(np.median(own)), 1e-9)
    return [SlowLink("slow_link", kind, group.ranks or (), speed, Interval(0, gain, gain), (fact,))]


def _below_rate(
    ranks: Sequence[RankSummary], job: JobReplay, kind: str, size: int, groups: list[tuple[ProcessGroup, list[int]]]
) -> list[SlowLink]:
    rows = [k for _, members in groups for k in members if _bytes(ranks, job, k) >= _LARGE_BYTES]
    rate = _link(ranks[0].device)
    if len(rows) < _LEAST_MESSAGES or rate is None or not 1 < size <= 8:
        return []
    speed = np.array([_bytes(ranks, job, k) / max(int(job.transfer[k]), 1) for k in rows]) * bus_factor(kind, size)
    best = float(np.quantile(speed, _BEST))
    if best * 1e9 >= _OF_LINK * rate:
        return []
    steps = ranks[0].steps
    gain = int(job.transfer[rows].sum() * (1 - best * 1e9 / (0.8 * rate)) / steps)
    fact = f"The best of {len(rows)} messages of 16 MB and more; the link is sold for {rate / 1e9:.0f} GB/s each way."
    named = tuple(sorted({rank for group, _ in groups for rank in group.ranks or ()}))
    return [SlowLink("link_below_rate", kind, named, best, Interval(0, gain // 2, gain), (fact,))]


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


def _per_byte(ranks: Sequence[RankSummary], job: JobReplay, rows: list[int]) -> np.ndarray:
    large = [k for k in rows if _bytes(ranks, job, k) >= _LEAST_BYTES]
    return np.array([int(job.transfer[k]) / _bytes(ranks, job, k) for k in large])


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
