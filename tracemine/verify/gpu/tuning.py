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
_TUNE_GAIN = 0.02  # a tile config that is faster by less is taken for as fast as the default


def tuned(
    fused: Callable[..., object],
    blocks: dict[str, list[tuple[int, int]]],
    described: Described,
    seconds: float = float("inf"),
    rounds: int = _TUNE_ROUNDS,
) -> dict[str, list[tuple[tuple[int, int], int]]]:
    """Put each kernel's fastest tile config first; return the configs in that order and what each took, nanoseconds.

    blocks: for each kernel its tile configs, of which `fused` takes the first; changed in place. The cache is flushed
    before each call; what none can be launched with takes 0, and so does what is not tried: the first tile config
    always is, another where it should be compiled before the seconds are over. rounds: 0 compiles, and times nothing.
    """
    given = {name: list(tile_configs) for name, tile_configs in blocks.items()}
    mine = copies(make_inputs(described))

    def call(place: int) -> None:
        for name, tile_configs in given.items():
            blocks[name][:] = [tile_configs[place % len(tile_configs)]]
        fused(*mine)

    able = _able(call, max(map(len, given.values()), default=0), seconds)
    order, flush = random.Random(0), flusher()  # noqa: S311 - an order, no secret
    plan = [place for _ in range(rounds) for place in order.sample(able, len(able))]

    def work() -> None:
        for place in plan:
            flush()
            torch.cuda._sleep(1)
            call(place)
            torch.cuda._sleep(1)

    samples: dict[str, dict[tuple[int, int], list[int]]] = {name: {} for name in given}
    for place, events in zip(plan, between_marks(traced(work) if plan else ()), strict=True):
        for event in events:
            tile_configs = given.get(event["name"], [])
            if tile_configs:
                samples[event["name"]].setdefault(tile_configs[place % len(tile_configs)], []).append(event["dur_ns"])
    taken = {name: _fastest_first(tile_configs, samples[name]) for name, tile_configs in given.items()}
    for name, ordered in taken.items():
        blocks[name][:] = [tile_config for tile_config, _ in ordered]
    return taken


def _able(call: Callable[[int], None], count: int, seconds: float) -> list[int]:
    """Launch each tile config once, as long as time is left to compile another; return those that can be launched."""
    began, able = time.monotonic(), list[int]()
    for place in range(count):
        if able and (time.monotonic() - began) * (place + 1) / place > seconds:
            break
        try:
            call(place)
            able.append(place)
        except Exception:  # more registers or memory than a block may have: this one is no tile config
            torch.cuda.synchronize()
    return able


def _fastest_first(
    tile_configs: Sequence[tuple[int, int]], samples: dict[tuple[int, int], list[int]]
) -> list[tuple[tuple[int, int], int]]:
    """Return a kernel's tile configs with their medians, nanoseconds; the default first unless others gain."""
    taken = {tile_config: round(statistics.median(s)) for tile_config, s in samples.items()}
    best = min(taken, key=lambda tile_config: taken[tile_config], default=tile_configs[0])
    if taken.get(tile_configs[0], 0) * (1 - _TUNE_GAIN) <= taken.get(best, 0):
        best = tile_configs[0]
    rest = sorted(
        (tile_config for tile_config in tile_configs if tile_config != best),
        key=lambda tile_config: taken.get(tile_config, 0),
    )
    return [(tile_config, taken.get(tile_config, 0)) for tile_config in (best, *rest)]
