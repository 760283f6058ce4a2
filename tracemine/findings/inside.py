"""What of idle time and of findings lies in steps, by the nanoseconds that do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np
from msgspec import Struct

from tracemine.findings.record import Finding, activity_rows
from tracemine.perfmodel import REPLAY_FLOOR_NS
from tracemine.rows.iterations import Iterations
from tracemine.rows.spans import Spans
from tracemine.rows.table import IntArray, Rows, number


def extents_of(
    found: Iterations | None, step_of: IntArray, end_ns: IntArray, unseen: Iterations | None = None
) -> Spans | None:
    """Return when steps were under way: from their begin on the host until it has left them and their work is done.

    None where no steps are known.
    Of each activity: step_of: the step that it is part of, −1: none; end_ns. unseen: all steps, the first of which does
    not count as its begin was not seen. As little was seen of how the host leaves the last one, behind its work: there
    it is taken to do what it did when it left that first one.
    """
    if found is None or not len(found):
        return None
    begin, done, inside = found.begin_ns, found.end_ns.copy(), step_of >= 0
    if unseen is not None:
        done[-1] = max(int(end_ns[step_of == len(found) - 1].max(initial=0)), int(begin[-1]))
        left_ns = int(unseen.end_ns[0])
        begin = np.append(begin, min(int(end_ns[unseen.of_activity == 0].max(initial=0)), left_ns))
        done = np.append(done, left_ns)
    np.maximum.at(done, step_of[inside], end_ns[inside])
    return Spans.of(begin, done)


def gaps_inside(gaps: Rows, step_of: IntArray, extents: Spans | None) -> IntArray:
    """Return how much of each gap lies in steps: nothing where neither side of it is part of one; all without steps."""
    begin, dur = number(gaps, "start_ns"), number(gaps, "dur_ns")
    if extents is None:
        return dur
    of_step = (step_of[number(gaps, "previous_row")] >= 0) | (step_of[number(gaps, "next_row")] >= 0)
    return np.where(of_step, extents.within(begin, begin + dur), 0)


class Inside(Struct, frozen=True):
    """Part of a finding that lies in steps: of what was measured of it, and of what it saves (low, mid, high)."""

    measured: Fraction
    saved: tuple[Fraction, Fraction, Fraction]

    @classmethod
    def alike(cls, share: Fraction) -> Inside:
        """Return the same part of all."""
        return cls(share, (share, share, share))


ALL_OF_IT = Inside.alike(Fraction(1))


def inside_steps(
    findings: Iterable[Finding],
    step_of: IntArray,
    dur_ns: IntArray,
    exclusive_ns: IntArray,
    gaps: Rows,
    in_steps_ns: IntArray,
    unfixed_ns: IntArray,
    unprofiled_ns: tuple[IntArray, IntArray, IntArray],
    partly_ns: Mapping[str, IntArray] | None = None,
) -> dict[str, Inside]:
    """Return how much of each finding lies in steps, by fingerprint: the nanoseconds of GPU or idle time that do.

    Of each activity: step_of: the step that it is part of, −1: none; dur_ns; exclusive_ns, its part of the time that
    its device is at work: so side by side no two cost a step more than it has. Of each gap: in_steps_ns, how much of it
    does; unfixed_ns, how long it is unprofiled; unprofiled_ns, how long it is then behind all fixes on the GPU: least,
    usual, most. What is saved lies where an occurrence does, from its first activity on, or the gap that is closed.
    partly_ns: by rule, of findings that cost but part of their activities' time, that part of each activity.
    """
    length = number(gaps, "dur_ns")
    gap_of = np.full(len(dur_ns), -1)
    gap_of[number(gaps, "next_row")] = np.arange(gaps.count)
    least, usual, most = unprofiled_ns
    closed_ns = np.maximum(least - REPLAY_FLOOR_NS, 0), np.maximum(usual - REPLAY_FLOOR_NS, 0), most
    found = {}
    for one in findings:
        rows = activity_rows([one])
        inside = step_of[rows] >= 0
        if partly_ns is not None and one.rule in partly_ns:
            cost_ns = partly_ns[one.rule][rows]
            found[one.fingerprint] = Inside.alike(_share(cost_ns[inside], cost_ns) or Fraction(0))
            continue
        if one.on_gpu:
            measured = _share(exclusive_ns[rows[inside]], dur_ns[rows]) or Fraction(0)
            # with launches that are not made any more the gaps go that they ended, but for the first's
            waited_ns = np.where(gap_of[rows] >= 0, np.append(unfixed_ns, 0)[gap_of[rows]], 0)
            waited_ns[np.cumsum([0, *map(len, one.activities[:-1])])] = 0
            lasted_ns = dur_ns[rows] + waited_ns
            saved = _share(lasted_ns[inside], lasted_ns) or Fraction(0)
            found[one.fingerprint] = Inside(measured, (saved, saved, saved))
            continue
        of = gap_of[rows]
        of = of[of >= 0]
        measured = _share(in_steps_ns[of], length[of]) or Fraction(0)
        part = in_steps_ns[of] / np.maximum(length[of], 1)
        low, mid, high = (_share((each[of] * part).astype(np.int64), each[of]) for each in closed_ns)
        usually = measured if mid is None else mid
        found[one.fingerprint] = Inside(
            measured, (usually if low is None else low, usually, usually if high is None else high)
        )
    return found


def _share(part_ns: IntArray, whole_ns: IntArray) -> Fraction | None:
    """Return a part of a sum; None of nothing."""
    whole = int(whole_ns.sum())
    return Fraction(int(part_ns.sum()), whole) if whole else None
