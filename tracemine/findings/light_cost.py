"""What recording a light window costs the host: so much a call, whatever it does in between. That is assumed.

On an H200's host steps take longer while CUPTI is attached, recording or not. It is called at each call of the runtime,
the many that torch makes about a launch and that are not recorded included: shared out over recorded launches, 1 to
12 µs each for most programs (benchmarks/results/light_h200.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from tracemine.findings.happened import Operators
from tracemine.findings.replay import Replay, ReplayResult
from tracemine.perfmodel.gaps import Slowdown
from tracemine.rows.table import IntArray

_MOST_NS = 15_000  # a launch or wait; of two in 48 programs it was more
# Of the host's time before a call, at least. Chosen on 89 fixes, each timed next to its program: with 0.7 to 1 what is
# said comes nearer to what was saved than with a third or a half, most of all of small launches.
_LEFT = 3 / 4
# Of a host that is eased so, where the device sets the pace and two timings tell no more.
_MOST_LEFT = 1.25
_HALVINGS = 10  # to within 15 ns


def left(slowdown: Slowdown) -> Slowdown:
    """Return what is left of a light window's slowdown once calls are eased, where steps do not tell."""
    return replace(slowdown, least=round(1 / slowdown.spread, 3), usual=1.0, most=_MOST_LEFT)


def uninterrupted(light: Replay, whole: Replay) -> Replay:
    """Return a light window's replay whose host takes no longer between two calls than where all is recorded.

    What it took beyond that, it was away from the program for: so much is no cost of calls, and of no typical step.
    """
    most = np.full(2 * len(light.host.launch), np.iinfo(np.int64).max)
    most[2 * whole.host.call + whole.host.blocks] = whole.host.work_ns
    work = np.minimum(light.host.work_ns, most[2 * light.host.call + light.host.blocks])
    return replace(light, host=replace(light.host, work_ns=work), operators=_shorter(light, work))


def eased(replay: Replay, cost_ns: int) -> Replay:
    """Return a replay whose host takes less before each launch and each wait, by so much or a quarter of its time."""
    host = replay.host
    floor = np.maximum(host.work_ns * _LEFT, host.loading_ns + host.within_ns)
    work = np.minimum(np.maximum(host.work_ns - cost_ns, floor), host.work_ns).astype(np.int64)
    return replace(replay, host=replace(host, work_ns=work), operators=_shorter(replay, work))


def _shorter(replay: Replay, work_ns: IntArray) -> Operators:
    """Return the operators of calls, around which the host takes so much less: in front of each as much, and behind."""
    host, operators = replay.host, replay.operators
    share = np.append(work_ns / np.maximum(host.work_ns, 1), 1.0)
    event = host.launch
    ahead, behind = (np.where(event >= 0, share[each], 1.0) for each in (event, np.minimum(event + 1, len(work_ns))))
    lead, tail = (each * part for each, part in ((operators.lead_ns, ahead), (operators.tail_ns, behind)))
    return replace(operators, lead_ns=lead.astype(np.int64), tail_ns=tail.astype(np.int64))


def host_takes(ran: ReplayResult) -> float:
    """Return for how long the host is at the first step; 0 where that is not known."""
    return 0.0 if ran.host_step is None else float(ran.host_step[0])


def told(slowdown: Slowdown, recorded: Replay, alone: Replay) -> Slowdown:
    """Return a slowdown with how much longer the host took in the light window than alone, as reports say it."""
    times = [float(each.host.work_ns.sum()) for each in (recorded, alone)]
    return replace(slowdown, host=round(slowdown.usual * times[0] / times[1], 2) if times[1] else None)


def fitted(replay: Replay, takes: Callable[[ReplayResult], float], alone_ns: int) -> Replay:
    """Return a replay with its host eased until it takes no longer than alone; at most as far as recording can cost.

    takes: how long what was timed alone takes in a replay.
    """

    def is_longer(cost_ns: int) -> bool:
        return takes(eased(replay, cost_ns).run(np.ones(1))) > alone_ns

    if not is_longer(0):
        return replay
    low, high = 0, _MOST_NS
    if is_longer(high):
        return eased(replay, high)
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        low, high = (middle, high) if is_longer(middle) else (low, middle)
    return eased(replay, high)
