"""What a library's calls take by a device's rates: where the rates come from, and how they are fitted."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from tests.known import known_calibration, known_device
from tracemine.devices import Device, devices
from tracemine.errors import InputError
from tracemine.perfmodel import parse_calibration
from tracemine.perfmodel.calibration import LibraryPoint
from tracemine.perfmodel.library_rates import FEWEST, PEAKS, Rates, fitted, peak_of, rates_of

H200, A100, V100 = (known_device(name) for name in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB"))
BANDWIDTH = 4e12


def point(flops: float, nbytes: float, ns: float, operation: str = "product") -> LibraryPoint:
    return LibraryPoint(operation, "half", "", int(flops), int(nbytes), int(ns))


def made(rate: float, launch_ns: float, spread: float = 1.0) -> list[LibraryPoint]:
    """Calls of a device that does exactly so, each once so many times slower and once faster."""
    work = [(10.0**power, 3e5 * 10 ** (power / 3)) for power in np.linspace(7, 12, 40)]
    return [
        point(flops, nbytes, factor * (launch_ns + max(flops / rate, nbytes / BANDWIDTH) * 1e9))
        for flops, nbytes in work
        for factor in (1 / spread, 1, spread)
    ]


def test_a_fit_finds_the_launch_and_the_rate_that_calls_were_made_with() -> None:
    found = fitted(made(6e14, 3000), BANDWIDTH, "made")
    assert found is not None
    assert found.launch_ns == 3000
    assert found.flops_per_s == pytest.approx(6e14, rel=0.06)


def test_the_interval_of_a_fit_holds_nine_of_ten_calls() -> None:
    points = made(6e14, 3000, spread=1.4)
    rate = fitted(points, BANDWIDTH, "made")
    assert rate is not None
    ranges = [rate.ns(one.flops, one.nbytes, BANDWIDTH) for one in points]
    held = [r.low <= one.ns <= r.high for r, one in zip(ranges, points, strict=True)]
    assert 0.85 <= sum(held) / len(held) <= 1.0
    assert rate.high < 1.7


def test_few_points_fit_nothing() -> None:
    assert fitted(made(6e14, 3000)[: FEWEST - 1], BANDWIDTH, "made") is None


def test_a_skinny_product_is_held_against_bandwidth() -> None:
    """One row: 2·m·n·k FLOPs of which each weight does two, 134 MB of weights."""
    nbytes = 2 * 8192 * 8192
    found = rates_of(H200).ns("product", "half", 2 * 8192 * 8192, nbytes)
    assert found is not None
    assert found.mid == pytest.approx(3_000 + nbytes / H200.achieved_bytes_per_s * 1e9, rel=0.01)


@pytest.mark.parametrize("device", devices(), ids=lambda device: device.title)
def test_every_device_has_a_rate_for_each_arithmetic_that_its_data_sheet_states_and_none_beyond(device: Device) -> None:
    rates = rates_of(device)
    for arithmetic in PEAKS:
        peak, rate = peak_of(device, arithmetic), rates.of("product", arithmetic)
        assert (rate is None) == (peak is None)
        assert rate is None or peak is None or rate.flops_per_s < peak


def test_a_device_that_nothing_was_recorded_of_has_a_wider_interval_and_says_so() -> None:
    own, other = rates_of(H200).of("product", "half"), rates_of(A100).of("product", "half")
    assert own is not None
    assert other is not None
    assert (other.low, other.points) < (own.low, own.points)
    assert other.high > own.high
    assert other.source.startswith("not measured")
    assert not own.source.startswith("not measured")


def test_what_was_measured_in_half_precision_alone_is_assumed_of_another_arithmetic() -> None:
    half, tf32 = (rates_of(H200).of("product", arithmetic) for arithmetic in ("half", "tf32"))
    assert half is not None
    assert tf32 is not None
    assert tf32.flops_per_s / half.flops_per_s == pytest.approx(494.7 / 989.4, rel=0.01)
    assert tf32.high > half.high


def test_turing_and_volta_have_no_tf32() -> None:
    assert rates_of(V100).of("product", "tf32") is None


def test_an_operation_of_which_nothing_is_known_has_no_rate() -> None:
    assert rates_of(H200).of("sorting", "half") is None
    assert rates_of(H200).ns("product", "int4", 1, 1) is None


def test_a_device_without_recordings_or_peaks_has_no_rate() -> None:
    bare = replace(H200, title="Another", flops_per_s={})
    assert Rates(device=bare, measured={}).of("product", "half") is None


def test_a_calibration_of_this_gpu_goes_before_recordings() -> None:
    shipped = known_calibration(H200.title)
    points = tuple(point(one.flops, one.nbytes, one.ns) for one in made(3e14, 5000))
    own = msgspec.structs.replace(shipped, library=points)
    found = rates_of(H200, own).of("product", "half")
    assert found is not None
    assert found.flops_per_s == pytest.approx(3e14, rel=0.06)
    assert found.source == "calibrated on an NVIDIA H200"
    assert rates_of(H200, own).of("convolution", "half") == rates_of(H200).of("convolution", "half")


def test_a_calibration_file_keeps_what_libraries_reached() -> None:
    shipped = known_calibration(H200.title)
    own = msgspec.structs.replace(shipped, library=tuple(made(3e14, 5000)))
    assert parse_calibration(own.to_json()) == own
    assert own.to_json().count(b"\n") > len(own.points) + len(own.library or ())


def test_a_file_of_an_older_version_has_measured_no_library() -> None:
    shipped = known_calibration(H200.title)
    content = msgspec.json.decode(shipped.to_json())
    content.pop("library", None)
    assert parse_calibration(msgspec.json.encode(content)).library is None


@pytest.mark.parametrize("wrong", [point(0, 1, 1), point(1, 0, 1), point(1, 1, 0), point(1 << 61, 1, 1)])
def test_a_point_that_cannot_be_is_refused(wrong: LibraryPoint) -> None:
    shipped = known_calibration(H200.title)
    with pytest.raises(InputError, match="greater than can be"):
        parse_calibration(msgspec.structs.replace(shipped, library=(wrong,)).to_json())
