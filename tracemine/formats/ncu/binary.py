"""What NVIDIA's package `ncu-report` says of a binary report: run in a process of its own.

The package parses a stranger's bytes in C++, and ends the process where it finds some that it does not expect.
"""

from __future__ import annotations

import base64
import importlib
import os
from typing import Any

import msgspec

from tracemine.formats.ncu.kernels import DISPLAY_NAME, KernelReading, metrics

_KERNEL = 0  # of action.workload_type()
_KINDS = ("", "INF", "OPT", "WRN", "ERR")  # of ncu_report.MsgType, as the details page prints them


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
