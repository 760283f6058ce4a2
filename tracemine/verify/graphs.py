"""A chain's time by other clocks than the profiler's: within CUDA graphs, and as a program feels it.

Part of every reproduction that `verify --emit` writes: needs torch alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tracemine.verify.seen import flusher, traced

_FLUSHED_CALLS = 10
_CLOCKS_AGREE, _CLOCKS_FROM_NS = 0.03, 20_000  # two clocks may differ by this share, of chains that take so long
_GAP_UNKNOWN = 0.3


def captured(work: Callable[[], object], calls: int) -> Any:
    """A CUDA graph of many calls, one after another; None where the work cannot be captured."""
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
    """Nanoseconds a call of each graph, by events around a replay, interleaved."""
    found: dict[str, list[int]] = {name: [] for name, graph in graphs.items() if graph is not None}
    for _ in range(rounds):
        for name in found:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graphs[name].replay()
            end.record()
            end.synchronize()
            found[name].append(round(begin.elapsed_time(end) * 1e6 / calls))
    return found


def other_clock(variants: Mapping[str, Callable[[], object]], kernels: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Nanoseconds of each variant's kernels by another clock than CUPTI's, the cache flushed before each call.

    A graph of flushes and calls, less one of flushes alone, less what the gap before each kernel takes: that is told by
    a graph of small kernels, whose own time is CUPTI's. `gaps_ns`: of all its kernels.
    """
    flush, small = flusher(), torch.zeros(256, device="cuda")
    few = 8

    def many() -> None:
        flush()
        for _ in range(few):
            small.add_(1.0)

    def after_flush(work: Callable[[], object]) -> Callable[[], None]:
        def both() -> None:
            flush()
            work()

        return both

    graphs = {name: captured(after_flush(work), _FLUSHED_CALLS) for name, work in variants.items()}
    graphs |= {"": captured(flush, _FLUSHED_CALLS), " small": captured(many, _FLUSHED_CALLS)}
    found = {name: statistics.median(s) for name, s in replay_ns(graphs, _FLUSHED_CALLS, 11).items()}
    own = statistics.median(e["dur_ns"] for e in traced(many)[-few:])
    gap = (found[" small"] - found[""]) / few - own
    gaps = {name: round(kernels[name] * gap) for name in variants if name in found}
    return {name: {"ns": round(found[name] - found[""]) - gaps[name], "gaps_ns": gaps[name]} for name in gaps}


def unstable(own: Mapping[str, float], other: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Variants of which two clocks say different things. A gap is another before every kernel: it may be off by a part.

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
    """Nanoseconds a call as a program feels it: calls one after another from Python, host and device together."""
    found: dict[str, list[int]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, work in variants.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            for _ in range(5):
                work()
            end.record()
            end.synchronize()
            found[name].append(round(begin.elapsed_time(end) * 1e6 / 5))
    return found
