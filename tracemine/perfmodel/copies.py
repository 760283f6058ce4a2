"""Time of copies between host and device from other memory."""

from __future__ import annotations

from tracemine.devices import Device
from tracemine.perfmodel.ranges import Abstained, Estimate, outwards
from tracemine.units import bytes_text, percent_text


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


def overlapped(nbytes: int, dur_ns: float, exposed_ns: float, room: float, memory: str | None) -> Estimate:
    """Estimate a copy between host and device that overlaps other work, or not at all.

    exposed_ns: how long of its time nothing else ran. room: which share of all that is exposed other work lasts for.

    >>> overlapped(25_000_000, 900_000, 800_000, 0.25, "pinned").after_ns
    Range(low=100000, mid=700000, high=900000)
    >>> overlapped(25_000_000, 900_000, 900_000, 0.25, "pinned").assumptions[0].partition(";")[0]
    '25.0 MB at 27.8 GB/s from or to pinned memory, 0.0 % of it overlapped by other work'
    """
    reached = f"{bytes_text(nbytes)} at {bytes_text(nbytes * 1e9 / max(dur_ns, 1))}/s"
    kind = "" if memory is None else f" from or to {memory} memory"
    beside = percent_text(dur_ns - exposed_ns, dur_ns)
    return Estimate(
        after_ns=outwards(dur_ns - exposed_ns, dur_ns - exposed_ns * room, dur_ns),
        assumptions=(
            f"{reached}{kind}, {beside} of it overlapped by other work; low end of the saving: what runs next waits "
            f"for it; middle: it hides behind all else that runs, which lasts for {percent_text(room, 1)} of such "
            "copies (assumed); high end: it stays on the device",
        ),
    )
