"""The binary report (`.ncu-rep`), through NVIDIA's own package `ncu-report`, where the user has installed it.

The package reads a report without a GPU, a driver or ncu. It says nothing about files that are none (it finds no
kernels in them), so the first bytes are looked at here. A report that was cut short reads as one of fewer kernels, and
one that is damaged may end the process that reads it: that is a child, with limits (`binary.py`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tracemine.counters.record import CounterReport
from tracemine.errors import InputError, Location
from tracemine.extras import install
from tracemine.formats.ncu.binary import ReportAnswer, answered, question
from tracemine.formats.ncu.kernels import kernel_of
from tracemine.formats.ncu.numbers import parser
from tracemine.formats.source import FileSource
from tracemine.processes import Ended, Process, TooLate, how_ended, limit_memory, worker

MAGIC = b"NVR\0"
RULES_LEFT_OUT = "rule_beyond_bound"
NOT_A_KERNEL = "not_a_kernel"  # a range, a graph or a command list, profiled as a whole
_COMMAND = worker("tracemine.formats.ncu.worker")
_LIMIT_S, _BYTES_A_SECOND = 120.0, 1 << 20
_MOST_BYTES, _TIMES_ITS_SIZE = 8 << 30, 20  # addresses
_RECORD_AGAIN = "it may be damaged or cut off: copy it again, or profile again with ncu -o report PROGRAM"


def read_report(source: FileSource) -> CounterReport:
    """Return the kernels of a binary report.

    Raises InputError if the package is missing, or finds no kernels.
    """
    where = Location(source.path)
    with _on_disk(source) as file:
        found = _read(file, where)
    if found.missing:
        raise InputError(
            "is a binary report, which needs NVIDIA's package ncu-report",
            where=where,
            hint=f"{install('ncu')}, or print it: ncu --import FILE --csv --page raw > report.csv",
        )
    if found.error is not None:
        raise InputError(f"cannot be read by ncu-report ({found.error})", where=where, hint=_RECORD_AGAIN)
    if not found.readings:
        raise InputError("has no kernels that can be read", where=where, hint=_RECORD_AGAIN)
    point = parser(".")
    kernels = tuple(kernel_of(reading, i, point) for i, reading in enumerate(found.readings))
    dropped = {NOT_A_KERNEL: found.others, RULES_LEFT_OUT: sum(reading.rules_left_out for reading in found.readings)}
    dropped = {reason: count for reason, count in dropped.items() if count}
    return CounterReport(source="", page="report", kernels=kernels, dropped=dropped)


def _read(file: Path, where: Location) -> ReportAnswer:
    """Return what the package says of a report. Raises InputError where it ends, or takes too long."""
    try:
        return answered(_asked(file))
    except TooLate:
        says = "it took too long"
    except Ended as end:
        says = f"it {how_ended(end.code, ())}" if end.code < 0 else f"it ended with {end.code}"
    except (ValueError, msgspec.DecodeError):
        says = "it answered with something else"
    raise InputError(f"cannot be read by ncu-report ({says})", where=where, hint=_RECORD_AGAIN)


def _asked(file: Path) -> bytes:
    """Return the line that a child answers. Raises TooLate, Ended."""
    size = file.stat().st_size
    most_bytes = _MOST_BYTES + _TIMES_ITS_SIZE * size
    with Process(_COMMAND, os.environ, lambda pid: limit_memory(pid, most_bytes)) as child:
        return child.ask(question(str(file.absolute())), _LIMIT_S + size / _BYTES_A_SECOND)


@contextmanager
def _on_disk(source: FileSource) -> Iterator[Path]:
    """Yield the report as a plain file: itself, or a packed one unpacked for as long as it is needed."""
    if not source.compressed:
        yield Path(source.path)
        return
    with tempfile.TemporaryDirectory(prefix="tracemine.") as folder:
        file = Path(folder, "report.ncu-rep")
        block = memoryview(bytearray(1 << 20))
        with file.open("wb") as out:
            while count := source.readinto(block):
                out.write(block[:count])
        yield file
