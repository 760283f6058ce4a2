"""Computing next to collectives that wait: a rank that waits for others holds its own computing up meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary

Kernel: TypeAlias = tuple[str, int, int]


class KernelSums(Struct, frozen=True):
    """A kernel of a rank: how often and for how long, and how long one of them takes alone; 0: none is."""

    count: int
    time_ns: int
    alone: float


def by_kernel(rank: RankSummary) -> dict[Kernel, KernelSums]:
    """Return a rank's kernels by name, blocks and shapes."""
    of = rank.kernels
    alone = of.alone_ns / np.maximum(of.alone_count, 1)
    keys = zip(of.name, of.blocks.tolist(), of.shapes.tolist(), strict=True)
    times = map(KernelSums, of.count.tolist(), of.time_ns.tolist(), alone.tolist())
    return dict(zip(keys, times, strict=True))


def contended(ranks: Sequence[RankSummary], job: JobReplay) -> tuple[float, ...]:
    """Return for each rank which share of its computing is lost to collectives that wait: kernels take longer next to
    one than alone, as they do on their peers where none runs alone here, and those that wait run for longer.
    """
    kernels = [by_kernel(rank) for rank in ranks]
    alone: dict[Kernel, list[float]] = {}
    for of in kernels:
        for key, times in of.items():
            if times.alone:
                alone.setdefault(key, []).append(times.alone)
    usual = {key: float(np.median(times)) for key, times in alone.items()}
    found = list[float]()
    for at, (rank, of) in enumerate(zip(ranks, kernels, strict=True)):
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
