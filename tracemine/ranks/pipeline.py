"""Stages of a pipeline: how long they wait for each other, against what their schedule makes them wait at best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.ops.collectives import PAIRED
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled
from tracemine.units import percent_text, time_text

_LEAST_SHARE = 0.1  # of the step that stages wait
_HOST_BOUND = 0.5  # of its own time a stage's device computes


class Bubble(Struct, frozen=True):
    """A pipeline that waits: its ranks, which share of the step, and what is known of it."""

    ranks: tuple[int, ...]
    wait_ns: int
    facts: tuple[str, ...]


def pipeline_bubble(
    ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step_ns: int
) -> Bubble | None:
    """Return the bubble of a pipeline, None where no ranks send to each other in a chain or none waits for long."""
    stages = [at for at, rank in enumerate(ranks) if any(kind in PAIRED for kind in rank.collectives.kind)]
    if len(stages) < 2 or not _is_chain([ranks[at] for at in stages]):
        return None
    own = without.of_own_host(queue=True)
    ends = job.ends([stretch[None, :] for stretch in own], together=True)[0]
    whole = float(ends.max())
    waits = [whole - float(own[at].sum()) for at in stages]
    share = float(np.mean(waits)) / max(whole, 1.0)
    if share < _LEAST_SHARE:
        return None
    busy = [float(ranks[at].stretches.busy.sum()) / ranks[at].steps for at in stages]
    facts = [_wait_text(len(stages), share, _microbatches(ranks, stages))]
    device = float(np.mean(busy))
    if device < _HOST_BOUND * step_ns * (1 - share):
        facts.append(
            f"The stages are host-bound: a device computes {time_text(int(device))} a step, so that more microbatches "
            "would cost their hosts more than the bubble."
        )
    return Bubble(tuple(ranks[at].rank for at in stages), int(np.mean(waits) / ranks[0].steps), tuple(facts))


def _wait_text(stages: int, share: float, microbatches: int) -> str:
    """Return how much a pipeline waits, and how much its schedule makes it wait at best.

    >>> _wait_text(4, 0.56, 4)
    '4 stages wait for 56.0% of the step without the profiler; with 4 microbatches the schedule itself costs 42.9%.'
    """
    text = f"{stages} stages wait for {percent_text(share, 1)} of the step without the profiler"
    if not microbatches:
        return f"{text}."
    ideal = percent_text((stages - 1) / (microbatches + stages - 1), 1)
    return f"{text}; with {microbatches} microbatches the schedule itself costs {ideal}."


def _is_chain(ranks: Sequence[RankSummary]) -> bool:
    """Return whether ranks send to neighbours alone, and two ranks have one: no ring, and no exchange of all."""
    peers = {
        rank.rank: {part.peer for parts in rank.collectives.parts for part in parts if part.peer is not None}
        for rank in ranks
    }
    ends = [rank for rank, others in peers.items() if len(others) == 1]
    return len(ends) >= 2 and all(1 <= len(others) <= 2 for others in peers.values())


def _microbatches(ranks: Sequence[RankSummary], stages: Sequence[int]) -> int:
    """Return how many times a step the first stage sends."""
    first = ranks[stages[0]]
    sends = sum(
        part.kind == "send" for i, parts in enumerate(first.collectives.parts) if first.step[i] >= 0 for part in parts
    )
    return round(sends / first.steps)
