"""Stages of a pipeline: how long they wait for each other, against what their schedule makes them wait at best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tracemine.ops.collectives import PAIRED
from tracemine.ranks.cause import JobCause
from tracemine.ranks.record import Interval
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import HostDevice, JobUnprofiled
from tracemine.rows.table import FloatArray
from tracemine.units import percent_text, time_text

_LEAST_SHARE = 0.1  # of the step that stages wait
_HOST_BOUND = 0.5  # of its own time a stage's device computes
_UNEVEN = 1.1  # the longest stage against their mean
_LESS, _MORE = 0.75, 1.25  # as far as replayed savings were off


def pipeline_bubbles(case: JobUnprofiled) -> list[JobCause]:
    """Return stages of a pipeline with unequal work, and its bubble: none where no ranks send to each other in a chain,
    or none waits for long.
    """
    ranks = case.ranks
    stages = [at for at, rank in enumerate(ranks) if any(kind in PAIRED for kind in rank.collectives.kind)]
    if len(stages) < 2 or not _is_chain([ranks[at] for at in stages]):
        return []
    share = float(np.mean([ranks[at].wait_ns_by_step.sum() / _window(ranks[at]) for at in stages]))
    waits_ns = int(share * case.step_ns)
    busy = np.array([float(ranks[at].stretches.busy.sum()) / ranks[at].steps for at in stages])
    uneven = _uneven(case, stages, busy, waits_ns)
    if share < _LEAST_SHARE:
        return uneven
    facts = [_wait_text(len(stages), share, _microbatches(ranks, stages))]
    device = float(np.mean(busy))
    if device < _HOST_BOUND * case.step_ns * (1 - share):
        facts.append(
            f"The stages are host-bound: a device computes {time_text(int(device))} a step, so that more microbatches "
            "would cost their hosts more than the bubble."
        )
    everyone = tuple(ranks[at].rank for at in stages)
    return [
        *uneven,
        JobCause(rule="pipeline_bubble", ranks=everyone, saving=None, costs_ns=waits_ns, facts=tuple(facts)),
    ]


def _uneven(case: JobUnprofiled, stages: Sequence[int], busy: FloatArray, waits_ns: int) -> list[JobCause]:
    """Return that one stage computes longer than the others, and what the step gains where all do as their mean.

    Layers that move take their host's work with them.
    """
    if float(busy.max()) < _UNEVEN * float(busy.mean()):
        return []
    slowest, scale = int(busy.argmax()), float(busy.mean()) / np.maximum(busy, 1)

    def scenarios(slower: float) -> list[list[HostDevice]]:
        before = case.lines(slower)
        after = list(before)
        for name in ("device", "host"):
            own = [getattr(before[at], name) for at in stages]
            most = float(own[slowest].sum()) * scale[slowest]
            for at, each, of in zip(stages, own, scale, strict=True):
                grown = min(of, max(most / max(float(each.sum()), 1.0), 1.0))  # by no more than the slowest shrinks to
                after[at] = replace(after[at], **{name: each * grown})
        return [before, after]

    (gain,) = case.gains_of(scenarios)
    saving = Interval(int(gain.low * _LESS), gain.mid, int(gain.high * _MORE))
    ranks = tuple(case.ranks[at].rank for at in stages)
    fact = (
        f"Rank {ranks[slowest]}'s device computes {time_text(int(busy.max()))} a step, the stages' mean is "
        f"{time_text(int(busy.mean()))}; the others wait for it in each microbatch."
    )
    return [JobCause(rule="stage_imbalance", ranks=ranks, saving=saving, costs_ns=waits_ns, facts=(fact,))]


def _wait_text(stages: int, share: float, microbatches: int) -> str:
    """Return how much a pipeline waits, and how much its schedule makes it wait at best.

    >>> _wait_text(4, 0.56, 4)
    '4 stages wait for 56.0% of the recorded step; with 4 microbatches the schedule itself costs 42.9%.'
    """
    text = f"{stages} stages wait for {percent_text(share, 1)} of the recorded step"
    if not microbatches:
        return f"{text}."
    ideal = percent_text((stages - 1) / (microbatches + stages - 1), 1)
    return f"{text}; with {microbatches} microbatches the schedule itself costs {ideal}."


def _window(rank: RankSummary) -> int:
    return max(rank.window[1] - rank.window[0], 1)


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
