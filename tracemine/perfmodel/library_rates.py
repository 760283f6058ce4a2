"""Rates of a device's libraries: the time of a product, convolution or attention from its FLOPs and bytes.

    time = launch + max(FLOPs ÷ rate, bytes ÷ bandwidth)

Two numbers, launch and rate, belong to an operation and the arithmetic that it is done in; small calls are far from
the rate because of the launch, skinny ones because of the bytes. What is left (tiles that do not fill the last wave,
choices of the library) is in the interval. The numbers come, the first that there are, from

1. a calibration: `tracemine calibrate` on this GPU;
2. recordings of this GPU (library_rates.toml, which benchmarks/predictions/library_rates.py prints);
3. those of another GPU, by the ratio of both data sheets' peaks;
4. the data sheet's peak of that arithmetic, times the share that products in half precision were recorded to reach.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracemine.devices import Device, find_device
from tracemine.perfmodel.calibration import Calibration, LibraryPoint
from tracemine.perfmodel.ranges import Range, combined, outwards
from tracemine.tables import table_beside

# The device table's types that each arithmetic may be stated as.
PEAKS: Final[Mapping[str, tuple[str, ...]]] = {
    "half": ("bf16", "fp16"),
    "fp8": ("fp8",),
    "int8": ("int8",),
    "tf32": ("tf32",),
    "fp32": ("fp32",),
    "fp64": ("fp64",),
}
# Of a tensor's type, with matrix units where there are any: float32 is `tf32` where that is allowed.
ARITHMETIC: Final[Mapping[str, str]] = {
    "float16": "half",
    "bfloat16": "half",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8": "int8",
    "float32": "fp32",
    "float64": "fp64",
}
FEWEST: Final = 6  # points that a rate is fitted to
ASSUMED: Final = (0.6, 1.8)  # around the points of another GPU, or of another arithmetic: assumed
_LAUNCHES_NS: Final = (1.5e3, 2e3, 2.5e3, 3e3, 4e3, 5e3, 6e3, 8e3, 10e3, 12e3, 16e3, 24e3)
_COARSE, _FINE = 0.05, 0.95
_TRIED: Final = np.geomspace(1e12, 4e15, 171)  # FLOP/s, 5 % apart: up to beyond every device of the table


class Rate(Struct, frozen=True, kw_only=True):
    """Launch and rate of one operation in one arithmetic, and measured ÷ predicted at the 5th and 95th percentile."""

    launch_ns: float
    flops_per_s: float
    low: float
    high: float
    points: int
    source: str  # in words

    def work_ns(self, flops: float, nbytes: float, bytes_per_s: float) -> float:
        """Return what a call takes beyond its launch."""
        return 1e9 * max(flops / self.flops_per_s, nbytes / bytes_per_s)

    def ns(self, flops: float, nbytes: float, bytes_per_s: float) -> Range:
        """Return time of a call.

        >>> rate = Rate(launch_ns=3000, flops_per_s=5e14, low=0.8, high=1.5, points=9, source="")
        >>> rate.ns(1e12, 0, 4e12)
        Range(low=1602400, mid=2003000, high=3004500)
        >>> rate.ns(1e6, 4e9, 4e12).mid
        1003000
        """
        mid = self.launch_ns + self.work_ns(flops, nbytes, bytes_per_s)
        return outwards(self.low * mid, mid, self.high * mid)


def fitted(points: Iterable[LibraryPoint], bytes_per_s: float, source: str) -> Rate | None:
    """Fit launch and rate to the least mean distance in logarithms; None of fewer than six points."""
    table = np.array([(p.flops, p.nbytes, p.ns) for p in points], dtype=np.float64)
    if len(table) < FEWEST:
        return None
    flops, nbytes, measured = table.T
    memory = nbytes / bytes_per_s * 1e9
    tried = (
        (
            float(np.abs(np.log(measured / (launch + np.maximum(flops / rate * 1e9, memory)))).mean()),
            launch,
            float(rate),
        )
        for rate in _TRIED
        for launch in _LAUNCHES_NS
    )
    _, launch, rate = min(tried)
    ratio = measured / (launch + np.maximum(flops / rate * 1e9, memory))
    low, high = np.quantile(ratio, [_COARSE, _FINE])
    return Rate(
        launch_ns=launch,
        flops_per_s=rate,
        low=min(float(low), 0.95),
        high=max(float(high), 1.05),
        points=len(table),
        source=source,
    )


class Rates(Struct, frozen=True, kw_only=True):
    """Rates that one device's libraries reach. `of` is None where nothing was measured and no peak is stated."""

    device: Device
    measured: Mapping[tuple[str, str], Rate]

    def of(self, operation: str, arithmetic: str) -> Rate | None:
        """Return the rate of an operation in an arithmetic, from the best source that there is."""
        own = self.measured.get((operation, arithmetic))
        if own is not None:
            return own
        peak = peak_of(self.device, arithmetic)
        if peak is None:
            return None
        return _of_another(operation, arithmetic, peak) or self._of_half(operation, peak)

    def _of_half(self, operation: str, peak: float) -> Rate | None:
        """Return the peak times the share that half precision was recorded to reach, of this operation."""
        known = self.measured.get((operation, "half")) or _of_another(operation, "half", 0.0)
        if known is None:
            return None
        of_device = self.device if (operation, "half") in self.measured else _recorded_on(operation, "half")
        most = None if of_device is None else peak_of(of_device, "half")
        if most is None:
            return None
        share = known.flops_per_s / most
        return replace(
            known,
            flops_per_s=share * peak,
            low=combined(known.low, ASSUMED[0]),
            high=combined(known.high, ASSUMED[1]),
            points=0,
            source=f"not measured: {share:.0%} of the data sheet's peak, as in half precision",
        )

    def ns(self, operation: str, arithmetic: str, flops: float, nbytes: float) -> Range | None:
        """Return time of a call; None where no rate is known."""
        rate = self.of(operation, arithmetic)
        return None if rate is None else rate.ns(flops, nbytes, self.device.achieved_bytes_per_s)


def rates_of(device: Device, calibration: Calibration | None = None) -> Rates:
    """Return the rates of a row of the device table.

    >>> from tracemine.devices import find_device
    >>> found = rates_of(find_device("NVIDIA H200"))
    >>> found.of("product", "half").source.startswith("recorded on an NVIDIA H200"), found.of("product", "int4") is None
    (True, True)
    """
    recorded = {key[1:]: rate for key, rate in _recorded().items() if key[0] == device.title}
    return Rates(device=device, measured=recorded | _calibrated(device, calibration))


def _calibrated(device: Device, calibration: Calibration | None) -> dict[tuple[str, str], Rate]:
    if calibration is None or not calibration.library:
        return {}
    by_kind: dict[tuple[str, str], list[LibraryPoint]] = defaultdict(list)
    for point in calibration.library:
        by_kind[point.operation, point.arithmetic].append(point)
    found = {
        kind: fitted(points, device.achieved_bytes_per_s, f"calibrated on an {calibration.gpu}")
        for kind, points in by_kind.items()
    }
    return {kind: rate for kind, rate in found.items() if rate is not None}


def peak_of(device: Device, arithmetic: str) -> float | None:
    """Return the data sheet's dense peak of an arithmetic, FLOP a second; None where none is stated.

    >>> from tracemine.devices import find_device
    >>> peak_of(find_device("NVIDIA H200"), "half"), peak_of(find_device("Tesla V100-SXM2-16GB"), "tf32")
    (989400000000000.0, None)
    """
    found = (device.flops_per_s.get(name) for name in PEAKS.get(arithmetic, ()))
    return next((float(peak) for peak in found if peak), None)


# --- recordings ------------------------------------------------------------------------------------------------------


@cache
def _recorded() -> dict[tuple[str, str, str], Rate]:
    """Read library_rates.toml: the rates by device, operation and arithmetic."""
    table = table_beside(__file__, "library_rates.toml")
    return {
        (row["device"], row["operation"], row["arithmetic"]): Rate(
            launch_ns=row["launch_ns"],
            flops_per_s=row["tflops"] * 1e12,
            low=row["low"],
            high=row["high"],
            points=row["points"],
            source=f"recorded on an {row['device']}, {row['points']} calls",
        )
        for row in table["rate"]
    }


def _recorded_on(operation: str, arithmetic: str) -> Device | None:
    """Return the device with the most recorded points of a kind."""
    found = [(rate.points, key[0]) for key, rate in _recorded().items() if key[1:] == (operation, arithmetic)]
    return find_device(max(found)[1]) if found else None


def _of_another(operation: str, arithmetic: str, peak: float) -> Rate | None:
    """Return another device's recorded rate, by the ratio of the peaks; with a peak of 0 as it is."""
    device = _recorded_on(operation, arithmetic)
    most = None if device is None else peak_of(device, arithmetic)
    if device is None or not most:
        return None
    rate = _recorded()[device.title, operation, arithmetic]
    if not peak:
        return rate
    return replace(
        rate,
        flops_per_s=rate.flops_per_s * peak / most,
        low=combined(rate.low, ASSUMED[0]),
        high=combined(rate.high, ASSUMED[1]),
        points=0,
        source=f"not measured: {rate.source}, scaled by the data sheets",
    )
