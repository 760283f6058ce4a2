"""Devices and calibrations that come with tracemine, by name; one that is not there fails the test that asks for it."""

from __future__ import annotations

from tracemine.devices import Device, find_device
from tracemine.perfmodel import calibration_of
from tracemine.perfmodel.calibration import Calibration


def known_device(name: str) -> Device:
    found = find_device(name)
    assert found is not None, name
    return found


def known_calibration(name: str) -> Calibration:
    found = calibration_of(name)
    assert found is not None, name
    return found
