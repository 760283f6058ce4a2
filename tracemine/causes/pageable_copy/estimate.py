"""A copy between host and device from pinned memory instead of pageable: what it saves."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from tracemine.devices import Device
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, category, number
from tracemine.units import time_text


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate identical copies between host and device from pinned memory, which still take their time on the link.

    What they took longer in the recording than alone is nothing that pinning saves.
    """
    rows, dur = context.rows["activities"], context.facts["activities"].dur_ns
    nbytes = number(rows, "bytes_moved", null=-1)[matrix[0]]
    found = pinned(None if nbytes.min() < 0 else int(nbytes.sum()), context.device)
    if isinstance(found, Abstained):
        return found
    each_ns = float(dur[matrix].sum()) / len(matrix)
    of_steps = category(rows, "copy_kind").among("HtoD", "DtoH") & context.accounts.in_step
    copies_ns = int(dur[of_steps].sum()) / max(context.accounts.steps, 1)
    more_ns = each_ns * _recorded_more(context, copies_ns)
    if category(rows, "copy_kind").among("HtoD")[matrix[0, 0]]:
        ahead_ns = max(context.busy_ns - copies_ns, 0) * each_ns / max(copies_ns, each_ns)
        found = prefetched(found, int(ahead_ns))
    after = outwards(*(end + more_ns for end in (found.after_ns.low, found.after_ns.mid, found.after_ns.high)))
    notes = () if more_ns < 1_000 else (f"recording had it take {time_text(int(more_ns))} longer, which stays",)
    return on_gpu(context, matrix, replace(found, after_ns=after, assumptions=(*found.assumptions, *notes)))


def _recorded_more(context: ScanContext, copies_ns: float) -> float:
    """Return the share of copies' time by which steps, timed alone, are shorter than the device worked as recorded."""
    unprofiled = context.unprofiled
    if not unprofiled.of_step or copies_ns <= 0:
        return 0.0
    return float(np.clip((context.busy_ns - unprofiled.mid_ns) / copies_ns, 0.0, 1.0))


def prefetched(found: Estimate, beside_ns: int) -> Estimate:
    """Return a copy to the device that at best is made ahead, on a stream of its own, beside other work that lasts.

    >>> from tracemine.devices import find_device
    >>> prefetched(pinned(50_400_000, find_device("NVIDIA H200")), 700_000).after_ns
    Range(low=101000, mid=1001000, high=1501000)
    """
    after = found.after_ns
    return replace(
        found,
        after_ns=replace(after, low=max(after.low - beside_ns, 0)),
        assumptions=(
            *found.assumptions,
            "the copy's own time stays; only the best end hides it, made a step ahead on a stream of its own, behind "
            f"the {time_text(beside_ns)} that other work lasts",
        ),
    )


def pinned(nbytes: int | None, device: Device | None) -> Estimate | Abstained:
    """Estimate a copy between host and device from pinned memory instead of pageable.

    >>> from tracemine.devices import find_device
    >>> pinned(50_400_000, find_device("NVIDIA H200")).after_ns
    Range(low=801000, mid=1001000, high=1501000)
    """
    if device is None:
        return Abstained("device_unknown")
    if nbytes is None:
        return Abstained("bytes_unknown")
    raw_ns = nbytes * 1e9 / device.host_link_bytes_per_s
    mid_ns = raw_ns / device.host_link_share
    share, link = f"{device.host_link_share:.0%}", f"{device.host_link_bytes_per_s / 1e9:g} GB/s"
    return Estimate(
        after_ns=outwards(1_000 + raw_ns, 1_000 + mid_ns, 1_000 + 1.5 * mid_ns),
        assumptions=(
            f"a pinned copy reaches {share} of the {device.title}'s host link ({link}) and takes 1 µs to begin; "
            "low end: all of the link, high end: half as long again (assumed)",
        ),
    )
