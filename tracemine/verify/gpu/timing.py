"""Measure on a GPU what a graph takes, eagerly and in other ways.

Every reproduction that `verify --emit` writes holds this text: it needs torch alone. What is timed is the graph, not
its operators one by one: the cache is flushed before the first kernel and never in between, so that what one kernel
leaves in it the next one finds, as in a model.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from tracemine.verify.gpu.clocks import gpu_state, steady
from tracemine.verify.gpu.compiling import compiled_variants
from tracemine.verify.gpu.correctness import Described, Work, copies, make_inputs, repeats, right
from tracemine.verify.gpu.graphs import captured, other_clock, replay_ns, unstable, wall_times
from tracemine.verify.gpu.profiling import between_marks, flusher, peak_bytes_per_second, replayed, traced

_RESAMPLES = 2000
_LEAST_GAIN = 0.01  # "faster" is by more than this, and by more than twice what a variant differs from itself
_GRAPH_CALLS = 20
_ROUNDS = 10  # of a block: its clocks are read at both ends
_LEAST_BLOCKS, _MOST_BLOCKS = 3, 8
_ENOUGH = 0.01  # half a ratio's interval: no more blocks are needed
_PEAK_MARGIN = 1.05
_COMPILE_SHARE, _LEAST_COMPILE_S = 0.3, 2.0  # of the time that is left, a mode of torch.compile; less is not begun
NO_TIME = "no time was left for it"


def block(
    variants: Mapping[str, Callable[[], object]],
    states: Mapping[str, Callable[[], object]],
    order: random.Random,
    rounds: int = _ROUNDS,
) -> dict[str, Any]:
    """Time each variant in each state of the cache, nanoseconds: rounds of A B C C B A, each in a new order.

    A sample is the sum of its kernels' durations, and the span from the first one's start to the last one's end.
    """
    plan = []
    for _ in range(rounds):
        for state in states:
            names = list(variants)
            order.shuffle(names)
            plan += [(state, name) for name in (*names, *reversed(names))]
    clocks: list[Any] = []

    def work() -> None:
        for number, (state, name) in enumerate(plan):
            states[state]()
            torch.cuda._sleep(1)
            variants[name]()
            torch.cuda._sleep(1)
            if number in (len(plan) // rounds, len(plan) - 1):  # the GPU is at work
                clocks.append(gpu_state())

    samples: dict[str, Any] = {state: {n: {"sum_ns": [], "span_ns": []} for n in variants} for state in states}
    counts: dict[str, set[int]] = {name: set() for name in variants}
    for (state, name), mine in zip(plan, between_marks(traced(work)), strict=True):
        counts[name].add(len(mine))
        samples[state][name]["sum_ns"].append(sum(e["dur_ns"] for e in mine))
        span = mine[-1]["start_ns"] + mine[-1]["dur_ns"] - mine[0]["start_ns"] if mine else 0
        samples[state][name]["span_ns"].append(span)
    changing = [name for name, found in counts.items() if len(found) > 1]
    if changing:
        raise RuntimeError(f"{changing[0]} does not always launch the same number of kernels")
    return {"samples": samples, "clocks": clocks, "kernels": {name: found.pop() for name, found in counts.items()}}


def times(
    variants: Mapping[str, Callable[[], object]],
    warm: Callable[[], object],
    until: float = float("inf"),
    end: float = float("inf"),
) -> dict[str, Any]:
    """Time blocks until ratios are known well enough, or the time is up; those at other clocks are dropped.

    cold: the cache is flushed before the first kernel. warm: what the graph reads was written just before.
    until, end: no block is begun after this, by time.monotonic; after the end not even the few that there should be.
    """
    states: dict[str, Callable[[], object]] = {"cold": flusher(), "warm": warm}
    order = random.Random(0)  # noqa: S311 - an order, no secret
    block(variants, states, order, 2)  # kernels load, clocks rise
    blocks: list[dict[str, Any]] = []
    while True:
        blocks.append(block(variants, states, order))
        fair = steady([b["clocks"] for b in blocks])
        kept = [b for b, ok in zip(blocks, fair, strict=True) if ok]
        samples = _joined(kept, states, variants)
        late = len(blocks) >= _MOST_BLOCKS or time.monotonic() > until
        if len(kept) >= _LEAST_BLOCKS and (late or _known_well(samples)):
            break
        if kept and time.monotonic() > end:
            break
        if len(blocks) >= 2 * _MOST_BLOCKS:
            raise RuntimeError("the clocks do not stay the same for long enough")
    return {
        "rounds": _ROUNDS * len(kept),
        "kernels": blocks[0]["kernels"],
        "samples": samples,
        "blocks": len(blocks),
        "blocks_dropped": len(blocks) - len(kept),
        "clocks": [b["clocks"] for b in blocks],
    }


def _joined(blocks: Sequence[Mapping[str, Any]], states: Iterable[str], variants: Iterable[str]) -> dict[str, Any]:
    """Return the samples of several blocks as those of one."""

    def joined(state: str, name: str, kind: str) -> list[int]:
        return [value for each in blocks for value in each["samples"][state][name][kind]]

    names = [*variants]
    return {s: {n: {kind: joined(s, n, kind) for kind in ("sum_ns", "span_ns")} for n in names} for s in states}


def _known_well(samples: Mapping[str, Any]) -> bool:
    for found in samples.values():
        for name in ("eager", "compiled"):
            if name not in found:
                continue
            against = ratio(found[name]["sum_ns"], found["fused"]["sum_ns"])
            if against["high"] - against["low"] > 2 * _ENOUGH * against["ratio"]:
                return False
    return True


def ratio(first: Sequence[int], second: Sequence[int], on_gpu: bool = True) -> dict[str, float]:
    """Return how many times as long the first takes as the second: medians, and a paired bootstrap's 95 % interval.

    Where the second is nothing, it is taken to be a nanosecond.

    Samples of one place come from one round: both lists are drawn from together.

    >>> found = ratio([20, 22, 21, 20], [10, 11, 10, 10])
    >>> found["ratio"], 1.8 < found["low"] <= found["ratio"] <= found["high"] < 2.2
    (2.05, True)
    """
    count = min(len(first), len(second))
    pairs = torch.tensor([first[:count], second[:count]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, count, (_RESAMPLES, count), generator=generator)
    if on_gpu and torch.cuda.is_available():  # sorting is slow on a core
        pairs, drawn = pairs.cuda(), drawn.cuda()
    medians = pairs[:, drawn].quantile(0.5, dim=2)
    found = medians[0] / medians[1].clamp_min(1.0)
    low, high = found.quantile(found.new_tensor([0.025, 0.975])).tolist()
    middle = statistics.median(first[:count]) / max(statistics.median(second[:count]), 1)
    return {"ratio": round(middle, 4), "low": round(min(low, middle), 4), "high": round(max(high, middle), 4)}


def judged(samples: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, Any]:
    """Return ratios: of others to the fused kernels, of eager to each call in their place, of eager to itself."""
    sums = {name: found["sum_ns"] for name, found in samples.items()}
    halves = sums["eager"][0::2], sums["eager"][1::2]
    noise = ratio(*halves)
    floor = max(_LEAST_GAIN, 2 * abs(noise["ratio"] - 1))
    found: dict[str, Any] = {"eager_against_itself": noise, "least_gain": round(floor, 4)}
    found |= {name: ratio(own, sums["fused"]) for name, own in sums.items() if name not in ("fused", "copy")}
    found["faster_than_eager"] = found["eager"]["low"] > 1 + floor
    found["slower_than_eager"] = found["eager"]["high"] < 1 - floor
    if "compiled" in found:
        found["not_slower_than_compile"] = found["compiled"]["high"] >= 1 - floor
        found["faster_than_compile"] = found["compiled"]["low"] > 1 + floor
    for call in ("library", "compiled"):  # each of them as if it stood in the kernel's place
        if call not in sums:
            continue
        to_call = {
            name: ratio(sums[name], sums[call]) for name in ("eager", "compiled") if name in sums and name != call
        }
        found[f"to_{call}"] = to_call
        found[f"{call}_faster_than_eager"] = to_call["eager"]["low"] > 1 + floor
        found[f"{call}_slower_than_eager"] = to_call["eager"]["high"] < 1 - floor
        if "compiled" in to_call:
            found[f"{call}_not_slower_than_compile"] = to_call["compiled"]["high"] >= 1 - floor
    return found


def measure(
    variants: Mapping[str, Callable[..., object]],
    described: Described,
    nbytes: int,
    read_bytes: int,
    seconds: float = float("inf"),
    end: float = float("inf"),
) -> dict[str, Any]:
    """Return all timings of a graph.

    nbytes: what one kernel has to read and write; with it a plain kernel is timed that reads half of them and writes
    half (the driver's own copy is slower where little is copied). read_bytes: of nbytes what is read. seconds: after
    them no block of samples is begun. end: when all should be done, by time.monotonic: other clocks are left out then.
    """
    until = time.monotonic() + seconds
    inputs = make_inputs(described)
    sources = copies(inputs)
    mine = copies(inputs)  # the same for all, so that all find the cache in the same state

    def called(work: Callable[..., object]) -> Callable[[], object]:
        return lambda: work(*mine)

    calls = {name: called(work) for name, work in variants.items()}
    half = torch.randn(max(nbytes // 8, 1), device="cuda")
    other = torch.empty_like(half)

    def warm() -> None:
        for target, source in zip(mine, sources, strict=True):
            if 0 not in target.stride():
                target.copy_(source)

    def asked(clock: Callable[[], Any], name: str) -> Any:
        if time.monotonic() > end:
            left_out[name] = NO_TIME
            return {}
        return clock()

    left_out: dict[str, str] = {}
    found = times({**calls, "copy": lambda: torch.neg(half, out=other)}, warm, until, end)
    cold = {name: statistics.median(found["samples"]["cold"][name]["sum_ns"]) for name in calls}
    again = asked(lambda: other_clock(calls, found["kernels"]), "second clock")
    graphs = asked(lambda: {name: captured(work, _GRAPH_CALLS) for name, work in calls.items()}, "CUDA graphs")
    kept = torch.cuda.get_device_properties(0).L2_cache_size  # of what is written the cache may hold so much back
    least = (read_bytes + max(nbytes - read_bytes - kept, 0)) / (_PEAK_MARGIN * peak_bytes_per_second()) * 1e9
    return {
        **found,
        "judged": {state: judged(samples) for state, samples in found["samples"].items()},
        "graph_ns": replay_ns(graphs, _GRAPH_CALLS, 10),
        "wall_ns": asked(lambda: wall_times(calls), "calls from Python"),
        "other_clock_ns": again,
        "unstable": unstable(cold, again),
        "least_ns": round(least),
        "too_fast": [name for name in calls if cold[name] < least],
        "left_out": left_out,
        "bytes": nbytes,
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
    }


def by_profiler(
    variants: Mapping[str, Callable[[], object]],
    until: float,
    left_out: Mapping[str, str],
    compile_failed: str | None,
    end: float = float("inf"),
) -> dict[str, Any]:
    """Return timings as `measure` gives them, by the profiler's clock alone: of library calls, and of copies.

    end: after which one block of samples is enough.
    """
    found = times(variants, lambda: None, until, end)
    return {
        **found,
        "judged": {state: judged(samples) for state, samples in found["samples"].items()},
        "wall_ns": wall_times({name: variants[name] for name in ("eager", "fused")}),
        "graph_ns": {},
        "other_clock_ns": {},
        "unstable": [],
        "least_ns": 0,
        "too_fast": [],
        "left_out": dict(left_out),
        "compile_failed": compile_failed,
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
    }


def examined(
    eager: Work,
    others: Mapping[str, Work],
    described: Described,
    recorded: Sequence[Sequence[Any]],
    *,
    ulp: float,
    nbytes: int,
    read_bytes: int,
    draws: bool,
    compiles: Sequence[str],
    compile_s: float,
    seconds: float,
    within: float = float("inf"),
) -> dict[str, Any]:
    """Return everything about a graph: replay, what is right, what it takes.

    others: what stands in for eager, `fused` among them; another that raises is left out, and said to be. draws:
    whether what it gives differs from run to run, so that nothing is compared. compiles: modes of torch.compile that
    are tried too, each for compile_s seconds. seconds: after them no new block of samples is begun. within: so many are
    there for all of it: what is right comes first, then eager and the kernel; what else does not fit is left out.
    """
    since = [time.monotonic()]
    end = since[0] + within
    took: dict[str, float] = {}

    def done(phase: str) -> None:
        since.append(time.monotonic())
        took[phase] = round(took.get(phase, 0.0) + since[-1] - since[-2], 2)

    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "right": None, "seconds": took}
    found["replay"] = replayed(eager, described, recorded)
    done("replay")
    failed = _failing({name: work for name, work in others.items() if name != "fused"}, described)
    done("compile")
    variants = {name: work for name, work in others.items() if name not in failed}
    if not draws:
        rights = right(eager, variants, described, ulp)
        found["right"] = rights.pop("fused")
        found["right_others"] = rights
        if not repeats(others["fused"], described):
            found["right"]["faults"].append("ten runs differ from each other")
    done("right")
    if found["right"] is not None and found["right"]["faults"]:
        return found
    compiled, why = _compiled(eager, described, compiles, compile_s, end - took["right"])
    failed |= why
    done("compile")
    if compiled and not draws:
        found["right_others"] |= right(eager, compiled, described, ulp)
        done("right")
    found["times"] = measure({"eager": eager, **variants, **compiled}, described, nbytes, read_bytes, seconds, end)
    found["times"]["compile_failed"] = failed.get("compiled")
    found["times"]["left_out"] |= failed
    done("times")
    return found


def _failing(variants: Mapping[str, Work], described: Described) -> dict[str, str]:
    """Return why variants cannot be called: a library call may not be there in this torch, or not for these tensors."""
    failed: dict[str, str] = {}
    for name, work in variants.items():
        try:
            work(*copies(make_inputs(described)))
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    return failed


def _compiled(
    eager: Work, described: Described, modes: Sequence[str], compile_s: float, end: float
) -> tuple[dict[str, Work], dict[str, str]]:
    """Compile a graph in each mode, within a share of the time that is left; return what was made, and why not."""
    made: dict[str, Work] = {}
    failed: dict[str, str] = {}
    for name in modes:
        left = (end - time.monotonic()) * _COMPILE_SHARE
        if left < _LEAST_COMPILE_S:
            failed[name] = NO_TIME
            continue
        work, why = compiled_variants(eager, copies(make_inputs(described)), [name], min(compile_s, left))
        made |= work
        failed |= why
    return made, failed
