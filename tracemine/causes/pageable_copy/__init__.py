"""A copy between host and device from or to pageable memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tracemine.causes.cause import Cause
from tracemine.devices import Device
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import BoolArray, IntArray, category, number
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
    # Steps timed alone may be shorter than the device worked as recorded.
    longer_ns = context.busy_ns - context.unprofiled.mid_ns if context.unprofiled.of_step else 0
    share = each_ns / max(copies_ns, each_ns, 1.0)  # of all copies; a copy may have been recorded as lasting no time
    more_ns = min(max(longer_ns * share, 0.0), each_ns)
    low, notes = found.after_ns.low, found.assumptions
    if category(rows, "copy_kind").among("HtoD")[matrix[0, 0]]:
        beside_ns = int(max(context.busy_ns - copies_ns, 0) * share)
        low = max(low - beside_ns, 0)
        notes += (
            "the copy's own time stays; only the best end hides it, made a step ahead on a stream of its own, behind "
            f"the {time_text(beside_ns)} that other work lasts",
        )
    if more_ns >= 1_000:
        notes += (f"recording had it take {time_text(int(more_ns))} longer, which stays",)
    after = outwards(low + more_ns, found.after_ns.mid + more_ns, found.after_ns.high + more_ns)
    return on_gpu(context, matrix, replace(found, after_ns=after, assumptions=notes))


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


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether all of them go to the host."""
    if rule.saving != "pin_memory":
        return {}
    to_host = category(context.rows["activities"], "copy_kind").among("DtoH")
    return {"to_host": bool(to_host[np.concatenate([one.matrix.reshape(-1) for one in classes])].all())}


FACTS = AdviceFacts(docs={"to_host": FactDoc("what is copied goes from the device to the host")}, find=_facts)


CAUSE = Cause(rule="pageable_copy", savings={"pin_memory": estimate}, facts=FACTS)
