"""Find each kernel's fastest tile config on this GPU: tried on the graph's own tensors, for a moment."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from tracemine.verify.gpu.correctness import Described, copies, make_inputs
from tracemine.verify.gpu.profiling import between_marks, flusher, traced

_TUNE_ROUNDS = 6
_TUNE_GAIN = 0.02  # a cut that is faster by less is taken for as fast as the default


def tuned(
    fused: Callable[..., object],
    blocks: dict[str, list[tuple[int, int]]],
    described: Described,
    seconds: float = float("inf"),
) -> dict[str, list[tuple[tuple[int, int], int]]]:
    """Put each kernel's fastest tile config first; return the configs in that order and what each took, nanoseconds.

    blocks: for each kernel its cuts, of which `fused` takes the first; changed in place. The cache is flushed before
    each call; what none can be launched with takes 0, and so does what is not tried: the first cut always is, another
    where it should be compiled before the seconds are over.
    """
    given = {name: list(cuts) for name, cuts in blocks.items()}
    mine = copies(make_inputs(described))

    def call(place: int) -> None:
        for name, cuts in given.items():
            blocks[name][:] = [cuts[place % len(cuts)]]
        fused(*mine)

    able = _able(call, max(map(len, given.values()), default=0), seconds)
    order, flush = random.Random(0), flusher()  # noqa: S311 - an order, no secret
    plan = [place for _ in range(_TUNE_ROUNDS) for place in order.sample(able, len(able))]

    def work() -> None:
        for place in plan:
            flush()
            torch.cuda._sleep(1)
            call(place)
            torch.cuda._sleep(1)

    samples: dict[str, dict[tuple[int, int], list[int]]] = {name: {} for name in given}
    for place, events in zip(plan, between_marks(traced(work)), strict=True):
        for event in events:
            cuts = given.get(event["name"], [])
            if cuts:
                samples[event["name"]].setdefault(cuts[place % len(cuts)], []).append(event["dur_ns"])
    taken = {name: _fastest_first(cuts, samples[name]) for name, cuts in given.items()}
    for name, ordered in taken.items():
        blocks[name][:] = [cut for cut, _ in ordered]
    return taken


def _able(call: Callable[[int], None], count: int, seconds: float) -> list[int]:
    """Launch each cut once, as long as another should be compiled in time; return those that can be launched."""
    began, able = time.monotonic(), list[int]()
    for place in range(count):
        if able and (time.monotonic() - began) * (place + 1) / place > seconds:
            break
        try:
            call(place)
            able.append(place)
        except Exception:  # more registers or memory than a block may have: this cut is none
            torch.cuda.synchronize()
    return able


def _fastest_first(
    cuts: Sequence[tuple[int, int]], samples: dict[tuple[int, int], list[int]]
) -> list[tuple[tuple[int, int], int]]:
    """Return a kernel's cuts with their medians, nanoseconds; the default first where others gain next to nothing."""
    taken = {cut: round(statistics.median(s)) for cut, s in samples.items()}
    best = min(taken, key=lambda cut: taken[cut], default=cuts[0])
    if taken.get(cuts[0], 0) * (1 - _TUNE_GAIN) <= taken.get(best, 0):
        best = cuts[0]
    rest = sorted((cut for cut in cuts if cut != best), key=lambda cut: taken.get(cut, 0))
    return [(cut, taken.get(cut, 0)) for cut in (best, *rest)]
