"""PyTorch execution traces (ExecutionTraceObserver): which tensors, in which storages, each operator took and gave.

`read.read(source)` makes an `ExecutionTrace` of a file, `join.join(timeline, trace, name)` a timeline that knows its
tensors. Both modules are imported when a trace of this kind is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.on_demand import on_demand

if TYPE_CHECKING:
    from tracemine.formats.execution_trace import join, read

__all__ = ["join", "read"]

__getattr__ = on_demand(__name__, {name: f"{__name__}.{name}" for name in __all__})
