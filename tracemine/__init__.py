"""tracemine: from a profiler trace to the kernels worth fusing and the launch gaps worth closing.

capture(folder)    record steps of a program: its trace and execution trace
generate(graph)    the Triton source of kernels that compute a graph of ATen calls
validate(graph)    whether they are right, on a CPU
pipeline           from a trace to its findings: pipeline.scan("trace.json.gz")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine import pipeline
    from tracemine.codegen import GraphBuilder, generate
    from tracemine.recording import capture
    from tracemine.validate import validate

__all__ = ["GraphBuilder", "__version__", "capture", "generate", "pipeline", "validate"]

# Imported on first use, so that nothing waits for what it does not need.
_PUBLIC = {
    "GraphBuilder": "tracemine.codegen",
    "capture": "tracemine.recording",
    "generate": "tracemine.codegen",
    "pipeline": "tracemine.pipeline",
    "validate": "tracemine.validate",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_PUBLIC[name])
    return module if _PUBLIC[name] == f"{__name__}.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
