"""Records of iterations, and what their inference shares: when work was asked for, and how similar two pieces are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.table import BoolArray, Categories, IntArray
from tracemine.timeline import Timeline

# Where iterations come from, the strongest evidence first.
MARKED, ANNOTATION, NVTX, REPLAYS, REPEATS = "marked", "annotation", "nvtx", "graph launches", "repeating kernels"

_ALIKE = 0.8  # share of the kernels of two pieces that they have in common: two runs of one loop's body
_MOST_PIECES = 20_000
_FLOATS = 1 << 24  # of counts that are held at once

Floats = npt.NDArray[np.float64]


class Iterations(Struct, frozen=True, kw_only=True):
    """The iterations of a trace, in order of time. Nanoseconds on the trace's clock."""

    source: str  # one of the five above
    evidence: str  # what tells them apart, in words
    confidence: float  # 0 to 1: the share of GPU time that lies in them × how similar they are; 1 where they are marked
    begin_ns: IntArray  # on the host, where launches are recorded
    end_ns: IntArray
    of_activity: IntArray  # each activity's iteration; −1 outside all
    labels: tuple[str | None, ...] = ()  # what a mark's name says of each: how many requests it serves
    host_begin_ns: IntArray | None = None  # where the host began, if that is not where the device was seen on

    def __len__(self) -> int:
        return len(self.begin_ns)


class LaunchedWork(Struct, frozen=True, kw_only=True):
    """Activities as iterations are looked for among them."""

    moment_ns: IntArray  # when the host asked for it; the device's start where no launches are recorded, else −1
    dur_ns: IntArray
    end_ns: IntArray  # on the device
    name: Categories

    @property
    def known(self) -> BoolArray:
        """Return whether it is known when it was asked for."""
        return self.moment_ns >= 0


def work_of(timeline: Timeline) -> LaunchedWork:
    """Return when each activity was asked for."""
    activities = timeline.activities
    launch = rows_of(activities["launch_row"])
    start = numbers(activities["start_ns"]).values.astype(np.int64)
    moment = start
    if (launch >= 0).any():
        begun = numbers(timeline.api["start_ns"]).values.astype(np.int64)
        moment = np.where(launch >= 0, begun[launch], -1)
    durations = numbers(activities["dur_ns"]).values.astype(np.int64)
    return LaunchedWork(
        moment_ns=moment, dur_ns=durations, end_ns=start + durations, name=categories(activities["name"])
    )


def cut(work: LaunchedWork, cuts_ns: IntArray) -> IntArray:
    """Return the piece of each activity: 0 before the first cut, and one more after each; −1 where it is not known."""
    return np.where(work.known, np.searchsorted(cuts_ns, work.moment_ns, side="right"), -1)


def likeness(work: LaunchedWork, piece: IntArray, count: int) -> Floats:
    """Return the largest share of kernels by name that each piece has in common with a neighbour or the usual piece.

    What two have in common ÷ what the larger one has. 0 of an empty piece; of a single one nothing can be said: 0.
    """
    counts = counted(work, piece, count)
    best = np.zeros(count)
    if count < 2:
        return best
    rounds = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    usual = int(rounds[2].argmax())
    of = rounds[1].reshape(-1)
    for far in (1, 2):
        if count > far:
            share = _common(counts[far:], counts[:-far])
            best[far:] = np.maximum(best[far:], share)
            best[:-far] = np.maximum(best[:-far], share)
    if rounds[2][usual] > 1:
        share = _common(counts, rounds[0][usual][None, :])
        best = np.maximum(best, share)
        best[of == usual] = 1.0
    return best


def counted(work: LaunchedWork, piece: IntArray, count: int) -> npt.NDArray[np.int32]:
    """Return how often each kernel occurs in each piece: pieces × names. Too many names are folded into one another."""
    names = len(work.name.values) + 1
    width = max(1, min(names, _FLOATS // max(count, 1)))
    rows = np.flatnonzero(piece >= 0)
    code = piece[rows] * width + (work.name.codes[rows] + 1) % width
    return np.bincount(code, minlength=count * width).reshape(count, width).astype(np.int32)


def _common(left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]) -> Floats:
    larger = np.maximum(left.sum(axis=1), right.sum(axis=1))
    return np.where(larger > 0, np.minimum(left, right).sum(axis=1) / np.maximum(larger, 1), 0.0)


def _is_loop(alike: Floats) -> bool:
    """Return whether two pieces or more are mostly like others."""
    return len(alike) > 1 and bool(np.median(alike) >= _ALIKE)


def inferred(
    work: LaunchedWork,
    cuts_ns: IntArray,
    *,
    source: str,
    evidence: str,
    has_head: bool = True,
    has_tail: bool = True,
    named: bool = False,
    labels: Sequence[str | None] = (),
    least_covered: float = 0.5,
) -> Iterations | None:
    """Return the pieces between cuts as iterations; None where they differ or leave out too much GPU time.

    What comes before the first cut and after the last one may be part of an iteration only: it counts as one where it
    is like the others. `has_head`, `has_tail`: before the first cut, and after the last, there may be one. `named`:
    what comes after each cut is one by its name, the last one too, however different they are, and one alone.
    `labels`: of what comes after each cut.
    """
    count = len(cuts_ns) + 1
    if count > _MOST_PIECES or count < 2:
        return None
    piece = cut(work, cuts_ns)
    alike = likeness(work, piece, count)
    kept = np.bincount(piece[piece >= 0], minlength=count) > 0
    kept[0] &= has_head and bool(alike[0] >= _ALIKE)
    kept[-1] &= named or (has_tail and bool(alike[-1] >= _ALIKE))
    if not kept.any() or not (named or _is_loop(alike[kept])):
        return None
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    of_activity = np.where(piece >= 0, number[piece], -1)
    covered = int(work.dur_ns[of_activity >= 0].sum()) / max(int(work.dur_ns[work.known].sum()), 1)
    if covered < least_covered:
        return None
    sure = 1.0 if kept.sum() < 2 else float(np.median(alike[kept]))
    first, last = int(work.moment_ns[work.known].min()), int(work.end_ns[work.known].max())
    bounds = np.concatenate(([min(first, int(cuts_ns[0]))], cuts_ns, [max(last, int(cuts_ns[-1]))]))
    pieces = np.flatnonzero(kept)
    return Iterations(
        source=source,
        evidence=evidence,
        confidence=round(covered * sure, 2),
        begin_ns=bounds[pieces],
        end_ns=bounds[pieces + 1],
        of_activity=of_activity,
        labels=tuple((None, *labels)[each] for each in pieces.tolist()) if any(labels) else (),
    )
