"""Nsight Compute: tables that `ncu --csv` prints, and binary reports, as counters of kernels."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from tracemine.counters import CounterReport
from tracemine.errors import InputError, Location
from tracemine.formats.ncu.report import MAGIC, read_report
from tracemine.formats.ncu.table import read_table
from tracemine.formats.source import FileSource
from tracemine.units import count_text

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
