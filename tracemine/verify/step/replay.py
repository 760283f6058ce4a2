"""A replayed step on a GPU: whether it is the recorded one, whether it is right with fused kernels, and what it takes.

Every `repro_step.py` holds this text, below that of correctness.py and others, whose functions it uses: it needs torch
alone. What it is given: `make` allocates, `step(t, k)` replays, with kernels `k` in place of the subgraphs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tracemine.verify.gpu.correctness import right
from tracemine.verify.gpu.graphs import captured, replay_ns
from tracemine.verify.gpu.profiling import traced

LEAST_SAME = 0.9  # of the recorded launches: a replay that launches fewer of the trace's own kernels is not timed
_PASS_NS = 12_000_000  # a sample is so long at least: as many steps, one after another
_FEWEST_ROUNDS = 6
_GRAPH_CALLS = 20
_RESAMPLES = 2000
_UNITS = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 2.0**-53}
_SLACK = 8.0  # times what a step differs from itself when its inputs are nudged by a rounding

Step = Callable[[Sequence[torch.Tensor], Sequence[Any]], list[torch.Tensor]]


def look(
    tensor: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """Return the same memory, looked at as another dtype, shape and strides."""
    found = torch.empty(0, dtype=dtype, device=tensor.device)
    return found.set_(tensor.untyped_storage(), offset, shape, strides)


class Inputs:
    """Memory from outside the step, with random values, and the tensors that lie in it.

    buffers: on the host or not, bytes, dtype, what its indices stay below (or None), whether it has no sign, the fan
    that values are scaled by, whether the step writes it. views: buffer, dtype, shape, strides, offset.
    """

    def __init__(self, buffers: Sequence[Sequence[Any]], views: Sequence[Sequence[Any]], device: str) -> None:
        self.memory = [_filled(k, *row[:6], device=device) for k, row in enumerate(buffers)]
        self._nudged: list[tuple[torch.Tensor, torch.Tensor]] = []  # memory and state, and what they were
        self.state = [(m, m.clone()) for m, row in zip(self.memory, buffers, strict=True) if row[6]]
        self.tensors = [look(self.memory[b], dtype, shape, strides, at) for b, dtype, shape, strides, at in views]

    def restore(self) -> None:
        """Restore the state as it was before the first step."""
        for memory, before in self.state:
            memory.copy_(before)

    def nudge(self, back: bool = False) -> None:
        """Restore the state, and perturb floats on the device by up to a rounding. back: undo that."""
        if back:
            for memory, before in self._nudged:
                memory.copy_(before)
            return
        self.restore()
        floats = [m for m in self.memory if m.dtype in _UNITS and m.device.type != "cpu"]
        self._nudged = [(m, m.clone()) for m in (*floats, *(before for _, before in self.state))]
        for memory in floats:
            memory.mul_(1 + (2 * torch.rand_like(memory, dtype=torch.float32) - 1) * _UNITS[memory.dtype])
        for memory, before in self.state:  # what is restored is nudged too
            before.copy_(memory)


def _filled(
    seed: int,
    on_host: bool,
    nbytes: int,
    dtype: torch.dtype,
    below: int | None,
    positive: bool,
    fan: int,
    *,
    device: str,
) -> torch.Tensor:
    count = -(-nbytes // dtype.itemsize)
    where = "cpu" if on_host else device
    if where == "meta":
        return torch.empty(count, dtype=dtype, device=where)
    generator = torch.Generator(where).manual_seed(seed)
    if below is not None or not (dtype.is_floating_point or dtype.is_complex):
        most = 2 if below is None else max(below, 1)
        values = torch.randint(0, most, (count,), generator=generator, device=where)
    elif positive or fan < 2:
        values = torch.rand(count, generator=generator, device=where) + 0.5
    else:
        values = torch.randn(count, generator=generator, device=where) * fan**-0.5
    found = values.to(dtype)
    return found.pin_memory() if on_host and device == "cuda" else found


def same_kernels(work: Callable[[], object], recorded: Sequence[str]) -> dict[str, Any]:
    """Return whether a step launches the trace's own kernels. recorded: the name of each launch."""
    events = traced(work)
    found = Counter(e["name"] for e in events)
    wanted = Counter(recorded)
    share = sum((found & wanted).values()) / max(len(recorded), 1)
    return {
        "recorded": len(recorded),
        "launched": len(events),
        "same_names": round(share, 4),
        "missing": [[name, n] for name, n in (wanted - found).most_common(8)],
        "instead": [[name, n] for name, n in (found - wanted).most_common(8)],
        "gpu_ns": sum(e["dur_ns"] for e in events),
    }


def faults(module: Any, ulp: float, draws: bool) -> str:
    """Return what is wrong with a kernel alone; "" where nothing is, or where it draws random numbers of its own."""
    try:
        module.fused(*module.inputs())
        found = [] if draws else right(module.eager, {"fused": module.fused}, module.INPUTS, ulp)["fused"]["faults"]
    except Exception as error:  # a kernel that does not compile or a call that fails: it stays out, and says why
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    return f"wrong: {found[0]}" if found else ""


def screened(modules: Sequence[Any], known: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each kernel whether it beats its subgraph in a CUDA graph: else it stays out. known: faults."""
    found = []
    for module, fault in zip(modules, known, strict=True):
        one: dict[str, Any] = {"kept": False, "says": fault}
        found.append(one)
        if fault:
            continue
        work = {name: _of(getattr(module, name), module.inputs()) for name in ("eager", "fused")}
        for each in work.values():
            each()  # compiled and loaded before anything is captured
        graphs = {name: captured(each, _GRAPH_CALLS) for name, each in work.items()}
        if None in graphs.values():
            one["says"] = "it cannot be captured in a CUDA graph"
            continue
        times = replay_ns(graphs, _GRAPH_CALLS, 10)
        one["eager_ns"], one["fused_ns"] = (round(statistics.median(times[n])) for n in ("eager", "fused"))
        one["saving"] = saving(times["eager"], times["fused"])
        one["kept"] = one["saving"]["low"] > 0
        one["says"] = "" if one["kept"] else "not faster than its subgraph"
    return found


def _of(function: Any, inputs: Sequence[torch.Tensor]) -> Callable[[], object]:
    return lambda: function(*inputs)


def run(step: Step, inputs: Inputs, kernels: Sequence[Any]) -> list[torch.Tensor]:
    """Return the step's final tensors, from the state before the first."""
    inputs.restore()
    torch.manual_seed(0)
    return [t.detach().clone() for t in step(inputs.tensors, kernels)]


def checked(
    eager: Step, fused: Step, inputs: Inputs, subgraphs: Sequence[Any], kernels: Sequence[Any]
) -> dict[str, Any]:
    """Compare the step's final tensors: with eager graphs in place bit for bit, with kernels within roundings.

    What a tensor may differ by is what it differs by when the step's inputs are nudged by a rounding, eight times.
    """
    first, again = (run(eager, inputs, ()) for _ in range(2))
    steady = [_equal(a, b) for a, b in zip(first, again, strict=True)]
    del again
    wired = run(fused, inputs, subgraphs)
    other = [k for k, (a, b) in enumerate(zip(first, wired, strict=True)) if steady[k] and not _equal(a, b)]
    apart_wired = [_apart(first[k], wired[k]) for k in other]
    del wired
    inputs.nudge()
    nudged = run(eager, inputs, ())
    usual = [_apart(a, b) for a, b in zip(first, nudged, strict=True)]
    del nudged
    inputs.nudge(back=True)
    ours = run(fused, inputs, kernels)
    apart = [_apart(a, b) for a, b in zip(first, ours, strict=True)]
    allowed = [_SLACK * max(u, _UNITS.get(t.dtype, 0.0)) for u, t in zip(usual, first, strict=True)]
    beyond = [k for k, (a, most) in enumerate(zip(apart, allowed, strict=True)) if not a <= most]
    finite = [float(t.isfinite().double().mean()) if t.numel() else 1.0 for t in first]
    return {
        "tensors": len(first),
        "steady": sum(steady),
        "wired_otherwise": len(other),
        "wired_apart": max(apart_wired, default=0.0),
        "beyond": len(beyond),
        "apart": max(apart, default=0.0),
        "worst": max((a / most for a, most in zip(apart, allowed, strict=True) if most), default=0.0),  # of what may be
        "finite": min(finite, default=1.0),
    }


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.dtype.is_floating_point:
        return bool(torch.equal(a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return bool(same.all())


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return root mean square of the difference as a share of the first's, where both are finite."""
    x, y = a.double(), b.double()
    known = x.isfinite() & y.isfinite()
    x, y = torch.where(known, x, 0.0), torch.where(known, y, 0.0)
    size = float(x.square().mean().sqrt()) if x.numel() else 0.0
    return float((x - y).square().mean().sqrt()) / size if size else 0.0


def graphed(work: Callable[[], object]) -> Callable[[], object] | str:
    """Return a CUDA graph of a step; or why there is none."""
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = work()
    except Exception as error:  # whatever cannot be captured is said, and the rest is timed
        torch.cuda.synchronize()
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"

    def replay(_: object = kept) -> None:
        graph.replay()

    return replay


def step_times(
    variants: Mapping[str, Callable[[], object]], restore: Callable[[], None], rounds: int, seconds: float
) -> dict[str, dict[str, list[int]]]:
    """Time steps one after another, variants interleaved: in random order and back again, each round.

    step_ns: by the device's clock, from the first to the last; host_ns: until the host was free again.
    """
    counts = {}
    for name, work in variants.items():
        work()
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        counts[name] = max(3, min(100, _PASS_NS * 3 // max(time.perf_counter_ns() - begin, 1)))
    found: dict[str, dict[str, list[int]]] = {n: {"step_ns": [], "host_ns": []} for n in variants}
    order = random.Random(0)  # noqa: S311 - an order, no secret
    until = time.monotonic() + seconds
    for number in range(rounds):
        if number >= _FEWEST_ROUNDS and time.monotonic() > until:
            break
        names = list(variants)
        order.shuffle(names)
        restore()
        for name in (*names, *reversed(names)):
            work, count = variants[name], counts[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            work()
            torch.cuda.synchronize()
            started = time.perf_counter_ns()
            begin.record()
            for _ in range(count):
                work()
            end.record()
            host = time.perf_counter_ns() - started
            end.synchronize()
            found[name]["step_ns"].append(round(begin.elapsed_time(end) * 1e6 / count))
            found[name]["host_ns"].append(round(host / count))
    return found


def saving(first: Sequence[int], second: Sequence[int]) -> dict[str, int]:
    """Return by how much the second takes less: of medians, and a paired bootstrap's 95 % interval over rounds.

    Two samples in a row are one round's: rounds are drawn.

    >>> found = saving([20, 22, 21, 20, 21, 20], [10, 11, 10, 10, 11, 10])
    >>> found["ns"], 9 <= found["low"] <= found["high"] <= 12
    (10, True)
    """
    count = min(len(first), len(second)) // 2
    pairs = torch.tensor([first[: 2 * count], second[: 2 * count]], dtype=torch.float64).reshape(2, count, 2).mean(2)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, count, (_RESAMPLES, count), generator=generator)
    medians = pairs[:, drawn].quantile(0.5, dim=2)
    low, high = (medians[0] - medians[1]).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    middle = statistics.median(first) - statistics.median(second)
    return {"ns": round(middle), "low": round(min(low, middle)), "high": round(max(high, middle))}


def step_results(
    eager: Step,
    fused: Step,
    inputs: Inputs,
    modules: Sequence[Any],
    about: Mapping[str, Any],
    kept: Sequence[str] | None,
    known: Sequence[str] | None = None,
    before: Mapping[str, Any] | None = None,
    rounds: int = 20,
    seconds: float = 20.0,
) -> dict[str, Any]:
    """Measure one step. about: ulps, draws and findings of the kernels, and the recorded launches' names.

    kept: fingerprints of findings whose kernels are put in place; None: those of the kernels that are faster.
    known: the kernels' faults, where they were looked for before. before: what `checked` gave with all kernels in
    place that have none; where it holds, it holds for some of them.
    """
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    with torch.no_grad():
        for _ in range(2):
            eager(inputs.tensors, ())
        torch.cuda.synchronize()
        found["replay"] = same_kernels(lambda: eager(inputs.tensors, ()), about["recorded"])
        if found["replay"]["same_names"] < LEAST_SAME:
            found["says"] = "the replay launches other kernels than the trace has: it is not timed"
            return found
        found["kernels"] = _chosen(modules, about, kept, known)
        keeps = [one["kept"] for one in found["kernels"]]
        kernels = [m.fused if keep else m.eager for m, keep in zip(modules, keeps, strict=True)]
        holds = before is not None and not before["beyond"]
        found["right"] = (
            dict(before or {}) if holds else checked(eager, fused, inputs, [m.eager for m in modules], kernels)
        )
        found["right"]["draws"] = any(keep and d for keep, d in zip(keeps, about["draws"], strict=True))
        plain, mended = (lambda: eager(inputs.tensors, ())), (lambda: fused(inputs.tensors, kernels))
        found |= _timed(plain, mended, inputs, rounds, seconds)
    found["savings"] = savings(found["times"])
    return found


def _chosen(
    modules: Sequence[Any], about: Mapping[str, Any], kept: Sequence[str] | None, known: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return for each kernel whether it is put in place, and why not: by its findings, or by its faults and times."""
    if kept is not None:
        asked = [not set(kept).isdisjoint(of) for of in about["findings"]]
        return [{"kept": keep, "says": "" if keep else "not asked for"} for keep in asked]
    if known is None:
        known = [faults(*each) for each in zip(modules, about["ulps"], about["draws"], strict=True)]
    return screened(modules, known)


def _timed(
    plain: Callable[[], object], mended: Callable[[], object], inputs: Inputs, rounds: int, seconds: float
) -> dict[str, Any]:
    """Time the step and the fixed one, launched and as CUDA graphs where they can be captured."""
    mended()  # what is launched for the first time is compiled
    events = traced(mended)
    graphs = {"eager_graph": graphed(plain), "fused_graph": graphed(mended)}
    captured_graphs = {name: graph for name, graph in graphs.items() if not isinstance(graph, str)}
    return {
        "fused_gpu_ns": sum(e["dur_ns"] for e in events),
        "fused_launches": len(events),
        "not_captured": {name: reason for name, reason in graphs.items() if isinstance(reason, str)},
        "times": step_times({"eager": plain, "fused": mended, **captured_graphs}, inputs.restore, rounds, seconds),
    }


def savings(times: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, Any]:
    """Return what each change saves: `fused` and `graph` of the eager step, `fused_graph` of the graph, `all`."""
    pairs = {
        "fused": ("eager", "fused"),
        "graph": ("eager", "eager_graph"),
        "fused_graph": ("eager_graph", "fused_graph"),
        "all": ("eager", "fused_graph"),
    }
    found: dict[str, Any] = {
        name: saving(times[a]["step_ns"], times[b]["step_ns"])
        for name, (a, b) in pairs.items()
        if a in times and b in times
    }
    for name in ("eager", "eager_graph"):
        if name in times:
            samples = times[name]["step_ns"]
            found[f"{name}_noise_ns"] = abs(round(statistics.median(samples[0::2]) - statistics.median(samples[1::2])))
    return found
