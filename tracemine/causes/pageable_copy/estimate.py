"""A copy between host and device from pinned memory instead of pageable: what it saves."""

from __future__ import annotations

from tracemine.devices import Device
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray, number


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate identical copies between host and device from pinned memory."""
    nbytes = number(context.rows["activities"], "bytes_moved", null=-1)[matrix[0]]
    found = pinned(None if nbytes.min() < 0 else int(nbytes.sum()), context.device)
    return on_gpu(context, matrix, found)


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
