"""PyTorch execution traces (ExecutionTraceObserver): which tensors, in which storages, each operator took and gave.

`read(source)` makes an `ExecutionTrace` of a file, `join(timeline, trace, name)` a timeline that knows its tensors.
"""

from __future__ import annotations

from tracemine.formats.execution_trace.join import join
from tracemine.formats.execution_trace.read import read
from tracemine.formats.execution_trace.trace import ExecutionTrace

__all__ = ["ExecutionTrace", "join", "read"]
