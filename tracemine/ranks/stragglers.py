"""Ranks that hold the others up, each with a reason that the profiler does not make.

Recording slows hosts down, each by another factor, so the rank that comes last in a recording is mostly the profiler's.
A rank is named only where the job without the profiler would gain, and where it exceeds its peers in something that
recording does not stretch: silence of its host, idling with work queued, slower kernels, more work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.ranks.record import Interval
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled
from tracemine.rows.table import FloatArray
from tracemine.units import time_text

LEAST_SHARE, LEAST_NS = 0.03, 300_000  # of the job's step, and a step
_BARRIER_SHARE = 0.05  # of the step
_OF_STEPS = 0.5
_OF_EXCESS = 0.6
_OF_HOST = ("straggler_host", "straggler_input")
_LESS, _MORE = 0.75, 1.25  # as far as replayed savings of jobs with something planted were off


class Straggler(Struct, frozen=True, kw_only=True):
    """A rank that others wait for, by which rule, and what the job's step gains where it is as its peers are."""

    rule: str
    ranks: tuple[int, ...]
    saving: Interval
    facts: tuple[str, ...]
    waited_for_ns: int = 0  # a step, by which others would idle less, if they idle for want of this one


class _Reason(Struct, frozen=True):
    rule: str
    excess_ns: int  # a step
    fact: str


def stragglers(ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step_ns: int) -> list[Straggler]:
    """Return the ranks that hold the job up, those that cost most first."""
    least = max(LEAST_SHARE * step_ns, LEAST_NS)
    named = []
    for at, rank in enumerate(ranks):
        peers = without.peers(at)
        if not peers:
            continue
        for reason in _reasons(ranks, at, peers):
            if reason.excess_ns < least:
                continue
            changed = _changed(reason.rule, without, at, peers)
            low, plain = saved(job, without, changed, ranks[0].steps)
            high = max(plain, saved(job, without, changed, ranks[0].steps, stiff=at)[1])
            if (low + high) // 2 < least:
                continue
            saving = _interval(low, high, reason)
            if saving.mid >= least:
                named.append(
                    Straggler(
                        rule=reason.rule,
                        ranks=(rank.rank,),
                        saving=saving,
                        facts=(reason.fact, *_around(rank, reason.rule)),
                        waited_for_ns=high - plain if high - plain > _BARRIER_SHARE * step_ns else 0,
                    )
                )
    return sorted(named, key=lambda one: -one.saving.mid)


def saved(
    job: JobReplay,
    without: JobUnprofiled,
    changed: dict[str, dict[int, FloatArray]],
    steps: int,
    stiff: int | None = None,
) -> tuple[int, int]:
    """Return what the job's step gains where parts of ranks are as given: launches far ahead, and none ahead.

    stiff: as of `of_least_host`.
    """
    gains = []
    for queue in (True, False):
        both = [
            np.stack(pair)
            for pair in zip(
                without.of_least_host(queue=queue, stiff=stiff),
                without.of_least_host(queue=queue, stiff=stiff, **changed),
                strict=True,
            )
        ]
        ends = job.ends(both, together=True).max(axis=1) / steps
        gains.append(max(int(ends[0] - ends[1]), 0))
    return min(gains), max(gains)


def _interval(low: int, high: int, reason: _Reason) -> Interval:
    """Return a saving with what is not known of it.

    Where steps end with a synchronisation nothing is queued ahead, and a late host costs all that it is late by; where
    they follow each other the device works through a part of it: a planted silence of 8 ms cost 5.1 and 8.4 ms.
    """
    if reason.rule in _OF_HOST:
        return Interval(low, (low + reason.excess_ns) // 2, reason.excess_ns)
    return Interval(*(min(ns, reason.excess_ns) for ns in (int(low * _LESS), (low + high) // 2, int(high * _MORE))))


def _reasons(ranks: Sequence[RankSummary], at: int, peers: list[int]) -> list[_Reason]:
    rank = ranks[at]
    silent = _excess(ranks, at, peers, "silent")
    queued = _excess(ranks, at, peers, "queued_idle")
    busy = _excess(ranks, at, peers, "busy")
    slower = max(min(_slower_ns(ranks, at, peers), busy), 0)
    reasons = []
    if silent > 0:
        loads = rank.loading_ns - int(np.median([ranks[peer].loading_ns for peer in peers]))
        rule = "straggler_input" if loads >= _OF_EXCESS * silent else "straggler_host"
        reasons.append(
            _Reason(rule, silent, f"Its host records nothing for {time_text(silent)} a step more than its peers'.")
        )
    if queued + slower > 0:
        says = _slow_text(slower, max(queued, 0))
        reasons.append(_Reason("straggler_gpu", max(queued, 0) + slower, says))
    if busy - slower > 0:
        uneven = _receives_more(ranks, at, peers)
        rule = "expert_imbalance" if uneven else "straggler_work"
        mean = int(np.mean([summary.by_step.busy.mean() for summary in ranks]))
        says = f"It computes {time_text(int(rank.by_step.busy.mean()))} a step, the ranks' mean is {time_text(mean)}"
        reasons.append(_Reason(rule, busy - slower, f"{says}{uneven or ''}."))
    return reasons


def _excess(ranks: Sequence[RankSummary], at: int, peers: list[int], name: str) -> int:
    """Return by how much a rank exceeds its peers' median in the median step; 0 where it does not in most of them."""
    own = getattr(ranks[at].by_step, name)
    steps = min(len(own), *(len(getattr(ranks[peer].by_step, name)) for peer in peers))
    others = np.median([getattr(ranks[peer].by_step, name)[:steps] for peer in peers], axis=0)
    excess = own[:steps] - others
    return int(np.median(excess)) if (excess > 0).mean() > _OF_STEPS or (steps == 1 and excess[0] > 0) else 0


def _slower_ns(ranks: Sequence[RankSummary], at: int, peers: list[int]) -> int:
    """Return by how much a step's kernels of equal name, blocks and count take longer than on the peers."""
    own, others = ranks[at].kernels, [_by_kernel(ranks[peer]) for peer in peers]
    total = 0.0
    for name, blocks, count, time in zip(
        own.name, own.blocks.tolist(), own.count.tolist(), own.time_ns.tolist(), strict=True
    ):
        alike = [kernels_of[name, blocks] for kernels_of in others if (name, blocks) in kernels_of]
        same = [time_ns for of_peer, time_ns in alike if of_peer == count]
        if 2 * len(same) > len(peers):
            total += time - float(np.median(same))
    return int(total / ranks[at].steps)


def _by_kernel(rank: RankSummary) -> dict[tuple[str, int], tuple[int, int]]:
    kernels = rank.kernels
    keys = zip(kernels.name, kernels.blocks.tolist(), strict=True)
    return dict(zip(keys, zip(kernels.count.tolist(), kernels.time_ns.tolist(), strict=True), strict=True))


def _receives_more(ranks: Sequence[RankSummary], at: int, peers: list[int]) -> str | None:
    """Return what a rank receives in all-to-alls against its peers, where that is more; None where it is not."""
    got = [_received(ranks[peer]) for peer in (at, *peers)]
    if got[0] <= 0 or got[0] <= 1.1 * float(np.median(got[1:])):
        return None
    return f"; all-to-alls bring it {got[0] / max(float(np.median(got[1:])), 1):.1f} × the elements of its peers"


def _received(rank: RankSummary) -> int:
    exchanged = np.array([kind == "all_to_all" for kind in rank.collectives.kind], np.bool_) & (rank.step >= 0)
    more = rank.collectives.elements_out > rank.collectives.elements_in
    return int(rank.collectives.elements_out[exchanged & more].sum()) or int(
        rank.collectives.elements_out[exchanged].sum()
    )


def _changed(rule: str, without: JobUnprofiled, at: int, peers: list[int]) -> dict[str, dict[int, FloatArray]]:
    """Return a rank's parts as its peers' median has them; where work only moves, those of all ranks as their mean."""
    if rule in ("expert_imbalance", "straggler_work"):
        same = [at, *peers]
        mean: FloatArray = np.mean([without.busy[peer] for peer in same], axis=0)
        return {"busy": dict.fromkeys(same, mean)}
    names = ("silent", "silent_idle") if rule in _OF_HOST else ("busy", "queued")
    parts_of = {}
    for name in names:
        parts: tuple[FloatArray, ...] = getattr(without, name)
        usual: FloatArray = np.median([parts[peer] for peer in peers], axis=0)
        parts_of[name] = {at: np.minimum(parts[at], usual)}
    return parts_of


def _around(rank: RankSummary, rule: str) -> tuple[str, ...]:
    silence = rank.silence
    if rule != "straggler_host" or silence is None:
        return ()
    after = f"after {silence.after}" if silence.after else "before anything else"
    before = f", before {silence.before}" if silence.before else ""
    return (f"The longest lasts {time_text(silence.dur_ns)}, {after}{before}.",)


def _slow_text(slower_ns: int, queued_ns: int) -> str:
    """Return by what a slow GPU shows.

    >>> _slow_text(2_000_000, 0)
    'Equal kernels take 2.00 ms a step longer than on its peers.'
    """
    parts = []
    if slower_ns:
        parts.append(f"equal kernels take {time_text(slower_ns)} a step longer than on its peers")
    if queued_ns:
        parts.append(f"it idles for {time_text(queued_ns)} a step more with work queued")
    text = ", and ".join(parts) + "."
    return text[:1].upper() + text[1:]
