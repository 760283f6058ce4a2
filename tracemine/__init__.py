"""tracemine: from a profiler trace to the kernels worth fusing and the launch gaps worth closing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracemine.recording import capture

__all__ = ["__version__", "capture"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "capture":  # on first use, so that nothing else waits for what recording imports
        from tracemine.recording import capture

        return capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
