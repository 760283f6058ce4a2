"""A GPU's clocks, temperature and power, as its driver says them: read around every block of samples, never set."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

_ASKED = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
_OFF = 0.02  # a block whose clock is further than this from the median's is no fair sample


def gpu_state() -> tuple[float, ...] | None:
    """Return MHz of multiprocessors, MHz of memory, degrees Celsius, watts; None where the driver does not say."""
    with contextlib.suppress(Exception):  # no such library, or a driver that refuses: the next way is tried
        return _by_library()
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return _by_program()
    return None


def _by_library() -> tuple[float, ...]:
    import pynvml  # type: ignore[import-not-found, import-untyped, unused-ignore]

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    clocks = [pynvml.nvmlDeviceGetClockInfo(handle, kind) for kind in (1, 2)]  # multiprocessors, memory
    warm = pynvml.nvmlDeviceGetTemperature(handle, 0)
    return (*map(float, clocks), float(warm), pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)


def _by_program() -> tuple[float, ...]:
    program = shutil.which("nvidia-smi")
    if program is None or not Path(program).is_absolute():  # by an entry of PATH that is the current folder's
        raise ValueError("no nvidia-smi")
    command = [program, f"--query-gpu={_ASKED}", "--format=csv,noheader,nounits", "-i"]
    command.append(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    asked = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    return tuple(float(text) for text in asked.stdout.split(","))


def steady(blocks: Sequence[Sequence[Sequence[float] | None]]) -> list[bool]:
    """Return which blocks ran at the usual clocks: each is what `gpu_state` said at its begin and end.

    >>> steady([[(1980, 3201, 40, 300)] * 2] * 3 + [[(1980, 3201, 40, 300), (1700, 3201, 41, 690)]])
    [True, True, True, False]
    >>> steady([[None, None]])
    [True]
    """
    found = [True] * len(blocks)
    for kind in (0, 1):
        means = [statistics.mean(s[kind] for s in states) if (states := _known(b)) else None for b in blocks]
        known = [m for m in means if m is not None]
        middle = statistics.median(known) if known else 0.0
        found = [ok and (m is None or abs(m - middle) <= _OFF * middle) for ok, m in zip(found, means, strict=True)]
    return found


def _known(block: Sequence[Sequence[float] | None]) -> list[Any]:
    return [state for state in block if state is not None]
