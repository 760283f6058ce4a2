"""A graph's time by other clocks than the profiler's: within CUDA graphs, and as a program feels it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tracemine.verify.gpu.profiling import flusher, traced

_SMALL_ONES, _REPEATS = 8, 11
_CLOCKS_AGREE, _CLOCKS_FROM_NS = 0.03, 20_000  # two clocks may differ by this share, of graphs that take so long
_GAP_UNKNOWN = 0.3


def captured(work: Callable[[], object], calls: int) -> Any:
    """Return a CUDA graph of many calls, one after another; None where the work cannot be captured."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                work()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    graph.replay()
    return graph


def replay_ns(graphs: Mapping[str, Any], calls: int, rounds: int) -> dict[str, list[int]]:
    """Return nanoseconds a call of each graph, by events around a replay, interleaved."""
    found: dict[str, list[int]] = {name: [] for name, graph in graphs.items() if graph is not None}
    for _ in range(rounds):
        for name in found:
            found[name].append(round(_elapsed_ns(graphs[name].replay) / calls))
    return found


def _elapsed_ns(work: Callable[[], object], times: int = 1) -> float:
    """Return nanoseconds between events around calls."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e6


def other_clock(variants: Mapping[str, Callable[[], object]], kernels: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return nanoseconds of each variant's kernels by another clock than CUPTI's, the cache flushed before each call.

    Events stand before and behind a call that is queued while the GPU is kept busy, so that no launch is waited for.
    `gaps_ns`: what was taken off for the events and between kernels, measured with one small kernel and with many.
    """
    flush, small = flusher(), torch.zeros(256, device="cuda")

    def some(count: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                small.add_(1.0)

        return work

    def flushed() -> None:
        flush()
        some(_SMALL_ONES)()

    seen = [traced(flushed)[-_SMALL_ONES:] for _ in range(3)]
    own = [statistics.median(each[k]["dur_ns"] for each in seen) for k in range(_SMALL_ONES)]
    one, many = _between_events(flush, some(1)), _between_events(flush, some(_SMALL_ONES))
    ends = max(one - own[0], 0.0)
    gap = max((many - one) / (_SMALL_ONES - 1) - statistics.mean(own[1:]), 0.0)
    found: dict[str, dict[str, int]] = {}
    for name, work in variants.items():
        gaps = round(ends + (kernels[name] - 1) * gap)
        found[name] = {"ns": round(_between_events(flush, work)) - gaps, "gaps_ns": gaps}
    return found


def _between_events(flush: Callable[[], object], work: Callable[[], object]) -> float:
    """Return nanoseconds between the events around a call, the median of a few."""
    work()
    begun = time.perf_counter_ns()
    work()
    wait = 2 * (time.perf_counter_ns() - begun) + 50_000
    found = []
    for _ in range(_REPEATS):
        flush()
        torch.cuda._sleep(2 * wait)  # of cycles: two make a nanosecond
        found.append(_elapsed_ns(work))
    return statistics.median(found)


def unstable(own: Mapping[str, float], other: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return variants on which two clocks differ. No gap is like the other: what is taken off may be off itself.

    >>> unstable({"eager": 100_000, "fused": 30_000}, {"eager": {"ns": 92_000, "gaps_ns": 20_000},
    ...     "fused": {"ns": 32_000, "gaps_ns": 1_000}})
    ['fused']
    """
    return [
        name
        for name, found in other.items()
        if own[name] >= _CLOCKS_FROM_NS
        and abs(found["ns"] - own[name]) > _CLOCKS_AGREE * own[name] + _GAP_UNKNOWN * found["gaps_ns"]
    ]


def wall_times(variants: Mapping[str, Callable[[], object]], rounds: int = 10) -> dict[str, list[int]]:
    """Return nanoseconds a call as a program feels it: calls one by one from Python, host and device together."""
    found: dict[str, list[int]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, work in variants.items():
            torch.cuda.synchronize()
            found[name].append(round(_elapsed_ns(work, 5) / 5))
    return found
