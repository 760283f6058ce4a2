"""Measured on a GPU: whether the replay is the trace's, whether the kernels are right, and what they take.

Every reproduction that `verify --emit` writes holds this text: it needs torch alone. What is timed is the chain, not
its operators one by one: the cache is flushed before the first kernel and never in between, so that what one kernel
leaves in it the next one finds, as in a model.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_RESAMPLES = 2000
_LEAST_GAIN = 0.01  # "faster" is by more than this, and by more than twice what a variant differs from itself
_GRAPH_CALLS = 20


def make_inputs(described: Sequence[tuple[Any, ...]], seed: int = 0, device: str = "cuda") -> list[torch.Tensor]:
    """Tensors of the recorded shapes, dtypes and strides, with random values; of indices, valid ones.

    described: for each input its name, shape, dtype, strides, and below what its indices stay (None: no indices).
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _, shape, dtype, strides, below in described:
        if below is not None:
            values = torch.randint(0, max(below, 1), shape, generator=generator)
        elif dtype == torch.bool:
            values = torch.rand(shape, generator=generator) < 0.5
        elif dtype.is_floating_point:
            values = torch.randn(shape, generator=generator)
        else:
            values = torch.randint(0, 100, shape, generator=generator)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if values.numel() else 0
        tensor = torch.empty(reach, dtype=dtype, device=device).as_strided(shape, strides)
        if 0 in strides:  # what is repeated is written once
            first = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
            tensor[first].copy_(values[first])
        else:
            tensor.copy_(values)
        found.append(tensor)
    return found


def copies(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same tensors in memory of their own, with the same strides."""
    found = []
    for tensor in inputs:
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        flat = tensor.as_strided((reach if tensor.numel() else 0,), (1,)).clone()
        found.append(flat.as_strided(tensor.shape, tensor.stride()))
    return found


class InDouble(TorchDispatchMode):  # type: ignore[misc]
    """Runs a chain in float64: what it casts to a float stays wide."""

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        """One call."""
        wide = {n: torch.float64 if v in _FLOATS else v for n, v in (named or {}).items()}
        taken = [torch.float64 if isinstance(v, torch.dtype) and v in _FLOATS else v for v in given]
        if "_softmax" in str(function):
            taken = [False if v is True else v for v in taken]  # half_to_float
        return function(*taken, **wide)


def right(eager: Any, fused: Any, described: Sequence[tuple[Any, ...]], compare: Any, ulp: float) -> dict[str, Any]:
    """Fused against eager and float64, for three seeds: faults, and the errors of the first."""
    faults: list[str] = []
    errors: dict[str, float] = {}
    for seed in range(3):
        inputs = make_inputs(described, seed)
        ours, theirs = copies(inputs), copies(inputs)
        wide = [t.double() if t.dtype in _FLOATS else t.clone() for t in inputs]
        found, wanted = fused(*ours) or (), eager(*theirs)
        with InDouble():
            truth = eager(*wide)
        pairs = [(f"output {k}", *three) for k, three in enumerate(zip(found, wanted, truth, strict=True))]
        pairs += [(d[0], *three) for d, *three in zip(described, ours, theirs, wide, strict=True)]
        for name, a, b, c in pairs:
            result = compare(a, b, c, ulp)
            faults += [f"seed {seed}, {name}: {text}" for text in result.faults]
            if seed == 0 and name.startswith("output"):
                errors["error"] = max(errors.get("error", 0.0), result.error)
                errors["eager_error"] = max(errors.get("eager_error", 0.0), result.eager_error)
    inputs = make_inputs(described)
    runs = [fused(*copies(inputs)) or () for _ in range(10)]
    again = [pair for run in runs[1:] for pair in zip(runs[0], run, strict=True)]
    if any(not torch.equal(a.cpu().nan_to_num(), b.cpu().nan_to_num()) for a, b in again):
        faults.append("ten runs differ from each other")
    return {"faults": faults, **errors}


def traced(work: Callable[[], object]) -> list[dict[str, Any]]:
    """What the GPU did during `work`, as torch.profiler saw it: name, start_ns, dur_ns, grid; by start."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
    found = [
        {
            "name": e["name"],
            "start_ns": round(e["ts"] * 1000),
            "dur_ns": round(e["dur"] * 1000),
            "grid": e["args"].get("grid"),
        }
        for e in events
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    return sorted(found, key=lambda e: e["start_ns"])


def replayed(eager: Any, described: Sequence[tuple[Any, ...]], recorded: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Whether eager launches the trace's own kernels. recorded: name and grid of each."""
    inputs = make_inputs(described)
    eager(*copies(inputs))  # libraries load, memory is taken
    torch.cuda.synchronize()
    ours = copies(inputs)
    torch.cuda.synchronize()
    found = traced(lambda: eager(*ours))
    names = sorted(e["name"] for e in found) == sorted(str(r[0]) for r in recorded)
    grids = sorted((e["name"], tuple(e["grid"] or ())) for e in found) == sorted(
        (str(r[0]), tuple(r[1] or ())) for r in recorded
    )
    return {
        "same_count": len(found) == len(recorded),
        "same_names": names,
        "same_grids": grids,
        "kernels": [[e["name"], e["grid"]] for e in found],
    }


def _flusher() -> Callable[[], None]:
    """Empties the L2 cache without leaving lines that must be written back: twice its size is written, then read."""
    nbytes = 2 * torch.cuda.get_device_properties(0).L2_cache_size
    memory = torch.empty(nbytes // 4, dtype=torch.float32, device="cuda")

    def flush() -> None:
        memory.fill_(1.0)
        memory.sum()

    return flush


def times(variants: Mapping[str, Callable[[], object]], warm: Callable[[], object], rounds: int = 20) -> dict[str, Any]:
    """Samples of each variant's kernel time, nanoseconds, in both states of the cache, interleaved.

    cold: the cache is flushed before the first kernel. warm: what the chain reads was written just before.
    A sample is the sum of its kernels' durations and the span from the first one's start to the last one's end.
    """
    states: dict[str, Callable[[], object]] = {"cold": _flusher(), "warm": warm}
    counts = {name: len(traced(_repeated(work))) // 3 for name, work in variants.items()}
    before = {name: len(traced(_repeated(work))) // 3 for name, work in states.items()}
    order = random.Random(0)  # noqa: S311 - an order, no secret
    plan = []
    for _ in range(rounds):
        for state in states:
            names = list(variants) * 2
            order.shuffle(names)
            plan += [(state, name) for name in names]

    def work() -> None:
        for state, name in plan:
            states[state]()
            variants[name]()

    work()
    torch.cuda.synchronize()
    events = traced(work)
    if len(events) != sum(before[state] + counts[name] for state, name in plan):
        raise RuntimeError("a variant does not always launch the same number of kernels")
    samples: dict[str, Any] = {state: {n: {"sum_ns": [], "span_ns": []} for n in variants} for state in states}
    at = 0
    for state, name in plan:
        at += before[state]
        mine = events[at : at + counts[name]]
        at += counts[name]
        found = samples[state][name]
        found["sum_ns"].append(sum(e["dur_ns"] for e in mine))
        found["span_ns"].append(mine[-1]["start_ns"] + mine[-1]["dur_ns"] - mine[0]["start_ns"] if mine else 0)
    return {"rounds": rounds, "kernels": counts, "samples": samples}


def _repeated(work: Callable[[], object]) -> Callable[[], None]:
    def three() -> None:
        for _ in range(3):
            work()

    three()
    torch.cuda.synchronize()
    return three


def graph_times(variants: Mapping[str, Callable[[], object]], rounds: int = 20) -> dict[str, list[int]]:
    """Nanoseconds a call within a CUDA graph of many calls, one after another, interleaved: no host in between."""
    graphs: dict[str, Any] = {}
    for name, work in variants.items():
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(_GRAPH_CALLS):
                    work()
            graphs[name] = graph
        except RuntimeError:  # what cannot be captured is not timed so
            torch.cuda.synchronize()
    found: dict[str, list[int]] = {name: [] for name in graphs}
    for graph in graphs.values():
        graph.replay()
    for _ in range(rounds):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found[name].append(round(begin.elapsed_time(end) * 1e6 / _GRAPH_CALLS))
    return found


def wall_times(variants: Mapping[str, Callable[[], object]], rounds: int = 20) -> dict[str, list[int]]:
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


def ratio(first: Sequence[int], second: Sequence[int]) -> dict[str, float]:
    """How many times as long the first takes as the second: medians, and a paired bootstrap's 95 % interval.

    Samples of one place come from one round: both lists are drawn from together.

    >>> found = ratio([20, 22, 21, 20], [10, 11, 10, 10])
    >>> found["ratio"], 1.8 < found["low"] <= found["ratio"] <= found["high"] < 2.2
    (2.05, True)
    """
    count = min(len(first), len(second))
    pairs = torch.tensor([first[:count], second[:count]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, count, (_RESAMPLES, count), generator=generator)
    medians = pairs[:, drawn].quantile(0.5, dim=2)
    found = medians[0] / medians[1].clamp_min(1e-9)
    low, high = found.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    middle = statistics.median(first[:count]) / max(statistics.median(second[:count]), 1e-9)
    return {"ratio": round(middle, 4), "low": round(min(low, middle), 4), "high": round(max(high, middle), 4)}


def judged(samples: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, Any]:
    """Ratios of eager and of torch.compile to the fused kernels, and what eager differs from itself."""
    sums = {name: found["sum_ns"] for name, found in samples.items()}
    halves = sums["eager"][0::2], sums["eager"][1::2]
    noise = ratio(*halves)
    floor = max(_LEAST_GAIN, 2 * abs(noise["ratio"] - 1))
    found: dict[str, Any] = {"eager_against_itself": noise, "least_gain": round(floor, 4)}
    for name in ("eager", "compiled"):
        if name in sums:
            found[name] = ratio(sums[name], sums["fused"])
    found["faster_than_eager"] = found["eager"]["low"] > 1 + floor
    found["slower_than_eager"] = found["eager"]["high"] < 1 - floor
    if "compiled" in found:
        found["not_slower_than_compile"] = found["compiled"]["high"] >= 1 - floor
        found["faster_than_compile"] = found["compiled"]["low"] > 1 + floor
    return found


def measure(
    eager: Any, fused: Any, described: Sequence[tuple[Any, ...]], nbytes: int, compiles: bool = True, rounds: int = 20
) -> dict[str, Any]:
    """All timings of a chain. nbytes: what one kernel has to read and write, for a plain copy of as much beside it."""
    inputs = make_inputs(described)
    sources = copies(inputs)
    mine = copies(inputs)  # the same for all, so that all find the cache alike
    variants: dict[str, Callable[[], object]] = {"eager": lambda: eager(*mine), "fused": lambda: fused(*mine)}
    failed = None
    if compiles:
        try:
            compiled = torch.compile(eager, dynamic=False)
            compiled(*mine)
            variants["compiled"] = lambda: compiled(*mine)
        except Exception as error:  # whatever it cannot compile is said, and the rest is timed
            failed = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
    half = torch.empty(max(nbytes // 2, 1), dtype=torch.uint8, device="cuda")
    other = torch.empty_like(half)
    timed = {**variants, "copy": lambda: other.copy_(half)}

    def warm() -> None:
        for target, source in zip(mine, sources, strict=True):
            if 0 not in target.stride():
                target.copy_(source)

    found = times(timed, warm, rounds)
    return {
        **found,
        "judged": {state: judged(samples) for state, samples in found["samples"].items()},
        "graph_ns": graph_times(variants, rounds),
        "wall_ns": wall_times(variants, rounds),
        "bytes": nbytes,
        "compile_failed": failed,
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
    }
