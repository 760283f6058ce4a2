"""Calibrations that did not come with the package: those that `tracemine calibrate` wrote for a user, and a named one.

The most specific one counts: the file that was named for this scan. Else, in the user's data folder, one of a GPU of
the same name and size, or one of the same row of the device table. Else what the package has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from tracemine.devices import Device, find_device
from tracemine.errors import InputError, Location
from tracemine.files import path_text
from tracemine.perfmodel.calibration import CALIBRATE_HINT, Calibration, read_calibration
from tracemine.perfmodel.fused_time import Curves

_MOST_FILES = 64  # of the data folder are read


class GPU(Struct, frozen=True):
    """A trace's GPU as its profiler names it."""

    name: str | None
    sm_count: int | None = None
    device: Device | None = None  # the device table's row for it; None: it has none


class UserCalibration(Struct, frozen=True, kw_only=True):
    """A calibration made ready, and the file that it was read from."""

    curves: Curves
    path: str
    named: bool = False  # for this scan

    @property
    def calibration(self) -> Calibration:
        return self.curves.calibration

    def fit(self, gpu: GPU) -> int:
        """Return how well it fits a trace's GPU: 0 not, 1 the same row of the device table, 2 the same name and size.

        A named one fits a GPU that is not known, too.
        """
        own = self.calibration
        same_size = gpu.sm_count is None or gpu.sm_count == own.sm_count
        if same_size and gpu.name is not None and gpu.name.casefold() == own.gpu.casefold():
            return 2
        if gpu.device is None:
            return int(self.named)
        return int(find_device(own.gpu, sm_count=own.sm_count) is gpu.device)


class ChosenCalibration(Struct, frozen=True, kw_only=True):
    """Calibration that fused times of one trace are read off."""

    curves: Curves | None = None  # None: nothing is known of its GPU
    path: str | None = None  # of the file; None: it came with the package
    notes: tuple[str, ...] = ()  # one sentence each: what was not used, and why


def data_folder() -> Path:
    """Return where `tracemine calibrate` writes and a scan looks: the XDG base directory for a user's data."""
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path("~/.local/share")
    with suppress(RuntimeError):  # no home folder is known
        base = base.expanduser()
    return base / "tracemine" / "calibration"


def file_name(gpu: str) -> str:
    """Return the name of a GPU's file there.

    >>> file_name("NVIDIA H100 80GB HBM3")
    'nvidia_h100_80gb_hbm3.json'
    >>> file_name("../../etc/passwd")
    'etc_passwd.json'
    """
    return f"{re.sub('[^a-z0-9]+', '_', gpu.casefold()).strip('_')[:100] or 'gpu'}.json"


def read_measured(path: Path, *, named: bool = True) -> UserCalibration:
    """Read the calibration in a file. Raise InputError, also where a pattern that predictions need is missing in it."""
    calibration = read_calibration(path)
    try:
        return UserCalibration(curves=Curves(calibration, file=path_text(path.name)), path=path_text(path), named=named)
    except InputError as error:
        raise InputError(str(error.message), where=Location(str(path)), hint=CALIBRATE_HINT) from None


def of_this_user(folder: Path | None = None) -> tuple[tuple[UserCalibration, ...], tuple[str, ...]]:
    """Return the calibrations of the data folder, by name, and a note for each file there that is none."""
    folder = data_folder() if folder is None else folder
    found, notes = [], []
    for path in sorted(folder.glob("*.json"))[:_MOST_FILES]:
        try:
            found.append(read_measured(path, named=False))
        except InputError as error:
            notes.append(f"A calibration was not used: {str(error).splitlines()[0]}")
    return tuple(found), tuple(notes)


def chosen(gpu: GPU, own: Sequence[UserCalibration]) -> ChosenCalibration:
    """Return the calibration for a trace's GPU: the most specific of `own`, else what the package has.

    >>> from tracemine.devices import find_device
    >>> chosen(GPU("NVIDIA H200", 132, find_device("NVIDIA H200")), ()).curves.calibration.gpu
    'NVIDIA H200'
    >>> chosen(GPU("Brand New"), ())
    ChosenCalibration(curves=None, path=None, notes=())
    """
    notes = tuple(_not_used(one, gpu) for one in own if one.named and not one.fit(gpu))
    best = max((one for one in own if one.fit(gpu)), key=lambda one: (one.named, one.fit(gpu)), default=None)
    if best is not None:
        return ChosenCalibration(curves=best.curves, path=best.path, notes=notes)
    return ChosenCalibration(curves=None if gpu.device is None else Curves.of(gpu.device), notes=notes)


def _not_used(one: UserCalibration, gpu: GPU) -> str:
    return f"{one.path} was measured on {one.calibration.gpu} and not used: this trace is of {gpu.name}."
