"""Nsight Compute: tables that `ncu --csv` prints, and binary reports, as counters of kernels.

The package reads a report without a GPU, a driver or ncu. It says nothing about files that are none (it finds no
kernels in them), so the first bytes are looked at here. A report that was cut short reads as one of fewer kernels, and
one that is damaged may end the process that reads it: that is a child, with limits (`binary.py`).
"""

from __future__ import annotations

import codecs
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tracemine.counters import CounterReport
from tracemine.errors import InputError, Location
from tracemine.extras import install
from tracemine.formats.ncu.binary import ReportAnswer, answered, question
from tracemine.formats.ncu.kernels import kernel_of
from tracemine.formats.ncu.table import parser, read_table
from tracemine.formats.source import FileSource
from tracemine.processes import Ended, Process, TooLate, how_ended, limit_memory, worker
from tracemine.units import count_text

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


__all__ = ["read_counters"]

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}  # as PowerShell redirects
_BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 26  # characters: a table's row has some hundred kilobytes at most


def read_counters(path: Path | str) -> CounterReport:
    """Read a report of Nsight Compute: what `ncu --csv` printed, or an `.ncu-rep`; plain or gzipped, by content.

    Only kernel names, their launch configuration, the GPU's name and counters are taken over: nothing of the host,
    the user, the process or a path.

    Raises InputError if it is neither, or has no kernels.

    >>> read_counters("no/such/report.csv")
    Traceback (most recent call last):
    tracemine.errors.InputError: no/such/report.csv: there is no such file
    """
    path = Path(path)
    with FileSource(path) as source:
        if source.head.startswith(MAGIC):
            report = read_report(source)
        else:
            _refuse_other(source)
            report = read_table(_lines(source), source.path)
        said = list(report.warnings)
        if source.truncated:
            said.append("its gzip data is cut off or damaged: what could be inflated was read")
        if source.behind:
            said.append(f"behind its gzip data stand {count_text(source.behind, 'byte')} that are none")
    return replace(report, source=path.name, warnings=tuple(said))


def _refuse_other(source: FileSource) -> None:
    head = source.head
    binary = b"\0" in head and not head.startswith(tuple(_UTF16))
    if not head.strip() or binary or _named_like_a_report(source.path):
        what = "is empty" if not head.strip() else "is no report of Nsight Compute"
        raise InputError(
            what,
            where=Location(source.path),
            hint="pass an .ncu-rep, or what ncu --import FILE --csv --page raw printed",
        )


def _named_like_a_report(path: str) -> bool:
    """Return whether a file that does not begin like a binary report is named like one."""
    return path.removesuffix(".gz").endswith((".ncu-rep", ".ncu-repz"))


def _lines(source: FileSource) -> Iterator[str]:
    """Yield the lines of a text; what is no text becomes a replacement character."""
    encoding = next((name for mark, name in _UTF16.items() if source.head.startswith(mark)), "utf-8")
    decode = codecs.getincrementaldecoder(encoding)("replace").decode
    block = memoryview(bytearray(_BLOCK_BYTES))
    rest = ""
    while count := source.readinto(block):
        *lines, rest = (rest + decode(bytes(block[:count]))).split("\n")
        yield from lines
        if len(rest) > _LONGEST_LINE:
            raise InputError("has a line of more than 64 million characters", where=Location(source.path))
    if rest:
        yield rest
