"""Work that differs between ranks, by another rank in each step: sequences of unequal length, or batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tracemine.ranks.record import Interval
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.stragglers import LEAST_NS, LEAST_SHARE, Straggler, saved
from tracemine.ranks.summary import RankSummary
from tracemine.ranks.unprofiled import JobUnprofiled
from tracemine.rows.table import FloatArray
from tracemine.units import percent_text, time_text

_LEAST_STEPS, _FAR = 3, 0.1  # of fewer steps, in each of which another rank is by so much of its peers' mean longer
_LESS, _MORE = 0.5, 1.25  # equal steps gain less: who waits computes next to a collective, and slower


def length_imbalance(
    ranks: Sequence[RankSummary], job: JobReplay, without: JobUnprofiled, step_ns: int
) -> Straggler | None:
    """Return ranks of one role of which another computes longest in each step, and what equal steps would gain.

    What a device computes is not stretched by recording. One rank that is mostly the slowest is a straggler instead.
    """
    role, count = Counter(without.role).most_common(1)[0]
    members = [at for at, of in enumerate(without.role) if of == role]
    steps = {ranks[at].steps for at in members}
    if count < 2 or len(steps) != 1 or min(steps) < 2:
        return None
    busy = np.array([ranks[at].by_step.busy for at in members], np.float64)
    mean = busy.mean(axis=0)
    most_often = Counter(busy.argmax(axis=0).tolist()).most_common(1)[0][1]
    above = int(np.median(busy.max(axis=0) - mean))
    least = max(LEAST_SHARE * step_ns, LEAST_NS)
    if 2 * most_often > busy.shape[1] or above < least:
        return None
    if busy.shape[1] < _LEAST_STEPS and bool((busy.max(axis=0) < (1 + _FAR) * mean).any()):
        return None
    equal: FloatArray = np.mean(
        [without.busy[at] for at in members], axis=0
    )  # the device may lag a step behind its host
    (gain,) = saved(job, without, [{"busy": dict.fromkeys(members, equal)}])
    if gain.mid < least:
        return None
    spread = percent_text(float(np.median(busy.std(axis=0) / np.maximum(mean, 1))), 1)
    return Straggler(
        rule="length_imbalance",
        ranks=tuple(ranks[at].rank for at in members),
        saving=Interval(
            int(gain.low * _LESS), int(gain.mid * (_LESS + _MORE) / 2), min(int(gain.high * _MORE), step_ns)
        ),
        facts=(
            f"In each step another rank computes longest, {time_text(above)} more than their mean; within a step the "
            f"ranks differ by {spread}.",
        ),
    )
