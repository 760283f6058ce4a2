"""Iterations by a sequence of kernels that repeats through the whole trace.

One forward of equal layers repeats as well, and is no loop. So a sequence counts only where nothing else was run before
or after it, and where it runs the same modules each time, of which each layer has its own. Where no modules are
recorded, it comes three times at least and does each time what a program does once an iteration: it exchanges data with
the host, looks tokens up, computes a loss, samples, or steps an optimizer. Where kernels say their scopes (Proton),
those of the outermost scope with most GPU time are looked at, and a scope that is called a step is a loop's body.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tracemine import columns
from tracemine.columns import sorted_unique
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, mapped, rows_of, take
from tracemine.rows.iterations.record import REPEATS, Iterations, LaunchedWork, inferred
from tracemine.rows.iterations.replays import exchanges
from tracemine.rows.table import Categories, IntArray
from tracemine.timeline import Timeline

_FEWEST, _FEWEST_UNNAMED = 2, 3  # rounds, with modules recorded and without
_LEAST_ALIKE = 0.95  # of the kernels, those that are the same one round later
_LEAST_KNOWN = 0.5  # of the kernels, those whose module must be recorded
_AS_GOOD = 0.01  # a shorter sequence is taken that fits as well but for this
_MOST_KERNELS = 400_000
_STEP = deferred(r"(?i)(^|[ _])(step|iter|iteration|batch)s?$")  # an outermost scope that is one, or holds all
_MOST_LENGTHS = 64  # that are tried
_MOST_NAMES, _MOST_IN_A_ROUND, _MOST_PLACES = 4, 512, 4_096  # by which lengths are looked for
_ONCE = deferred(
    r"(?i)(?<!rotary_)(?<!pos_)embedding|nll_loss|cross_entropy|argmax|multinomial|top_?k_?top_?p|_fused_(adam|sgd)"
    r"|multi_tensor_apply|fusedadam"
)


def from_repeats(timeline: Timeline, work: LaunchedWork) -> Iterations | None:
    """Return iterations by repeating kernels; None where nothing repeats throughout, or layers may be what does."""
    order = _in_order(timeline, work)
    scope, rows, name = _of_a_scope(timeline, work, order)
    order = order[rows]
    length = period(name)
    if length is None or not _is_all(name, length):
        return None
    rounds = len(name) // length
    modules = _same_modules(timeline, order, length) if scope is None else _STEP.search(scope[:512]) is not None or None
    at = 0 if scope is not None else _first_of_a_round(work, order, length)
    if modules is False or (modules is None and not _is_loop(timeline, work, order, length, at)):
        return None
    begins = order[np.arange(at, len(order), length)]
    evidence = f"{length:,} kernels in the same order, {rounds:,} times over"
    return inferred(work, work.moment_ns[begins], source=REPEATS, evidence=evidence, least_covered=0.8)


def _in_order(timeline: Timeline, work: LaunchedWork) -> IntArray:
    """Return the kernels of the busiest device in the order in which they were asked for."""
    device = rows_of(timeline.activities["device"])
    kind = categories(timeline.activities["kind"])
    is_kernel = kind.among("kernel")
    busy = np.bincount(device[is_kernel] + 1, weights=work.dur_ns[is_kernel]) if is_kernel.any() else np.zeros(1)
    rows = np.flatnonzero(is_kernel & (device == busy.argmax() - 1) & work.known)
    return rows[np.argsort(work.moment_ns[rows], kind="stable")]


def _of_a_scope(
    timeline: Timeline, work: LaunchedWork, order: IntArray
) -> tuple[str | None, IntArray, npt.NDArray[np.int64]]:
    """Return the outermost scope with most GPU time, which of these kernels are in it, and a number for each by name
    and scope, where kernels say their scopes and not which pass through them they are part of; elsewhere None, and
    numbers by name of all kernels.
    """
    name, everything = work.name.codes[order].astype(np.int64), np.arange(len(order))
    places = categories(timeline.activities["module"])
    outermost = mapped(places, lambda place: place.partition(".")[0])
    outer = outermost.codes[order]
    if timeline.api.num_rows or not (outer >= 0).any():
        return None, everything, name
    most = int(np.bincount(outer + 1, weights=work.dur_ns[order] * (outer >= 0)).argmax()) - 1
    rows = everything[outer == most]
    return outermost.values[most], rows, columns.codes(name[rows], places.codes[order][rows])


def period(codes: npt.NDArray[np.int64]) -> int | None:
    """Return the length of the sequence that repeats; None where none does.

    >>> period(np.tile([1, 2, 2, 3], 5)), period(np.arange(40)), period(np.array([9, *[1, 2] * 3, 8] * 4))
    (4, None, 8)
    """
    if not 2 * _FEWEST <= len(codes) <= _MOST_KERNELS:
        return None
    tried = sorted(set(_distances(codes)))[:_MOST_LENGTHS]
    alike = {length: float((codes[length:] == codes[:-length]).mean()) for length in tried}
    best = max(alike.values(), default=0.0)
    if best < _LEAST_ALIKE:
        return None
    return min(length for length, share in alike.items() if share >= best - _AS_GOOD)


def _distances(codes: npt.NDArray[np.int64]) -> Iterator[int]:
    """Yield how far apart the rarest kernels that repeat are, where that is nearly always the same: one after the
    next, or, where a round has several of them, after so many.
    """
    order = np.argsort(codes, kind="stable")
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(codes[order])) + 1, [len(codes)]))
    count = np.diff(bounds)
    rarest = [each for each in np.argsort(count, kind="stable").tolist() if count[each] >= _FEWEST][:_MOST_NAMES]
    for each in rarest:
        places = order[bounds[each] : bounds[each + 1]][:_MOST_PLACES]
        for steps in range(1, min(len(places) // _FEWEST, _MOST_IN_A_ROUND) + 1):
            apart = places[steps:] - places[:-steps]
            usual = int(np.median(apart))
            if usual * _FEWEST <= len(codes) and (apart == usual).mean() >= _LEAST_ALIKE:
                yield usual


def _is_all(codes: npt.NDArray[np.int64], length: int) -> bool:
    """Return whether nothing is run that is no part of the sequence, and each round is like its neighbours.

    >>> _is_all(np.tile([1, 2, 3], 4), 3), _is_all(np.array([0, *[1, 2, 3] * 32, 4]), 3)
    (True, False)
    """
    same = codes[length:] == codes[:-length]
    rounds = len(same) // length
    of_round = same[: rounds * length].reshape(rounds, length).mean(axis=1)
    count = np.unique(codes, return_counts=True)[1]
    return bool(of_round.min() >= _LEAST_ALIKE) and bool((count >= len(codes) // length - 1).all())


def _same_modules(timeline: Timeline, order: IntArray, length: int) -> bool | None:
    """Return whether what runs a round later is of the same module: layers have their own. None: too few recorded."""
    op_row = rows_of(timeline.activities["op_row"])[order]
    module = take(categories(timeline.ops["module"]), op_row).codes
    left, right = module[length:], module[:-length]
    known = (left >= 0) & (right >= 0)
    if known.any() and (left[known] == right[known]).mean() < _LEAST_ALIKE:
        return False
    return True if known.mean() >= _LEAST_KNOWN and len(sorted_unique(left[known])) > 1 else None


def _first_of_a_round(work: LaunchedWork, order: IntArray, length: int) -> int:
    """Return which kernel a round begins with: the one before which the host pauses longest, usually."""
    moment = work.moment_ns[order]
    pause = np.diff(moment, prepend=moment[:1])
    rounds = len(order) // length
    return int(np.median(pause[: rounds * length].reshape(rounds, length)[1:], axis=0).argmax())


def _is_loop(timeline: Timeline, work: LaunchedWork, order: IntArray, length: int, at: int) -> bool:
    """Return whether each round does what a program does once an iteration, and there are three at least."""
    if len(order) < _FEWEST_UNNAMED * length:
        return False
    if any(_named_once(names, order[: 2 * length]) for names in (work.name, _operators(timeline))):
        return True
    exchanged = np.sort(np.concatenate(exchanges(timeline, work)))
    within = np.diff(np.searchsorted(exchanged, work.moment_ns[order][at::length]))
    return bool(len(within)) and bool((within > 0).mean() >= _LEAST_ALIKE)


def _operators(timeline: Timeline) -> Categories:
    return take(categories(timeline.ops["name"]), rows_of(timeline.activities["op_row"]))


def _named_once(names: Categories, rows: IntArray) -> bool:
    return any(
        _ONCE.search(names.values[code][:512]) for code in sorted_unique(names.codes[rows]).tolist() if code >= 0
    )
