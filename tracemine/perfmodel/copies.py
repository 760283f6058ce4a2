"""Time of copies between host and device from other memory."""

from __future__ import annotations

from tracemine.devices import Device
from tracemine.perfmodel.ranges import Abstained, Estimate, outwards


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
