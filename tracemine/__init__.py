"""tracemine: from a profiler trace to the kernels worth fusing and the launch gaps worth closing.

scan(path)         what is worth fixing in a trace: a Report, a sequence of findings, a table
scan_many(paths)   the same of many traces, in several processes
load(path)         a Report that was stored as JSON
diff(a, b)         what became of each finding from one recording to the next
open(path)         the trace as a Timeline: Arrow tables of what the profiler recorded
capture(folder)    record steps of a program: its trace and execution trace
generate(graph)    the Triton source of kernels that compute a graph of ATen calls
validate(graph)    whether they are right, on a CPU
pipeline           from a trace to its findings, stage by stage
TracemineError     the base of every error that the caller can fix
"""

import os
import sys

# `python -m tracemine` searches the current folder for modules, where a stranger's `json.py` may lie next to a trace. A
# program that is recorded (`capture`) has its own there. Nothing is imported before that Python had not loaded.
if (
    getattr(sys, "argv", [])[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "tracemine"
    and sys.argv[1:2] != ["capture"]
    and not sys.flags.safe_path
    and sys.path[0] not in os.environ.get("PYTHONPATH", "").split(os.pathsep)  # where that is gone
):
    del sys.path[0]

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine import pipeline
    from tracemine.api.calls import Comparison, diff, load, load_many, open, scan
    from tracemine.api.many import Failure, Reports, scan_many
    from tracemine.api.report import Report
    from tracemine.codegen import GraphBuilder, generate
    from tracemine.errors import InputError, RuleError, ServiceError, TimelineError, TracemineError, UsageError
    from tracemine.findings.record import Finding
    from tracemine.recording import capture
    from tracemine.timeline import Timeline
    from tracemine.validate import validate

__all__ = [
    "Comparison",
    "Failure",
    "Finding",
    "GraphBuilder",
    "InputError",
    "Report",
    "Reports",
    "RuleError",
    "ServiceError",
    "Timeline",
    "TimelineError",
    "TracemineError",
    "UsageError",
    "__version__",
    "capture",
    "diff",
    "generate",
    "load",
    "load_many",
    "open",
    "pipeline",
    "scan",
    "scan_many",
    "validate",
]

# Where each public name lies.
_PUBLIC = {
    "GraphBuilder": "tracemine.codegen",
    "capture": "tracemine.recording",
    "generate": "tracemine.codegen",
    "pipeline": "tracemine.pipeline",
    "validate": "tracemine.validate",
    "Finding": "tracemine.findings.record",
    "Timeline": "tracemine.timeline",
    **dict.fromkeys(("Comparison", "diff"), "tracemine.api.calls"),
    **dict.fromkeys(("Failure", "Reports", "scan_many"), "tracemine.api.many"),
    **dict.fromkeys(("load", "load_many", "open", "scan"), "tracemine.api.calls"),
    "Report": "tracemine.api.report",
    **dict.fromkeys(
        ("InputError", "RuleError", "ServiceError", "TimelineError", "TracemineError", "UsageError"), "tracemine.errors"
    ),
}


__getattr__ = on_demand(__name__, _PUBLIC)


def __dir__() -> list[str]:
    return sorted(__all__)
