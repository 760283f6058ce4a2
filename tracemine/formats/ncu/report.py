"""The binary report (`.ncu-rep`), through NVIDIA's own package `ncu-report`, where the user has installed it.

The package reads a report without a GPU, a driver or ncu. It says nothing about files that are none (it finds no
kernels in them), so the first bytes are looked at here. A report that was cut short reads as one of fewer kernels.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tracemine.counters.record import Report
from tracemine.errors import InputError, Location
from tracemine.formats.ncu.kernels import Reading, kernel_of
from tracemine.formats.ncu.metrics import DISPLAY_NAME, metrics
from tracemine.formats.ncu.numbers import parser
from tracemine.formats.source import FileSource

MAGIC = b"NVR\0"
RULES_LEFT_OUT = "rule_beyond_bound"
NOT_A_KERNEL = "not_a_kernel"  # a range, a graph or a command list, profiled as a whole
_KERNEL = 0  # of action.workload_type()
_KINDS = ("", "INF", "OPT", "WRN", "ERR")  # of ncu_report.MsgType, as the details page prints them


def read_report(source: FileSource) -> Report:
    """Return the kernels of a binary report.

    Raises InputError if the package is missing, or finds no kernels.
    """
    path = source.path
    try:
        library = importlib.import_module("ncu_report")
    except ImportError:
        raise InputError(
            "is a binary report, which needs NVIDIA's package ncu-report",
            where=Location(path),
            hint="pip install 'tracemine[ncu]', or print it: ncu --import FILE --csv --page raw > report.csv",
        ) from None
    with _on_disk(source) as file:
        try:
            actions = [action for span in library.load_report(str(file)) for action in span]
            readings = [_reading(action) for action in actions if action.workload_type() == _KERNEL]
        except Exception as error:  # whatever NVIDIA's library raises on a damaged file
            raise InputError(
                f"cannot be read by ncu-report ({type(error).__name__})", where=Location(path), hint=_RECORD_AGAIN
            ) from None
    if not readings:
        raise InputError("has no kernels that can be read", where=Location(path), hint=_RECORD_AGAIN)
    point = parser(".")
    kernels = tuple(kernel_of(reading, i, point) for i, reading in enumerate(readings))
    dropped = {
        NOT_A_KERNEL: len(actions) - len(readings),
        RULES_LEFT_OUT: sum(reading.rules_left_out for reading in readings),
    }
    dropped = {reason: count for reason, count in dropped.items() if count}
    return Report(source="", page="report", kernels=kernels, dropped=dropped)


_RECORD_AGAIN = "it may be damaged or cut off: copy it again, or profile again with ncu -o report PROGRAM"


def _reading(action: Any) -> Reading:
    reading = Reading(action.name(action.NameBase_DEMANGLED) or action.name())
    index = metrics().names
    for name in {*action.metric_names()} & {*index, DISPLAY_NAME}:
        metric = action.metric_by_name(name)
        value = metric.value() if metric is not None and metric.has_value() else None
        if name == DISPLAY_NAME:
            reading.gpu = value if isinstance(value, str) and value else None
        elif isinstance(value, int | float):
            reading.add(index[name], float(value), metric.unit() or "")
    results = getattr(action, "rule_results_as_dicts", None)  # which older packages lack
    for result in results() if results is not None else ():
        message = result["rule_message"]
        if message and message["message"]:
            text = ": ".join(each for each in (message["title"], message["message"]) if each)
            reading.add_rule(result["rule_identifier"] or result["name"], _KINDS[message["type"]], text)
    return reading


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
