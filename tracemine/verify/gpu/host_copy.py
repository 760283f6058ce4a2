"""A copy between host and GPU, from or to pageable memory as a trace recorded it, and from or to pinned memory.

Part of every reproduction of such a finding that `verify --emit` writes: needs torch alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tracemine.verify.gpu.marks import name_digest
from tracemine.verify.gpu.profiling import traced
from tracemine.verify.gpu.timing import by_profiler


def examined_copy(nbytes: int, to_device: bool, recorded: Sequence[Sequence[Any]], seconds: float) -> dict[str, Any]:
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
    found["times"] = by_profiler(calls, began + seconds, {}, "a copy is not compiled") | {"bytes": nbytes}
    return found
