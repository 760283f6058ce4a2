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
TracemineError     the base of every error that is the caller's to mend
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine import pipeline
    from tracemine.api import Comparison, Failure, Report, Reports, diff, load, load_many, open, scan, scan_many
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

# Where each public name lies. Imported on first use, so that nothing waits for what it does not need.
_PUBLIC = {
    "GraphBuilder": "tracemine.codegen",
    "capture": "tracemine.recording",
    "generate": "tracemine.codegen",
    "pipeline": "tracemine.pipeline",
    "validate": "tracemine.validate",
    "Finding": "tracemine.findings.record",
    "Timeline": "tracemine.timeline",
    **dict.fromkeys(
        ("Comparison", "Failure", "Report", "Reports", "diff", "load", "load_many", "open", "scan", "scan_many"),
        "tracemine.api",
    ),
    **dict.fromkeys(
        ("InputError", "RuleError", "ServiceError", "TimelineError", "TracemineError", "UsageError"), "tracemine.errors"
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_PUBLIC[name])
    return module if _PUBLIC[name] == f"{__name__}.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
