"""Ranks that hold the others up, each with a reason that the profiler does not make; and work that differs by another
rank in each step: sequences of unequal length, or batches.

Recording slows hosts down, each by another factor, so the rank that comes last in a recording is mostly the profiler's.
A rank is named only where the job without the profiler would gain, and where it exceeds its peers in something that
recording does not stretch: silence of its host, idling with work queued, slower kernels, more work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tracemine.ranks.cause import JobCause
from tracemine.ranks.record import Interval
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import HostDevice, JobUnprofiled, Parts, more_operators
from tracemine.rows.table import FloatArray
from tracemine.units import percent_text, time_text

LEAST_SHARE, LEAST_NS = 0.03, 300_000  # of the job's step, and a step
_BARRIER_SHARE = 0.05  # of the step
_OF_STEPS = 0.5
_OF_EXCESS = 0.6
GARBAGE = "straggler_host_garbage"
_OF_HOST = ("straggler_host", "straggler_input", GARBAGE)
_PARTS_OF = {**dict.fromkeys(_OF_HOST, ("silent",)), "rank_dependent": ("busy",)}
_BY_STEP = ("silent", "queued_idle", "busy")
_NAMED = 2  # operators
_HOST_MAY = "Where hosts are the limit without recording, nothing is saved."
_CHIPS_DIFFER = 0.1  # of its computing: two H200 that nothing was done to were 9 % apart
_MOST_REPLAYED = 20  # ranks with a reason, those that exceed their peers by most
_LESS, _MORE = 0.75, 1.25  # as far as replayed savings of jobs with something planted were off
_OF_WORK = ("straggler_work", "straggler_gpu")
_LEAST_STEPS, _FAR = 3, 0.1  # of fewer steps, in each of which another rank is by so much of its peers' mean longer
_EQUAL_LESS, _EQUAL_MORE = 0.5, 1.25  # equal steps gain less: who waits computes next to a collective, and slower


class _Reason(Struct, frozen=True):
    rule: str
    excess_ns: int  # a step
    fact: str


def late_ranks(case: JobUnprofiled) -> list[JobCause]:
    """Return who holds the job up, what the others may wait in, and lengths that differ."""
    late, uneven = _stragglers(case), length_imbalance(case)
    if uneven is not None:  # of many ranks some have more in most steps by chance
        late = [one for one in late if one.rule not in _OF_WORK or one.weight > uneven.weight] + [uneven]
    return late + [_barrier(case, one) for one in late[:1] if one.waited_for_ns]


def _stragglers(case: JobUnprofiled) -> list[JobCause]:
    """Return the ranks that hold the job up, those that cost most first."""
    least = int(max(LEAST_SHARE * case.step_ns, LEAST_NS))
    asked = [one for role in sorted(set(case.role)) for one in _asked(case, role, least)]
    asked = sorted(asked, key=lambda one: -one[1].excess_ns)[:_MOST_REPLAYED]
    late_by: Counter[int] = Counter()
    for at, reason in asked:
        late_by[at] += reason.excess_ns
    changed = [_changed(reason.rule, case, at, case.peers(at)) for at, reason in asked]
    found = []
    gains, if_waited_for = saved(case, changed), saved(case, changed, [at for at, _ in asked])
    for (at, reason), plain, elastic in zip(asked, gains, if_waited_for, strict=True):
        rank, high = case.ranks[at], max(plain.high, elastic.high)
        left = max(late_by[at] - reason.excess_ns, *(ns for other, ns in late_by.items() if other != at), 0)
        saving = _interval(plain, high, reason, max(late_by[at] - left, 0))
        if min(high, saving.high) >= least:
            facts = (reason.fact, *_around(rank, reason.rule), *((_HOST_MAY,) if plain.low <= 0 else ()))
            waited_for = high - plain.high if high - plain.high > _BARRIER_SHARE * case.step_ns else 0
            found.append(
                JobCause(rule=reason.rule, ranks=(rank.rank,), saving=saving, facts=facts, waited_for_ns=waited_for)
            )
    return sorted(found, key=lambda one: -one.weight)


def _barrier(case: JobUnprofiled, late: JobCause) -> JobCause:
    """Return that others seem to wait for a late rank where nothing that they wait in is recorded."""
    others = tuple(rank.rank for rank in case.ranks if rank.rank not in late.ranks)
    fact = (
        f"They idle with nothing recorded; if that is waiting for rank {late.ranks[0]}, "
        f"{time_text(late.waited_for_ns)} of what it saves a step are theirs, else that much less is saved."
    )
    return JobCause(rule="unrecorded_barrier", ranks=others, saving=None, facts=(fact,))


def length_imbalance(case: JobUnprofiled) -> JobCause | None:
    """Return ranks of one role of which another computes longest in each step, and what equal steps would gain.

    What a device computes is not stretched by recording. One rank that is mostly the slowest is a straggler instead.
    """
    ranks, (role, count) = case.ranks, Counter(case.role).most_common(1)[0]
    members = [at for at, of in enumerate(case.role) if of == role]
    steps = {ranks[at].steps for at in members}
    if count < 2 or len(steps) != 1 or min(steps) < 2:
        return None
    busy = np.array([ranks[at].by_step.busy for at in members], np.float64)
    mean, most = busy.mean(axis=0), busy.max(axis=0)
    most_often = Counter(busy.argmax(axis=0).tolist()).most_common(1)[0][1]
    above = int(np.median(most - mean))
    least = max(LEAST_SHARE * case.step_ns, LEAST_NS)
    if 2 * most_often > busy.shape[1] or above < least:
        return None
    if busy.shape[1] < _LEAST_STEPS and bool((most < (1 + _FAR) * mean).any()):
        return None
    equal: FloatArray = np.mean([case.busy[at] for at in members], axis=0)  # the device may lag a step behind its host
    (gain,) = saved(case, [{"busy": dict.fromkeys(members, equal)}])
    if gain.mid < least:
        return None
    spread = percent_text(float(np.median(busy.std(axis=0) / np.maximum(mean, 1))), 1)
    saving = Interval(
        int(gain.low * _EQUAL_LESS),
        int(gain.mid * (_EQUAL_LESS + _EQUAL_MORE) / 2),
        min(int(gain.high * _EQUAL_MORE), case.step_ns),
    )
    fact = (
        f"In each step another rank computes longest, {time_text(above)} more than their mean; within a step the ranks "
        f"differ by {spread}."
    )
    return JobCause(
        rule="length_imbalance", ranks=tuple(ranks[at].rank for at in members), saving=saving, facts=(fact,)
    )


def _asked(case: JobUnprofiled, role: int, least: int) -> Iterator[tuple[int, _Reason]]:
    """Yield by what ranks of one role exceed the others."""
    same = [at for at, other in enumerate(case.role) if other == role]
    alike = _Alike(case, same)
    for place, at in enumerate(same if len(same) > 1 else ()):
        yield from ((at, reason) for reason in _reasons(alike, place, least) if reason.excess_ns >= least)


def saved(case: JobUnprofiled, changed: Sequence[Parts], stiff: Sequence[int] | None = None) -> list[Interval]:
    """Return what the job's step gains where parts of ranks are as given, for each.

    stiff: for each the rank whose idle time is its own; that of all others, which nothing recorded explains, may be
    waiting for it, and little of it stays. None: all ranks' idle time is their own.
    """

    def scenarios(slower: float) -> list[list[HostDevice]]:
        elastic = stiff is not None
        usual = [case.of_rank(at, is_elastic=elastic, slower=slower) for at in range(len(case.busy))]
        before, after = ([list(usual) for _ in changed] for _ in range(2))
        for number, parts in enumerate(changed):
            if stiff is not None:
                at = stiff[number]
                before[number][at] = after[number][at] = case.of_rank(at, slower=slower)
            for at in {at for of in parts.values() for at in of}:
                is_other = stiff is not None and stiff[number] != at
                after[number][at] = case.of_rank(at, is_elastic=is_other, slower=slower, **parts)
        return before + after

    return case.gains_of(scenarios) if changed else []


def _interval(plain: Interval, high: int, reason: _Reason, alone_ns: int) -> Interval:
    """Return a saving with what is not known of it. high: the most that it may be. alone_ns: what a step gains that
    begins on all ranks at once.

    Where steps end with a synchronisation nothing is queued ahead, and a late host costs all that it is late by more
    than the others; where they follow each other the device works through a part of it: a planted silence of 8 ms cost
    5.1 and 8.4 ms.

    >>> _interval(Interval(4, 5, 6), 6, _Reason("straggler_host", 9, ""), 9)
    Interval(low=4, mid=7, high=9)
    """
    if reason.rule in _OF_HOST:
        most = max(alone_ns, plain.mid)
        return Interval(plain.low, (plain.mid + most) // 2, most)
    return Interval(*(min(ns, reason.excess_ns) for ns in (int(plain.low * _LESS), plain.mid, int(high * _MORE))))


class _Alike:
    """Ranks of one role, side by side."""

    def __init__(self, case: JobUnprofiled, same: Sequence[int]) -> None:
        self.ranks = ranks = [case.ranks[at] for at in same]
        self.extra_ns = [int(case.extra[at].sum() / case.ranks[at].steps) for at in same]
        self.kernels = [rank.kernels.by_kernel() for rank in ranks]
        steps = min(rank.steps for rank in ranks)
        self.by_step = {name: np.stack([getattr(rank.by_step, name)[:steps] for rank in ranks]) for name in _BY_STEP}
        self.by_step["silent_over"] = np.stack([rank.silent_over_ns[:steps] for rank in ranks])
        self.by_step["busy"] = self.by_step["busy"] * (1 - np.array([case.contended[at] for at in same]))[:, None]

    def excess(self, at: int, name: str) -> int:
        """Return by how much a rank exceeds its peers' median in the median step; 0 unless it does in most of them.

        Of two steps the smaller counts: what happens once may be the recording's.
        """
        values = self.by_step[name]
        excess = np.sort(values[at] - np.median(np.delete(values, at, axis=0), axis=0))
        return int(excess[(len(excess) - 1) // 2]) if (excess > 0).mean() > _OF_STEPS or excess[0] > 0 else 0

    def slower_and_other_ns(self, at: int) -> tuple[int, int]:
        """Return how much longer a step a rank's kernels take than its peers' of equal name, blocks, shapes and count,
        while no collective runs; and how long those that most peers do not run as often.
        """
        others = [kernels for place, kernels in enumerate(self.kernels) if place != at]
        slower, other = 0.0, 0
        for key, own in self.kernels[at].items():
            equal = [of[key].alone for of in others if key in of and of[key].count == own.count]
            other += own.time_ns if 2 * len(equal) <= len(others) else 0
            alone = [ns for ns in equal if ns]
            if own.alone and 2 * len(alone) > len(others):
                slower += (own.alone - float(np.median(alone))) * own.count
        return int(slower / self.ranks[at].steps), other // self.ranks[at].steps


def _reasons(alike: _Alike, at: int, least: int) -> list[_Reason]:
    """Return by what a rank exceeds its peers. least: what is below is not asked for."""
    rank, peers = alike.ranks[at], [peer for place, peer in enumerate(alike.ranks) if place != at]
    silent, queued, busy = (alike.excess(at, name) for name in _BY_STEP)
    computes = busy + max(queued, 0) >= least
    slower, other = alike.slower_and_other_ns(at) if computes else (0, busy)
    # What never runs alone is slower as well.
    slower = busy if other < (1 - _OF_EXCESS) * busy else max(min(slower, busy), 0)
    reasons = []
    if min(silent, alike.excess(at, "silent_over")) >= max(least, 1):  # equal silences may lie about what counts as one
        reasons.append(_silent(rank, peers, silent))
    if queued > 0 or slower > _CHIPS_DIFFER * rank.by_step.busy.mean():
        says = _slow_text(slower, max(queued, 0))
        reasons.append(_Reason("straggler_gpu", max(queued, 0) + slower, says))
    more = more_operators(rank, peers)
    if more:
        excess = max(busy - slower, 0) + alike.extra_ns[at]
        reasons.append(_Reason("rank_dependent", excess, _more_text(rank, peers, more)))
    elif busy - slower >= max(least, 1):
        uneven = _receives_more(rank, peers)
        rule = "expert_imbalance" if uneven else "straggler_work"
        mean = int(np.mean(alike.by_step["busy"]))
        says = f"It computes {time_text(int(rank.by_step.busy.mean()))} a step, the ranks' mean is {time_text(mean)}"
        reasons.append(_Reason(rule, busy - slower, f"{says}{uneven or ''}."))
    return reasons


def _receives_more(rank: RankSummary, peers: list[RankSummary]) -> str | None:
    """Return what a rank receives in all-to-alls against its peers, where that is more; None where it is not."""
    got, usual = _received(rank), float(np.median([_received(each) for each in peers]))
    text = f"; all-to-alls bring it {got / max(usual, 1):.1f} × the elements of its peers"
    return text if got > max(1.1 * usual, 0) else None


def _received(rank: RankSummary) -> int:
    sent = rank.collectives
    exchanged = np.array([kind == "all_to_all" for kind in sent.kind], np.bool_) & (rank.step >= 0)
    more = exchanged & (sent.elements_out > sent.elements_in)
    return int(sent.elements_out[more].sum()) or int(sent.elements_out[exchanged].sum())


def _changed(rule: str, case: JobUnprofiled, at: int, peers: list[int]) -> Parts:
    """Return a rank's parts as its peers' median has them; where work only moves, with its excess spread over all."""
    if rule in ("expert_imbalance", "straggler_work"):
        same = [at, *peers]
        excess: FloatArray = case.busy[at] - np.median([case.busy[peer] for peer in peers], axis=0)
        moves = {peer: case.busy[peer] + excess / len(same) for peer in same}
        return {"busy": moves | {at: moves[at] - excess}}
    parts_of: Parts = {"extra": {at: np.zeros(1)}} if rule == "rank_dependent" else {}
    for name in _PARTS_OF.get(rule, ("busy", "queued")):
        parts: tuple[FloatArray, ...] = getattr(case, name)
        usual: FloatArray = np.median([parts[peer] for peer in peers], axis=0)
        parts_of[name] = {at: np.minimum(parts[at], usual)}
    return parts_of


def _silent(rank: RankSummary, peers: Sequence[RankSummary], silent: int) -> _Reason:
    """Return that a rank's host records nothing for longer than its peers', and in what."""
    loads, collects = (
        getattr(rank, name) - int(np.median([getattr(peer, name) for peer in peers]))
        for name in ("loading_ns", "collecting_ns")
    )
    parts = {"straggler_input": loads, GARBAGE: collects}
    rule = next((name for name, ns in parts.items() if ns >= _OF_EXCESS * silent), "straggler_host")
    return _Reason(rule, silent, f"Its host records nothing for {time_text(silent)} a step more than its peers'.")


def _more_text(rank: RankSummary, peers: Sequence[RankSummary], more: int) -> str:
    """Return how many operators a rank runs more than its peers, and some that it alone runs."""
    usual = {name: float(np.median([peer.operators.get(name, 0) for peer in peers])) for name in rank.operators}
    most = sorted(rank.operators, key=lambda name: (usual[name] > 0, usual[name] - rank.operators[name]))[:_NAMED]
    return f"It runs {more} operators a step more than its peers, such as {', '.join(most)}."


def _around(rank: RankSummary, rule: str) -> tuple[str, ...]:
    silence = rank.silence
    if rule == GARBAGE:
        return (f"Python collects garbage for {time_text(rank.collecting_ns)} a step meanwhile.",)
    if rule != "straggler_host" or silence is None:
        return ()
    places = (("after", silence.after), ("before", silence.before))
    where = "".join(f", {word} {name}" for word, name in places if name)
    return (f"The longest lasts {time_text(silence.dur_ns)}{where}.",)


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
