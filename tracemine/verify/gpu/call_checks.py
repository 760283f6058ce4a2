"""Reproductions without a kernel: a copy between host and device; calls and other ways to compute the same."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tracemine.verify.gpu.check import NO_GPU, Check, median_us, table_rows
from tracemine.verify.gpu.compiling import MODES, compiled_variants
from tracemine.verify.gpu.correctness import copies, make_inputs
from tracemine.verify.gpu.library_call import WAYS, Way, examined_call, ways_tried
from tracemine.verify.gpu.marks import name_digest
from tracemine.verify.gpu.profiling import traced
from tracemine.verify.gpu.timing import by_profiler

MOST_ON_CPU = 1 << 23  # elements of all inputs, of calls that a CPU tries as they were recorded


@dataclass(frozen=True, kw_only=True)
class CopyCheck(Check):
    """A copy between host and device, from pageable and from pinned memory."""

    nbytes: int
    to_device: bool

    def results(
        self, compiles: Sequence[str] = (), compile_s: float = 0.0, seconds: float = 10.0, within: float = float("inf")
    ) -> dict[str, Any]:
        found = {"fingerprint": self.fingerprint, "kernel": True, "by": "pinned memory", **self.own()}
        return found | _examined_copy(self.nbytes, self.to_device, self.trace, seconds, within)

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        yield f"{self.title} ({self.fingerprint})"
        yield f"{found['device']}, {self.nbytes:,} bytes {'to' if self.to_device else 'from'} the device"
        samples = found.get("times", {}).get("samples", {})
        rows = [("", *(f"{state} us" for state in samples))]
        for says, name in (("pageable", "eager"), ("pinned", "fused")):
            rows.append((says, *(f"{median_us(samples[state], name):.2f}" for state in samples)))
        yield from ("", *table_rows(rows), "")
        yield from found["right"]["faults"] or ["right: the bytes that were sent arrived"]
        yield f"the trace's own copy: {'yes' if found['replay']['same_names'] else 'no'}"


@dataclass(frozen=True, kw_only=True)
class CallCheck(Check):
    """Calls as recorded, and other ways to compute the same: keys of WAYS, and the file's own. The rest as in
    Reproduction.

    fixed: the file's own ways, by name. ulp: that functions of the calls may be off by; None: a call that is bilinear.
    rounds: the calls' computation in another order, as the ways have it: what it rounds they may round.
    """

    eager: Callable[..., Any]
    ways: Sequence[str] = ()
    fixed: Mapping[str, Way] = field(default_factory=dict)
    inputs: Sequence[tuple[Any, ...]]
    ulp: float | None = None
    rounds: Callable[..., Any] | None = None

    @property
    def _all(self) -> dict[str, Way]:
        return {name: WAYS[name] for name in self.ways} | dict(self.fixed)

    def compile_only(
        self, compiles: Sequence[str] = tuple(MODES), compile_s: float = 60.0, within: float = float("inf")
    ) -> dict[str, Any]:
        compiled_variants(self.eager, copies(make_inputs(self.inputs)), compiles[:1], min(compile_s, within))
        torch.cuda.synchronize()
        return {}

    def results(
        self, compiles: Sequence[str] = (), compile_s: float = 15.0, seconds: float = 10.0, within: float = float("inf")
    ) -> dict[str, Any]:
        found = {"fingerprint": self.fingerprint, "kernel": True, "by": "another call", **self.own()}
        return found | examined_call(
            self.eager,
            self._all,
            self.inputs,
            self.trace,
            compiles,
            compile_s,
            min(seconds, within),
            self.ulp,
            self.rounds,
            within,
        )

    def without_gpu(self) -> dict[str, Any]:
        """Return which ways are right on a CPU, at the recorded sizes."""
        count = sum(math.prod(shape) for _, shape, *_ in self.inputs)
        if count > MOST_ON_CPU:
            raise SystemExit(NO_GPU)
        tried = ways_tried(self.eager, self._all, self.inputs, self.ulp, "cpu", self.rounds)
        faults = [f for each in tried.values() for f in each["faults"]]
        right = any(not each["faults"] for each in tried.values())
        found = {"fingerprint": self.fingerprint, "on_cpu": True, "ways": tried, **self.own()}
        return found | {"right": {"faults": [] if right else faults}}

    def table(self, found: Mapping[str, Any]) -> Iterator[str]:
        yield f"{self.title} ({self.fingerprint})"
        yield f"{found.get('device', 'No GPU here: on the CPU')}, torch {torch.__version__}"
        samples = found.get("times", {}).get("samples", {})
        yield from ("", *table_rows(_time_rows(samples, found.get("way", ""))), "")
        for name, each in found["ways"].items():
            took = f", {each['first_ns'] / 1000:.2f} us" if "first_ns" in each else ""
            by = "of what rounding allows" if self.ulp is None else "from float64"
            says = each["faults"][0] if each["faults"] else f"right ({each['error']:.2g} {by}){took}"
            yield f"{name}: {says}" + ("" if name not in self._all else f" - {self._all[name].says}")
        if "replay" in found:
            yield f"eager launched {'the' if found['replay']['same_names'] else 'NOT the'} trace's own kernels"


def _time_rows(samples: Mapping[str, Mapping[str, Any]], way: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of times: medians by state of the cache, and how many times as long eager takes in the first."""
    yield ("", *(f"{state} us" for state in samples), *(["eager / it"] if samples else []))
    eager = median_us(next(iter(samples.values()), {}), "eager")
    for label, name in (("eager", "eager"), (way, "fused"), ("torch.compile", "compiled")):
        medians = [us for each in samples.values() if (us := median_us(each, name)) is not None]
        if medians and eager is not None:
            ratio = f"{eager / medians[0]:.2f}x" if medians[0] else "-"
            yield (label, *(f"{us:.2f}" for us in medians), ratio)


def _examined_copy(
    nbytes: int, to_device: bool, recorded: Sequence[Sequence[Any]], seconds: float, within: float
) -> dict[str, Any]:
    """Return everything about a copy of so many bytes: replay, whether what arrives is what was sent, what it takes.

    recorded: its name in the trace, the name's digest, and no grid. seconds: after them no new block of samples is
    begun. Nothing but the profiler's clock is asked: a pageable copy is the host's work too, and events around it
    would hold its waits.
    """
    began = time.monotonic()
    sent = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    device = sent.cuda()
    pageable, pinned, other = torch.empty_like(sent), sent.pin_memory(), sent.pin_memory()

    def copy(host: torch.Tensor, waits: bool) -> Callable[[], object]:
        if to_device:
            return lambda: device.copy_(host, non_blocking=not waits)
        return lambda: host.copy_(device, non_blocking=not waits)

    pageable.copy_(sent)
    calls = {"eager": copy(pageable, True), "fused": copy(pinned, False), "copy": copy(other, False)}
    kernels = [[e["name"], None] for e in traced(calls["eager"])]
    names = [name_digest(str(name)) for name, _ in kernels] == [str(digest) for _, digest, _ in recorded]
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(0),
        "replay": {"same_count": len(kernels) == len(recorded), "same_names": names, "same_grids": names},
        "right": {"faults": []},
    }
    found["replay"]["kernels"] = kernels
    for name, host in (("eager", pageable), ("fused", pinned)):
        arrived = device if to_device else host
        arrived.zero_()
        calls[name]()
        torch.cuda.synchronize()
        if not torch.equal(arrived.cpu(), sent):
            found["right"]["faults"].append(f"{name}: not the bytes that were sent")
        device.copy_(sent)
        host.copy_(sent)
    if found["right"]["faults"]:
        return found
    found["times"] = by_profiler(calls, began + seconds, {}, "a copy is not compiled", began + within) | {
        "bytes": nbytes
    }
    return found
