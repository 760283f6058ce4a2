"""A calibration for a device that was not measured, from one that was and the data sheets of both."""

from __future__ import annotations

import msgspec

from tracemine.devices import Device
from tracemine.perfmodel.calibration import Calibration


def scaled(base: Calibration, known: Device, device: Device) -> Calibration:
    """Scale a calibrated device's patterns to another one: bytes by bandwidth, launches as they are.

    Arithmetic is scaled along: devices whose arithmetic falls behind their bandwidth are why the interval is wide.
    """
    ratio = known.achieved_bytes_per_s / device.achieved_bytes_per_s
    cold, warm = (min(getattr(p, name) for p in base.points) for name in ("cold_ns", "warm_ns"))
    points = tuple(
        msgspec.structs.replace(
            point,
            cold_ns=round(cold + (point.cold_ns - cold) * ratio),
            warm_ns=round(warm + (point.warm_ns - warm) * ratio),
        )
        for point in base.points
    )
    return msgspec.structs.replace(
        base,
        gpu=device.title,
        sm_count=device.sm_count,
        l2_bytes=base.l2_bytes if device.l2_bytes is None else device.l2_bytes,
        points=points,
    )
