"""Nsight Compute: tables that `ncu --csv` prints, and binary reports, as counters of kernels.

The package reads a report without a GPU, a driver or ncu. It says nothing about files that are none (it finds no
kernels in them), so the first bytes are looked at here. A report that was cut short reads as one of fewer kernels, and
one that is damaged may end the process that reads it: that is a child, with limits (`binary.py`).
"""

from __future__ import annotations

import base64
import codecs
import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tracemine.counters import CounterReport
from tracemine.errors import InputError, Location
from tracemine.extras import install
from tracemine.formats.ncu.kernels import DISPLAY_NAME, KernelReading, kernel_of, metrics
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

_KERNEL = 0  # of action.workload_type()
_KINDS = ("", "INF", "OPT", "WRN", "ERR")  # of ncu_report.MsgType, as the details page prints them


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


class ReportAnswer(msgspec.Struct, frozen=True):
    """The kernels of a report, and how many others were profiled; or why there are none."""

    readings: tuple[KernelReading, ...] = ()
    others: int = 0  # a range, a graph or a command list, profiled as a whole
    missing: bool = False  # the package
    error: str | None = None  # the kind of what it raised; its text may name a path


def question(path: str) -> bytes:
    """Return the line that asks for a report."""
    return base64.b64encode(os.fsencode(path))


def answer(line: bytes) -> bytes:
    """Return the line that answers a question."""
    return base64.b64encode(msgspec.msgpack.encode(_found(os.fsdecode(base64.b64decode(line)))))


def answered(line: bytes) -> ReportAnswer:
    """Return what a line answers. Raises ValueError, msgspec.DecodeError where it is none."""
    return msgspec.msgpack.decode(base64.b64decode(line.strip(), validate=True), type=ReportAnswer)


def _found(path: str) -> ReportAnswer:
    try:
        library = importlib.import_module("ncu_report")
    except ImportError:
        return ReportAnswer(missing=True)
    try:
        actions = [action for span in library.load_report(path) for action in span]
        readings = tuple(_reading(action) for action in actions if action.workload_type() == _KERNEL)
        msgspec.msgpack.encode(readings)  # a name that is no text
    except Exception as error:  # whatever NVIDIA's library raises on a damaged file
        return ReportAnswer(error=type(error).__name__)
    return ReportAnswer(readings, len(actions) - len(readings))


def _reading(action: Any) -> KernelReading:
    reading = KernelReading(action.name(action.NameBase_DEMANGLED) or action.name())
    index = metrics()[0]
    for name in {*action.metric_names()} & {*index, DISPLAY_NAME}:
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None and metric.has_value() else None
        if name == DISPLAY_NAME:
            reading.gpu = value if isinstance(value, str) and value else None
        elif isinstance(value, int | float):
            reading.add(index[name], float(value), metric.unit() or "")
    _add_rules(reading, action)
    return reading


def _add_rules(reading: KernelReading, action: Any) -> None:
    results = getattr(action, "rule_results_as_dicts", None)  # which older packages lack
    for result in results() if results is not None else ():
        message = result["rule_message"]
        if message and message["message"]:
            text = ": ".join(each for each in (message["title"], message["message"]) if each)
            reading.add_rule(result["rule_identifier"] or result["name"], _KINDS[message["type"]], text)
